"""Losses: sums over a batch's asks, which the loop divides once per update."""
