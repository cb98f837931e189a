"""The helpers of other systems' formats."""

from ..interop.conftest import kit, vocab_txt  # noqa: F401
