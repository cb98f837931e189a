"""What a run refuses before it begins: options, data that do not fit them, other checkpoints."""
