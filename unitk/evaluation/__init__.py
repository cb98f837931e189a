"""What `unitk evaluate` measures. `base.py` has the classes; `options.py` finds the one asked for.

pairs.py, continuations.py, windows.py, infilling.py, corpus.py   registered evaluations
texts.py, share.py   scores of texts by any task, their common beginnings computed once
harness.py           the adapter to lm-evaluation-harness
"""
