"""How [MASK]s are filled: `fill.py` in one pass, `denoise.py` in several, as diffusion generates.
`infilling.py` judges texts that were filled in by BLEU."""
