"""Checks and measures for comparing models; only the registry knows this package.

texts.py, likelihood.py   a text as it is, and what it costs a model
estimators.py             how that is found for tasks of each kind
bits.py                   `unitk evaluate --bits`
check.py, checks/         `unitk check`
compare.py                `unitk compare`; side_by_side.py, page/: its table and its page
"""
