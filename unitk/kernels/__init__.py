"""Who multiplies matrices, and what is kept for backward."""
