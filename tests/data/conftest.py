"""A run that may begin, as training's tests have it."""

from ..training.conftest import start  # noqa: F401
