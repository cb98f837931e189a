"""Export BART, T5, GPT-2 and BERT to CTranslate2, with CTranslate2's own converter.

CTranslate2 takes tokens as the exported tokenizer makes them, special symbols included. It does not
know which symbols unitk's search never writes: pass them as `suppress_sequences`. It begins outputs
with one symbol: pass a second one, which a warning names, as `target_prefix`.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from unitk.errors import UsageError, require
from unitk.files import copy, create
from unitk.formats.base import Format
from unitk.formats.exported import hf_folder
from unitk.formats.hf.generation import opening
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded

FAMILIES = ("bart", "t5", "gpt2", "bert")
log = logging.getLogger(__name__)


def write(parts: Loaded, folder: Path) -> None:
    """Write an empty folder for `ctranslate2.Translator`, `Generator` or `Encoder`."""
    with hf_folder(parts, folder, "ctranslate2", check_convertible) as (source, declared):
        kind = declared["model_type"]
        relu2 = parts.model.config.activation == "relu2"
        require(not relu2, "--to ctranslate2 has no activation relu2 (--arch.activation)")
        unscaled = kind == "t5" and not parts.model.config.output_scale
        # version 4.8 also scales the states of T5 1.1, whose outputs are not tied
        require(not unscaled, "--to ctranslate2 takes T5 1.0, whose outputs are tied, not T5 1.1")
        alone = kind == "t5" and parts.model.config.num_heads == 1
        require(not alone, "--to ctranslate2: it computes no T5 with one head (--arch.num-heads)")
        from ctranslate2.converters import TransformersConverter

        written = TransformersConverter(str(source)).convert(str(source / "made"))
        for path in Path(written).iterdir():
            copy(path, folder / path.name)
    config = folder / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["layer_norm_epsilon"] = parts.model.config.norm_eps  # its own default is 1e-5
    create(config, json.dumps(settings, indent=2) + "\n")
    start = opening(parts.task) if kind in ("bart", "t5") else None
    if further := parts.task.vocab.pieces((start or [])[1:]):
        prefix = [further]
        log.warning(
            "an output begins with %s: translate texts with target_prefix=%r", *further, prefix
        )
    if kind == "bert" and not declared["architectures"][0].endswith("ForPreTraining"):
        log.warning("the exported pooler_output is meaningless: this model has no pooler")


def check_convertible(kind: str, head: str) -> None:
    """Raise a `UsageError` for a family, or a kind of head, that is not exported."""
    if kind not in FAMILIES or head:
        model = f"a {kind} model" + (f" with a head of kind {head}" if head else "")
        raise UsageError(f"--to ctranslate2 takes {', '.join(FAMILIES)}, not {model}")


register("format", "ctranslate2")(
    Format(about="CTranslate2: BART, T5, GPT-2 and BERT.", write=write)
)
