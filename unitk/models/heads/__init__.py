"""Output layers: from the states at the asked slots to the loss of each row.

`base.py` defines heads and how a model answers asks with them. `compare.py` is the only place where
log-probabilities of labels are computed. The other files register heads.
"""
