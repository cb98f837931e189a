"""Folders of transformers: one table for each model type, and what all of them have in common.

`folder` reads and writes a folder. `families` says what a table has. The tables of names, sizes and
settings are in `tables`; a family that has a folder of its own brings its table itself. `heads`,
`generation` and `tokenizer` are the other files and classes of transformers.
"""
