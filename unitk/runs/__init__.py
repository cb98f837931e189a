"""What goes with training runs: scores, dry runs, sweeps, scaling laws, clusters, views, shards."""
