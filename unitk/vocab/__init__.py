"""Vocabularies: special symbols, storing and hashing, and the kinds of tokenizer."""
