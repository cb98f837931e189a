"""unitk: one toolkit for unified language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unitk.files import VERSION

if TYPE_CHECKING:
    from unitk.api.loading import load, load_module
    from unitk.api.preprocess import preprocess
    from unitk.api.train import train
    from unitk.verbs.evaluate import evaluate

__all__ = ["evaluate", "load", "load_module", "preprocess", "train"]
__version__ = VERSION

_MODULES = {"load": "api.loading", "load_module": "api.loading", "evaluate": "verbs.evaluate"}
_MODULES |= {name: f"api.{name}" for name in ("preprocess", "train")}
"""Function -> its module, imported when the function is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'unitk' has no attribute {name!r}")
    from unitk.registry import imported

    return imported(f"unitk.{_MODULES[name]}:{name}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
