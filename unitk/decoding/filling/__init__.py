"""Filling in [MASK]s: `fill.py` in one pass, `denoise.py` in several (diffusion).

`infilling.py` measures filled-in texts by BLEU.
"""
