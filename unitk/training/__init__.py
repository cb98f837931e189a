"""Training: the loop, run folders and checkpoints, ranks, logs and plots."""
