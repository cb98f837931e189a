"""Vocabularies and tokenizer classes of released models; the registry alone knows them."""
