"""Inputs read and outputs written by `unitk generate`."""
