"""unitk: one toolkit for unified language models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unitk.api.loading import load, load_module
    from unitk.api.train import train
    from unitk.keywords import (
        analyse,
        average,
        check,
        compare,
        convert,
        embed,
        evaluate,
        fairseq_plugin,
        generate,
        latent,
        launch,
        list,
        merge,
        mix,
        plot,
        predict,
        preprocess,
        push,
        quickstart,
        scale,
        score,
        search,
        serve,
        show,
        sweep,
    )
    from unitk.runs.view import open_run

__all__ = ["analyse", "average", "check", "compare", "convert", "embed", "evaluate"]
__all__ += ["fairseq_plugin", "generate", "latent", "launch", "list", "load", "load_module"]
__all__ += ["merge", "mix", "open_run", "plot", "predict", "preprocess", "push", "quickstart"]
__all__ += ["scale", "score", "search", "serve", "show", "sweep", "train"]

_PLACES = {
    "load": "api.loading:load",
    "load_module": "api.loading:load_module",
    "train": "api.train:train",
    "open_run": "runs.view:open_run",
    "__version__": "files:VERSION",
}
"""Name -> where it is, imported when it is asked for; other names are verbs."""


def __getattr__(name: str) -> Any:
    if name not in (*__all__, *_PLACES):
        raise AttributeError(f"module 'unitk' has no attribute {name!r}")
    from unitk.registry import import_object

    if name in _PLACES:
        return import_object(f"unitk.{_PLACES[name]}")
    globals()[name] = function = import_object("unitk.api.functions:function")(name)
    return function


def __dir__() -> Iterable[str]:
    # what completion offers: not what this file imports
    return [
        name
        for name in {*globals(), *__all__, *_PLACES}
        if name.startswith("__") or name in __all__
    ]
