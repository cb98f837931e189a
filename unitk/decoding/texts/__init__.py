"""Texts in and out: sources as ids, outputs as a table, an output piece by piece."""
