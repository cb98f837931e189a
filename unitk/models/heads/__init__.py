"""Output layers: from the states at the asked slots to each row's loss.

`base.py` says what a head is and how a model answers asks with it; `compare.py` is the one place
where log-probabilities of labels are computed; the other files register heads.
"""
