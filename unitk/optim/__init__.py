"""How weights change: optimizers, their parameter groups, and schedules."""
