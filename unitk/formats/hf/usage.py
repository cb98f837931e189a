"""What a model of unitk is in transformers: its type, how it reads a text, how to use it."""

from __future__ import annotations

import json
import logging

import numpy as np

from unitk import registry
from unitk.errors import require
from unitk.formats.hf.families import BOTH, MODEL_TYPE, ONE_WAY, Family, class_of, kind_of
from unitk.tasks.base import Task
from unitk.tasks.mlm import MLM
from unitk.training.reporting.card import how_to, pipeline_tag
from unitk.training.saving.checkpoint import Loaded

log = logging.getLogger(__name__)


USAGE = """\
{says} every token sees both sides. The model fills masks:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")  # this folder, or its name on the hub
model = AutoModelForCausalLM.from_pretrained(".")
inputs = tokenizer("{text}", return_tensors="pt")
words = model(**inputs).logits{shift}.argmax(-1)
print(tokenizer.decode(words[inputs["input_ids"] == tokenizer.mask_token_id]))
```

```bash
unitk convert --from hf . --to unitk ../model
unitk generate --checkpoint ../model --infill "{text}"
```
"""

READS = """\
{says} every token sees both sides. The states of a text:

```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")  # this folder, or its name on the hub
model = AutoModel.from_pretrained(".")
states = model(**tokenizer("{text}", return_tensors="pt")).last_hidden_state
```

It writes under a mask that `generate` of transformers does not have; unitk has it.{more}

```bash
unitk convert --from hf . --to unitk ../model
unitk generate --checkpoint ../model --input texts.txt
```
"""
RELEASED = """\
transformers has no class of a {name}. Put the code of its release into {folder}, and the `auto_map`
of that release's config.json:

```python
from transformers import {model}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{path}")
model = {model}.from_pretrained("{path}", trust_remote_code=True)
```
"""
PLUGIN = """\
The objective `{name}` is a plug-in: both commands of unitk also need `--user-dir DIR`, the folder
of its file.
"""
CONTINUES = " `unitk convert --task lm` writes a folder that continues texts there."


def type_of(parts: Loaded) -> str:
    """The model type of transformers that a model leaves as."""
    arch = parts.config.get("arch", "")
    task = parts.task
    return kind_of(parts.model.config, arch, task.head, sight_of(task))


def sight_of(task: Task) -> str:
    """How a task's model reads a text: from both sides, or from left to right."""
    return ONE_WAY if task.reading([np.zeros(2, np.int64)]).now.any() else BOTH


def check_sight(task: Task, family: Family) -> None:
    """Refuse a task whose models see a text otherwise than the family's: one way or both ways.

    Logs a warning where the family's model gives the logits of a token at another slot.
    """
    sights = family.sights
    sight = sight_of(task)
    require(
        sight in sights,
        f"--to hf: transformers' {family.name} reads texts from {sights[0]}, but task {task.name} "
        f"from {sight}",
    )
    if isinstance(task, MLM) and task.config.shift:
        log.warning("the exported model has the logits of token i at token i - 1 (--task.shift)")


def usage(parts: Loaded) -> str:
    """How to use a model that the usual lines do not open, or not as what it is."""
    lines = explain_release(parts, "this folder", ".") or _explain_sight(parts)
    if type(parts.task).__module__.startswith(registry.PLUGIN):
        lines = lines or how_to(pipeline_tag(parts), parts.task)
        lines = f"{lines.rstrip()}\n\n{PLUGIN.format(name=parts.task.name)}"
    return lines


def explain_release(parts: Loaded, folder: str, path: str) -> str:
    """How a model of a family that transformers lacks is opened there; "" for any other."""
    family: Family = registry.get(MODEL_TYPE, type_of(parts))
    if not family.released:
        return ""
    ending = class_of(family, parts.model.config).removeprefix(family.name)
    model = f"AutoModel{ending.removesuffix('Model')}"
    name = family.about.partition(",")[0]
    return RELEASED.format(name=name, folder=folder, path=path, model=model)


def _explain_sight(parts: Loaded) -> str:
    """How to use a model that sees both sides although its class, or its task, does not say so."""
    config = parts.model.config
    task = parts.task
    family: Family = registry.get(MODEL_TYPE, type_of(parts))
    encodes = family.task == "mlm" and task.protocol is not None
    if not (family.both_ways or encodes) or sight_of(task) == ONE_WAY or task.head:
        return ""
    mask = task.vocab.pieces([task.vocab.mask])[0]
    shift = ".roll(1, 1)" if isinstance(task, MLM) and task.config.shift else ""
    opens = "`config.json` says `{}: {}`, so"
    opens = opens.format(*map(json.dumps, next(iter(family.opens(config).items()))))
    says = f"In transformers, a {family.name} is an encoder:" if encodes else opens
    if task.protocol is not None:
        continues = CONTINUES if parts.reader is not None else ""
        return READS.format(says=says, text="The cat sat on the mat.", more=continues)
    return USAGE.format(says=says, text=f"The cat {mask} on the mat.", shift=shift)


def tag(parts: Loaded) -> str:
    """The hub's name for a model that sees both sides although its class does not say so."""
    if not _explain_sight(parts):
        return ""
    return "feature-extraction" if parts.task.protocol else "fill-mask"
