"""THU-ERNIE's release: a folder with ernie_config.json, pytorch_model.bin and BERT's vocab.txt.

The names are BERT's, and those of what a layer adds for entities end in _ent. `layer_types` in the
settings names the layers: "sim" reads no entities, "mix" reads them without an attention of their
own, "norm" has all. Vectors of entities are no part of it: `--task.entities` names their file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import Tensor

from unitk.errors import CheckpointError
from unitk.formats import settings
from unitk.formats.archive import find_file, read_json, read_tensors
from unitk.formats.base import Format, StoredModel
from unitk.formats.hf.folder import config_beside
from unitk.formats.hf.tables.bert import BERT, BERT_KEYS, masked_changes
from unitk.formats.names import Layout, current_name, prefix_names
from unitk.formats.vocabs import vocab_beside
from unitk.registry import register

PRESET, TYPES = "thu_ernie_base", "layer_types"
HEADS = 4
"""Heads of the attention of entities, which the release's code fixes."""
ENTITIES = "entities."
"""What the names of a mixing layer's additions begin with in the table, before their number."""
FUSION: dict[str, Any] = {
    "attention.qkv": tuple(f"attention.self_ent.{part}" for part in ("query", "key", "value")),
    "attention.out": "attention.output_ent.dense",
    "attention_norm": "attention.output_ent.LayerNorm",
    "up": "intermediate.dense_ent",
    "down": "output.dense_ent",
    "norm": "output.ent.LayerNorm",
}
LAYOUT = Layout(
    {**BERT.names, **prefix_names(f"{ENTITIES}#.", "fusions.#.", FUSION)},
    copies=BERT.copies,
    ignored=(*BERT.ignored, r"cls\.predictions_ent\..*"),
)


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read a folder of the release, or its file of weights."""
    weights = find_file(path, ("pytorch_model.bin", "*.bin"), "model")
    where = config_beside(weights)
    declared = read_json(where)
    stored = read_tensors(weights)
    config = settings.read(settings.config_of_preset(PRESET), BERT_KEYS, declared, where)
    count, mixes = fusions_of(declared, config.num_layers, where)
    # gamma and beta as of 2019, also of the norms of entities
    tensors = {
        current_name(name.replace("LayerNorm_ent.", "ent.LayerNorm.")): tensor
        for name, tensor in stored.items()
    }
    width = settings.shape_of(
        tensors, _layer(config.num_layers - 1, "intermediate.dense_ent"), where
    )
    sizes = {"entity_layers": count, "entity_width": width[1], "entity_heads": HEADS}
    released = {"entities_mix_first": mixes, "first_linked": True}
    changes = masked_changes(tensors)
    config = settings.with_values(config, where, **sizes, **released, **changes)
    lacks = "the prediction of entities (cls.predictions_ent), which --task thu_ernie learns anew"
    return StoredModel(
        weights,
        number_fusions(tensors, config.num_layers, count),
        LAYOUT,
        (PRESET,),
        config,
        "thu_ernie",
        vocab_beside(weights.parent, vocab, described=False),
        {"nsp": "on" if changes["heads"] else "off"},
        notes=[f"left out: {lacks}"],
    )


def fusions_of(declared: Mapping[str, Any], layers: int, where: Path) -> tuple[int, bool]:
    """How many of the last layers read entities, and whether the first of these only mixes."""
    types = settings.check_value(declared.get(TYPES), list, TYPES, where)
    runs = [(kind, len([*layers_of_kind])) for kind, layers_of_kind in groupby(map(str, types))]
    kinds = [kind for kind, _ in runs]
    sizes = dict(runs)
    order = [kind for kind in ("sim", "mix", "norm") if kind in kinds]
    good = kinds == order and sizes.get("mix", 0) < 2 and {"mix", "norm"} & {*kinds}
    if not good or len(types) != layers:
        raise CheckpointError(
            f"{where}: "
            f'{TYPES} must name all {layers} layers, first "sim", then at most one "mix", "norm"'
            f"; got {types}"
        )
    return sizes.get("mix", 0) + sizes.get("norm", 0), "mix" in kinds


def _layer(number: int, part: str) -> str:
    return f"bert.encoder.layer.{number}.{part}.weight"


def number_fusions(tensors: Mapping[str, Tensor], layers: int, count: int) -> dict[str, Tensor]:
    """The tensors by the names of the table: additions are numbered from the first mixing layer.

    Both biases of a mixture are added up, as the sum of both maps has one.
    """
    numbered = dict(tensors)
    for name in tensors:
        part = re.fullmatch(r"bert\.encoder\.layer\.(\d+)\.(.*(?:_ent|\.ent)\..*)", name)
        if part is None:
            continue
        tensor = numbered.pop(name)
        number = int(part[1])
        if part[2] == "intermediate.dense_ent.bias":
            # where no entity is, the second map gives its bias alone
            name_of_sum = name.replace("dense_ent", "dense")
            numbered[name_of_sum] = numbered[name_of_sum] + tensor
        # the last layer's additions after the mixture make entities that nothing reads
        elif number < layers - 1 or not part[2].startswith("output."):
            numbered[f"{ENTITIES}{number - layers + count}.{part[2]}"] = tensor
    return numbered


register("format", "thu_ernie")(
    Format(about="THU-ERNIE: a folder of its release, without vectors of entities.", find=find)
)
