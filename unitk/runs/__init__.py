"""What goes with training runs: outputs that are scored, dry runs, sweeps, clusters, views."""
