"""What goes with training runs: scored outputs, dry runs, sweeps, scaling laws, clusters, views."""
