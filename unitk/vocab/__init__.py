"""Vocabularies: special symbols, storage and hashes, and the kinds of tokenizers."""
