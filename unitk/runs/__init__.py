"""What goes with training runs: scores, dry runs, seeds, clusters, shards, and experiments."""
