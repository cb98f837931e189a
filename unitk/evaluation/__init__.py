"""The evaluations of `unitk evaluate`: base.py has their classes, options.py chooses one of them.

pairs.py, continuations.py, windows.py, infilling.py, corpus.py   registered evaluations
estimators.py        what a text costs a model: exactly, at most, or as a pseudo-likelihood
harness.py           the adapter to lm-evaluation-harness
"""
