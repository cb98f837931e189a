"""Masked and block diffusion: tasks, denoising, checkpoints of their releases."""
