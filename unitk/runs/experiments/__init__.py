"""Experiments: several runs of one plan, which compare options, sizes or mixtures."""
