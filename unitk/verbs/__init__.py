"""A file a verb of the command line: its options, and a function of them (`unitk/api/verb.py`).

`unitk.preprocess`, `train` and `evaluate` are defined beside the verb whose options they have.
"""
