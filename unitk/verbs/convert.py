"""`unitk convert`: convert checkpoints from and to other systems."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unitk import pretrained, registry
from unitk.api.verb import verb
from unitk.decoding.files.defaults import read_defaults, write_defaults
from unitk.errors import CheckpointError, print_note, require
from unitk.files import create, new_folder
from unitk.options import config
from unitk.options.config import UserDir
from unitk.options.settings import HELP, Settings, read_flags
from unitk.registry import register
from unitk.training.saving.folder import find_checkpoint, hold_checkpoint

if TYPE_CHECKING:
    from unitk.training.saving.checkpoint import Loaded

EXAMPLE = '(from_=["unitk", "runs/lm"], to=["hf", "exported/lm"])'
OURS = "unitk"
PUSH = """#!/bin/sh
# Uploads all revisions to one model repository: sh push.sh USER/MODEL
# (before: pip install huggingface_hub; hf auth login)
set -eu
cd "$(dirname "$0")"
hf upload "$1" main . --private
for revision in {}; do
  hf upload "$1" "$revision" . --revision "$revision"
done
"""
CARD = ("revisions", "license", "language", "dataset", "scores")
"""Options of model cards, which no format takes itself."""
FOR_FORMATS = (*CARD, "dtype", "pool", "specials", "normalize")
"""Options that have an effect with some formats only."""
WORDS = re.compile(r"words_(\d+[kM]?)")
"""A link of --save-at-words; nothing else in a run folder names a revision."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Convert a checkpoint of another system to unitk (--from FORMAT PATH --to unitk DIR), or a
    model of unitk to another system (--from unitk DIR --to FORMAT DIR). --from unitk DIR --to unitk
    DIR joins the files of --save-shards, and an adapter with its base. Formats: hf (transformers;
    `unitk list model_type` names the models), unilm, glm, mass (for translation mass_xlm), fairseq,
    optimus, diffusion (MDLM, BD3-LM, LLaDA), electra_pair (both networks), peft (adapters); to read
    only, elmo, thu_ernie, ulmfit; to write only, gguf (llama.cpp: causal models),
    sentence-transformers (vectors of texts), ctranslate2 (BART, T5, GPT-2, BERT) and onnx
    (encoders). --task NAME, --task.FIELD and --arch.FIELD override the checkpoint.
    --arch.max-positions 1024 repeats the rows of a position table. With --from unitk, --task NAME
    chooses one of mixed tasks.

    unitk convert --from hf bert-base-uncased --to unitk models/bert
    unitk convert --from hf hf:Qwen/Qwen3-0.6B --to unitk models/qwen3
    unitk convert --from unitk runs/lm --to hf exported/lm
    """

    from_: tuple[str, str]
    """FORMAT and PATH to read. Format unitk: a run folder or a checkpoint."""
    to: tuple[str, str]
    """FORMAT and DIR to write. The folder must be empty or absent."""
    revisions: bool = False
    """Write a folder for each checkpoint of --save-at-words (chck_1M and so on), one called main,
    and push.sh, which uploads them as revisions of one model repository."""
    license: str = ""
    """Licence of the model for its card, such as mit or cc-by-sa-4.0."""
    language: tuple[str, ...] = ()
    """Languages of the model for its card, such as en."""
    dataset: tuple[str, ...] = ()
    """What it was trained on for its card: names on the hub, or in words."""
    scores: tuple[Path, ...] = ()
    """Files with scores for the card, which `unitk evaluate` and `unitk score` print with
    --output-format json."""
    dtype: Literal["f32", "f16", "q8_0"] = "f16"
    """--to gguf: type of the matrices. q8_0: 8 bits, with a scale for every 32 of a row."""
    pool: Literal["auto", "mean", "first", "last"] = "auto"
    """--to sentence-transformers: how states become a vector, as in `unitk embed`."""
    specials: bool = False
    """--to sentence-transformers: include special symbols in the mean."""
    normalize: bool = False
    """--to sentence-transformers: divide vectors by their length."""
    vocab: Path | None = None
    """Vocabulary of a checkpoint that has none beside it (vocab.txt, tokenizer.json and others)."""
    user_dir: UserDir = None


def convert(argv: Sequence[str]) -> tuple[Path, str]:
    """Read, convert, and write a folder that is complete or absent.

    Returns the folder, and a line about what is in it.
    """
    if not set(HELP).isdisjoint(argv):
        config.parse("convert", Options, ["--help"])
    flags = read_flags(argv, Options)
    # those of task and architecture are resolved beside what the checkpoint says
    inner = flags.only("task", "arch")
    sides = {name: flags[name].words for name in ("from_", "to") if name in flags}
    for name, words in sides.items():
        other = next((sides[side] for side in sides if side != name), ())
        form = "hf" if OURS in other else OURS  # one of both is unitk
        named = words[0] if words[0] not in (None, form) else "PATH"
        shown = f"--{name.strip('_')}"
        takes_both = f"{shown} takes a format and a path: {shown} {form} {named}"
        require("," in ",".join(filter(None, words)), takes_both)
    options: Options = config.resolve(Options, flags.without(inner)).main
    registry.load_plugins(options.user_dir)
    (source, path), (target, dest) = options.from_, options.to
    require(OURS in (source, target), "one of --from and --to is unitk")
    format = None if target == OURS else find_format(target, "--to", "write")
    takes = list[str]()
    if format is not None:
        takes += format.options
        takes += CARD if format.usage else ()
    for name in FOR_FORMATS:
        require(name in takes or name not in flags, f"--{name} has no effect with --to {target}")
    is_name = re.fullmatch(r"[\w.+ -]*", options.license)
    require(is_name is not None, f"--license must be a name such as mit, got {options.license!r}")
    with new_folder(Path(dest), "--to", CheckpointError) as folder:
        if source == target:
            require(not inner, "task and architecture stay as they are with --from and --to unitk")
            outcome = join_parts(Path(path), folder)
        elif target == OURS:
            outcome = import_checkpoint(source, Path(path), options, inner, folder)
        else:
            for key, setting in inner.items():
                require(key == "task", f"{setting.where} has no effect with --from unitk")
            require(options.vocab is None, "--vocab has no effect with --from unitk")
            task = inner["task"].text if inner else None
            leave = export_revisions if options.revisions else export_model
            outcome = f"{target}, {leave(Path(path), folder, options, task)}"
    return Path(dest), f"{dest}: {outcome}"


@register("verb", "convert")
@verb(Options, parses=True, value=lambda argv: convert(argv)[0], example=EXAMPLE)
def run(argv: Sequence[str]) -> None:
    """Write the folder, and say what is in it."""
    print_note(convert(argv)[1])


def find_format(name: str, option: str, does: str) -> Any:
    """A format by its name; an unknown one is answered with those that read or `write`."""
    known = [
        form for form in registry.names("format") if getattr(registry.get("format", form), does)
    ]
    return registry.get("format", name, option, known)


def outline(parts: Loaded) -> str:
    """What a model is, in a line."""
    weights = sum(weight.numel() for weight in parts.model.parameters())
    size = f"{weights / 1e6:,.1f} M parameters, vocabulary of {len(parts.task.vocab):,}"
    return f"task {parts.task.name}, {size}"


def join_parts(path: Path, folder: Path) -> str:
    """Write a checkpoint with whole files, and say which; processes or adapters divided it."""
    from unitk.training.average import mean, rewrite
    from unitk.training.saving.checkpoint import imported_rows

    with hold_checkpoint(path) as checkpoint:
        # the mean of one checkpoint is its weights, whole
        rewrite(checkpoint, folder, mean([checkpoint]), {}, bool(imported_rows(checkpoint)))
        write_defaults(folder, read_defaults(checkpoint))
        return f"all weights of {checkpoint} in one file"


def import_checkpoint(
    source: str, path: Path, options: Options, inner: Settings, folder: Path
) -> str:
    """Write another system's checkpoint as one of unitk, with options `inner`; its outline."""
    form = find_format(source, "--from", "find")
    parts = form.read(path, options.vocab, inner, f"--from {source}")
    user_dir = str(options.user_dir.resolve()) if options.user_dir else None
    form.save(parts, folder, (source, path), pretrained.fetched.get(str(path)), user_dir)
    form.carry(pretrained.locate(path, "files"), folder)
    return outline(parts)


