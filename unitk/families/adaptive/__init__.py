"""Adaptive masking: tokens that a model finds hard are hidden more often."""
