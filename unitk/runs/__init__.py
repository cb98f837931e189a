"""What goes with training runs: outputs that are scored and shown, dry runs, sweeps."""
