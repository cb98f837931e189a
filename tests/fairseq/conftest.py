"""The helpers of other systems' formats."""

from ..formats.conftest import kit, vocab_txt  # noqa: F401
