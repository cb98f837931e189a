"""Tiny runs, as the tests of training have them."""

from ...training.conftest import curve, start, train  # noqa: F401
