"""Distillation: a model learns from what a trained one, its teacher, says of the same texts."""
