"""ELECTRA: a small generator replaces tokens, and the model tells which ones."""
