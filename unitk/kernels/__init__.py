"""Kernels of matrix products and attention, and the memory kept for backward passes."""
