"""Cloze questions: labels and choices by what a pre-trained model writes into a blank."""
