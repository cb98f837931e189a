"""Outputs that have clauses of their source and no other word (`--extract`)."""
