"""Import and export of other systems' checkpoints: one module for each format.

A format's module maps the names of tensors and settings in both directions. `convert.py` builds the
model.
"""
