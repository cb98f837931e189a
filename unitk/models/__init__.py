"""The one Transformer and its presets."""
