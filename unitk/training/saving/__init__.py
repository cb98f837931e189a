"""Checkpoints and run folders: writing, finding, checking, restoring."""
