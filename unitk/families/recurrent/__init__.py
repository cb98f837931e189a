"""Recurrent architectures: LSTM layers (lstm.py) in stacks of one or two directions (stack.py)."""
