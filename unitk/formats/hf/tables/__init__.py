"""Tables of transformers' model types: one file for each kind of blocks, registered by name."""
