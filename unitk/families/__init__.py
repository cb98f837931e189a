"""Families of models, a folder each, which the registry alone knows."""
