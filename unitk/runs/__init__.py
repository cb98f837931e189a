"""What surrounds a training run: outputs that are scored and shown while it trains."""
