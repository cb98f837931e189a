"""Decoding: the driver of a task's protocol, beam search, its rules, texts in and out."""
