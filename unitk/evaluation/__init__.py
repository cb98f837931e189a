"""The probability of given texts. `texts.py` scores texts by any task, and `share.py` computes
their common beginnings once. `pairs.py` compares minimal pairs, `continuations.py` ranks last words
and choices, `windows.py` reads long texts. `harness.py` is the adapter to lm-evaluation-harness.
"""
