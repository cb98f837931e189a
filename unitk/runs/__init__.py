"""Experiments around training runs: scores, dry runs, sweeps, scaling laws, clusters, shards."""
