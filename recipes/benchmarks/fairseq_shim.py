"""Lets fairseq 0.12.2 run on Python 3.11 and later, torch 2 and numpy 2.

A current pip refuses to install fairseq, and Python from 3.11 on refuses to import it. In an
environment of its own with a C++ compiler at hand:

    python -m venv peers && . peers/bin/activate
    pip install torch cython numpy regex sacrebleu bitarray tqdm packaging transformers accelerate
    pip install "hydra-core>=1.3,<1.4" "omegaconf>=2.3,<2.5" -e .
    pip install --no-deps fairseq==0.12.2
    packages=$(python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
    cp recipes/benchmarks/fairseq_shim.py "$packages"
    echo "import fairseq_shim" > "$packages/fairseq_shim.pth"

With the last two lines every Python of that environment imports this file when it starts, so that
`fairseq-preprocess`, `-train` and `-generate` run too. What it changes, it changes when fairseq is
first imported. Checkpoints are opened as pickles then, which run what they hold: open your own.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any


class WhenImported:
    """A finder of modules that finds none; it makes the changes before fairseq is looked for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "fairseq":
            sys.meta_path.remove(self)
            os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
            allow_dataclass_defaults()
            restore_numpy_names()
            name_mask_types()


def allow_dataclass_defaults() -> None:
    """Python 3.11 refuses defaults that cannot be hashed; fairseq's are its own dataclasses."""
    process = dataclasses._process_class  # type: ignore[attr-defined]

    def hashable(cls: type, *options: Any) -> type:
        made: type = process(cls, *options)
        ancestors = {(base.__module__.partition(".")[0], base.__name__) for base in made.__mro__}
        ours = cls.__module__.startswith("fairseq.") or ("fairseq", "FairseqDataclass") in ancestors
        if ours and made.__hash__ is None:
            made.__hash__ = object.__hash__  # type: ignore[method-assign]
        return made

    dataclasses._process_class = hashable  # type: ignore[attr-defined]


def restore_numpy_names() -> None:
    """Names that numpy 1.24 and 2 took away."""
    import types

    import numpy as np

    names: Any = np
    names.int, names.float = int, float
    if not hasattr(np, "compat"):
        names.compat = types.SimpleNamespace()
    names.compat.long = int


def name_mask_types() -> None:
    """torch 1.13 wants the kind of a mask behind it; fairseq's masks tell pads, which is kind 1."""
    import torch

    forward = torch._transformer_encoder_layer_fwd

    def with_kind(*values: Any) -> Any:
        masked = len(values) == 19 and values[-1] is not None
        return forward(*values, *([1] if masked else []))

    torch._transformer_encoder_layer_fwd = with_kind


sys.meta_path.insert(0, WhenImported())  # type: ignore[arg-type]
