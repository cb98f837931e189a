"""Checkpoints of other systems, one file per format: a table of names, both ways."""
