"""Masks written as tables: 1 where a slot is seen."""

import numpy as np

UNILM2_MASK = """
       x1  M2  P2  x2  x3  M4  P4  x4  M5  P5  x5  x6
   x1   1   1   .   .   1   1   .   .   1   .   .   1
   M2   1   1   .   .   1   1   .   .   1   .   .   1
   P2   1   1   1   .   1   1   .   1   1   .   1   1
   x2   1   1   .   1   1   1   .   1   1   .   1   1
   x3   1   1   .   .   1   1   .   .   1   .   .   1
   M4   1   1   .   .   1   1   .   .   1   .   .   1
   P4   1   1   .   .   1   1   1   .   1   1   .   1
   x4   1   1   .   .   1   1   .   1   1   .   1   1
   M5   1   1   .   .   1   1   .   .   1   .   .   1
   P5   1   1   .   .   1   1   1   .   1   1   .   1
   x5   1   1   .   .   1   1   .   1   1   .   1   1
   x6   1   1   .   .   1   1   .   .   1   .   .   1
"""
"""x1..x6, factorization 4,5 then 2, by the mask function of UniLM's official fine-tuning code."""


def parse_mask(table):
    """The names in the header of a table, and its cells as a bool matrix."""
    header, *lines = (line.split() for line in table.split("\n")[1:-1])
    return header, np.array([[cell == "1" for cell in line[1:]] for line in lines])
