"""What is measured of a latent: bounds, collapse, mutual information, and what probes read."""
