"""unitk: one toolkit for unified language models."""

__version__ = "0.1.0"
