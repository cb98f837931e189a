"""Kinds of vocabulary that one family of released models has; the registry knows them."""
