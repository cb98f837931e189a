"""Optimizers, their parameter groups, and schedules."""
