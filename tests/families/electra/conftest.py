"""Checkpoints of transformers, as the tests of formats have them."""

from ...formats.conftest import hf, kit, vocab_txt  # noqa: F401
