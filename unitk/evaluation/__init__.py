"""What `unitk evaluate` measures. `base.py` has the classes; `options.py` finds the one asked for.

pairs.py, continuations.py, windows.py, infilling.py, corpus.py   registered evaluations
estimators.py        what a text costs a model: exactly, at most, or as a pseudo-likelihood
harness.py           the adapter to lm-evaluation-harness
"""
