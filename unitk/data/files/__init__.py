"""Readers: text, records and pairs from files of every kind."""
