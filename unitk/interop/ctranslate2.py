"""CTranslate2's folders: BART, T5, GPT-2 and BERT, written by its own converter.

A sequence of tokens is given there as the tokenizer beside the model makes it, special symbols and
all. Symbols that unitk's search never writes have to be named there (`suppress_sequences`).
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

from unitk.errors import UsageError, require
from unitk.interop.convert import Parts
from unitk.interop.exported import hf_folder
from unitk.interop.hf_heads import head_of

KINDS = ("bart", "t5", "gpt2", "bert")
log = logging.getLogger(__name__)


def write(parts: Parts, folder: Path) -> None:
    """A folder for `ctranslate2.Translator`, `Generator` or `Encoder`; it exists and is empty."""
    with hf_folder(parts, folder, "ctranslate2", "ctranslate2") as (there, about):
        kind, head = about["model_type"], head_of(parts.task)
        if kind not in KINDS or head:
            what = f"a {kind} model" + f" with the outputs {head}" * bool(head)
            raise UsageError(f"--to ctranslate2 takes {', '.join(KINDS)}, not {what}")
        unscaled = kind == "t5" and not parts.model.config.output_scale
        # version 4.8 scales the states before the outputs of T5 1.1, too, which are not tied
        require(not unscaled, "--to ctranslate2 takes T5 1.0, whose outputs are tied, not T5 1.1")
        from ctranslate2.converters import TransformersConverter

        made = TransformersConverter(str(there)).convert(str(there / "made"))
        shutil.copytree(made, folder, dirs_exist_ok=True)
    config = folder / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["layer_norm_epsilon"] = parts.model.config.norm_eps  # its own default is 1e-5
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if kind == "bert" and not about["architectures"][0].endswith("ForPreTraining"):
        log.warning("pooler_output means nothing there: this model has no pooler")
