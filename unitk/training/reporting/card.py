"""The model card of an exported model: how it was trained, its scores and its licence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unitk.errors import UsageError, printable
from unitk.files import VERSION
from unitk.foreign import read_json
from unitk.training.reporting.report import summary
from unitk.training.saving.folder import holds_checkpoint
from unitk.training.saving.state import Progress, read_state

if TYPE_CHECKING:
    from unitk.tasks.base import Task
    from unitk.training.saving.checkpoint import Loaded

PATHS = (
    "data valid save_dir config user_dir init_from init_encoder init_decoder task.source_vocab"
).split()
"""Options with folders of the machine, which say nothing elsewhere."""
HF = "transformers"
CLASSES = {
    "text-generation": "AutoModelForCausalLM",
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "fill-mask": "AutoModelForMaskedLM",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
}
"""The hub's name for a kind of model -> the class of transformers that opens it."""
DOES = {
    "text-generation": "continues texts",
    "text2text-generation": "writes a text from a source",
    "fill-mask": "fills in hidden words",
    "text-classification": "labels texts",
    "token-classification": "tags words",
    "question-answering": "finds answers in passages",
    "multiple-choice": "chooses between texts",
    "feature-extraction": "turns texts into vectors",
    "sentence-similarity": "turns texts into vectors that can be compared",
}
"""The hub's name for a kind of model -> a description of what such a model does."""
WRITES = "writes texts with unitk, and whose states transformers reads"
HEADS = dict.fromkeys(("class", "classes", "regress"), "text-classification")
HEADS |= {"tag": "token-classification", "span": "question-answering", "choice": "multiple-choice"}
USE = """```python
from transformers import {model}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")  # this folder, or its name on the hub
model = {model}.from_pretrained(".")
inputs = tokenizer({text}, return_tensors="pt")
print({shown})
```

```bash
unitk convert --from hf . --to unitk ../model
unitk {verb} --checkpoint ../model {given}
```"""


@dataclass(frozen=True)
class About:
    """The entries of a card that are not in a checkpoint."""

    license: str = ""
    languages: Sequence[str] = ()
    datasets: Sequence[str] = ()
    scores: Sequence[Path] = ()
    """Files of figures that `unitk evaluate` and `unitk score` print as json."""


def card(
    path: Path, loaded: Loaded, about: About, usage: str = "", tag: str = "", library: str = HF
) -> str:
    """The card of a checkpoint, in Markdown with the front matter that the Hugging Face hub reads.

    It leads with what the model does and how it is used. Data and scores follow, and the options
    are at the end. `usage` says in Markdown how it is used, `tag` what the hub calls it, where
    the name of its class does not; `library` opens it.
    """
    state = holds_checkpoint(read_state)(path)
    config = state["config"]
    at = Progress.of(state)
    task = loaded.task
    name = printable(path.resolve().name)
    tag = tag or pipeline_tag(loaded)
    tasks = [part.partition("=")[0] for part in config["task"].split()]
    front = {"library_name": library, "pipeline_tag": tag, "license": about.license}
    tags = {"language": about.languages, "datasets": about.datasets, "tags": ["unitk", *tasks]}
    weights = sum(weight.numel() for weight in loaded.model.parameters())
    what = f"A model of {weights / 1e6:.1f} M parameters that {describe_use(tag, task)}"
    by = f"objective{'s' * (len(tasks) > 1)} {' and '.join(f'`{task}`' for task in tasks)}"
    size = f"architecture `{config['arch']}`, vocabulary of {len(task.vocab):,} tokens"
    unstated = "not stated. The training data may restrict the use of the model"
    trained = (
        f"{summary(at)}." if at.step else "The weights were imported, and not trained further."
    )
    scores = "".join(f"{line}\n" for line in _scores(about.scores))
    return f"""\
---
{_front_matter(front | tags)}
---

# {name}

{what}: {by}, {size}, unitk {VERSION}.

## How to use it

{usage.rstrip() or how_to(tag, task)}

## Data and languages

Languages: {", ".join(about.languages) or "not stated"}. \
Data: {", ".join(about.datasets) or "not stated"}.

Licence: {about.license or unstated}.

{scores}## Training

{trained}

<details><summary>All options</summary>

| option | value |
| --- | --- |
{_options(config)}

</details>
"""


def _front_matter(entries: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in entries.items() if value)


def _options(config: Mapping[str, str]) -> str:
    shown = {key: value for key, value in config.items() if key not in PATHS and value != "none"}
    return "\n".join(f"| `{_cell(key)}` | {_cell(value)} |" for key, value in shown.items())


def describe_use(tag: str, task: Task) -> str:
    """What a model does, which the hub calls `tag`."""
    if tag == "feature-extraction" and task.generates:
        return WRITES
    answers = tag == "text-generation" and task.trained.pairs
    return DOES["text2text-generation" if answers else tag]


def pipeline_tag(loaded: Loaded) -> str:
    """The hub's name for the kind of a model."""
    if loaded.task.head:
        kind, *_ = re.split("[:_]", loaded.task.head)  # as in class_mean:label
        return HEADS.get(kind, "feature-extraction")
    if loaded.task.protocol is None:
        return "fill-mask"
    return "text2text-generation" if len(loaded.model.towers) > 1 else "text-generation"


def how_to(tag: str, task: Task) -> str:
    """The model in transformers and in unitk."""
    model = CLASSES.get(tag, "AutoModel")
    text = '"A text."'
    verb, shown = "embed", "model(**inputs)"
    if tag in ("text-generation", "text2text-generation"):
        verb, shown = "generate", "tokenizer.decode(model.generate(**inputs)[0])"
    elif tag == "fill-mask":
        mask = task.vocab.pieces([task.vocab.mask])[0]
        verb = "generate"
        text = f'"The cat {mask} on the mat."'
    elif task.predicts:
        verb = "predict"
    arguments = f"--infill {text}" if tag == "fill-mask" else text
    return USE.format(model=model, text=text, shown=shown, verb=verb, given=arguments)


def _scores(files: Sequence[Path]) -> Iterator[str]:
    if files:
        yield from ("## Scores", "", "| scores | metric | value |", "| --- | --- | --- |")
    for file in files:
        contents = read_json(file, UsageError)
        of = contents.get("data", file.stem)
        for name, value in _numbers(contents):
            yield f"| {_cell(of)} | {_cell(name)} | {value:.6g} |"
    if files:
        yield ""


def _cell(value: object) -> str:
    """A name or a value as one cell of a table, whatever is in it."""
    return printable(value).replace("|", "\\|")


def _numbers(contents: Mapping[str, Any], owner: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a JSON object; those of inner objects under both names."""
    for name, value in contents.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{owner}{name}/")
        elif isinstance(value, int | float):
            yield owner + name, value
