"""Checks before a run begins: of options, of data against options, and of checkpoints."""
