"""Retrieval: vectors of texts whose similarity says what belongs together."""