def export_revisions(run: Path, folder: Path, options: Options, task: str | None) -> str:
    """Export a run's checkpoints at word counts, and its best or newest one; its outline."""
    find_checkpoint(run)  # its error says what there is instead
    steps: dict[str, int] = {}
    for link in sorted(run.glob("words_*")):
        name = WORDS.fullmatch(link.name)
        target = link.resolve().name
        if name and (step := re.fullmatch(r"step-(\d+)", target)):
            steps[name[1]] = int(step[1])
        else:
            log.warning("--revisions: %s is no link of --save-at-words; it is left out", link)
    require(steps, f"--revisions: {run} has no checkpoints of --save-at-words")
    counts = sorted(steps, key=steps.__getitem__)
    for count in counts:
        export_model(run / f"words_{count}", folder / f"chck_{count}", options, task)
    outcome = export_model(run, folder / "main", options, task)
    create(folder / "push.sh", PUSH.format(shlex.join(f"chck_{count}" for count in counts)))
    return f"{outcome}: main and {len(counts)} revisions"


def export_model(path: Path, folder: Path, options: Options, task: str | None) -> str:
    """Write a model in another system's format, with a card for the hub; its outline."""
    from unitk.training.reporting.card import About, card
    from unitk.training.saving.checkpoint import load

    target = options.to[0]
    format = registry.get("format", target)
    require(format.write is not None, f"--to {target}: unitk only reads this format")
    folder.mkdir(exist_ok=True)
    loaded = load(path, task_name=task)
    require(
        not loaded.model.config.sequential,
        f"{path} is a recurrent network, for which --to {target} has no place",
    )
    # as long as it is not trained, what was added to the tables of that system means nothing
    own = {name: getattr(options, name) for name in format.options}
    format.write(replace(loaded, decoding=read_defaults(path)), folder, **own)
    format.carry(pretrained.locate(path), folder)
    if format.usage is not None:
        about = About(options.license, options.language, options.dataset, options.scores)
        shown = format.usage(loaded), format.tag(loaded), format.library
        create(folder / "README.md", card(path, loaded, about, *shown))
    return outline(loaded)
