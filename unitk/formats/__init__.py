"""Import and export of other systems' checkpoints: one module for each format.

A format's module maps the names of tensors and settings in both directions. `base.py` says what a
format is, and builds the model. `hf/` and `gguf/` are formats of several files.
"""
