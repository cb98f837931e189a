"""Decoding: drivers, beam search, its rules, texts in and out, what reads texts only."""
