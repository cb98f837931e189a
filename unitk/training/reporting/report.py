"""The first and last log lines of a run, and the README of its folder."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from unitk import registry
from unitk.data.batching import Feed
from unitk.data.corpus.folders import CORPORA
from unitk.data.examples import Data
from unitk.errors import amount, printable
from unitk.files import VERSION
from unitk.kernels.products import computes_in_bf16
from unitk.optim.rates import RECIPE
from unitk.optim.schedules import Constant, Cyclical
from unitk.options.config import Parsed, flag
from unitk.options.settings import Origin, Settings
from unitk.training.config import CUT
from unitk.training.measures import values_line
from unitk.training.reporting.sinks import validation_at
from unitk.training.run import Run
from unitk.training.saving.state import Progress

SHOWN = 400
"""Characters of a source that a README shows at most."""
LONG = 60.0
"""Seconds of training that are worth an announcement."""
SMALL = 50e6
"""Parameters below which a GPU computes an update sooner than Python asks for it."""


def first_lines(run: Run) -> list[str]:
    """The first log lines: what is trained, on which data and device."""
    start = run.start
    data = start.data
    feed = run.feed
    ranks = run.ranks
    parts = start.parsed.components
    slots = f"{feed.batch_tokens:,} slots"
    texts = amount(feed.batch_texts or 0, "texts")
    examples = round(_per_epoch(feed))
    weights = _num_weights(run.model)
    trained = _num_weights(run.model, trained=True)
    of_them = f", {trained / 1e6:.2f} M of them trained" if trained < weights else ""
    # a share that never changes is a number, as it was given
    named = start.parsed.settings["task"].text
    tasks = re.sub(r"=constant:value=(\S+?),warmup=0\.0", r"=\1", named)
    valid = [f"{name}: {source.about}" for name, source in data.valid.items()]
    processes = f"{ranks.world} processes, each " if ranks.world > 1 else ""
    return [
        f"{data.about} with task {tasks}, {start.beginning}",
        *start.beginning.changed,
        f"train: {data.train.about}; an epoch is {amount(examples, 'examples')},"
        f" {amount(run.per_epoch, 'updates')} of {texts if feed.batch_texts else slots}",
        *(valid or ["valid: none (--valid)"]),
        f"model: {parts['arch'].name}, {weights / 1e6:.1f} M parameters{of_them},"
        f" vocabulary of {len(data.vocab):,}",
        *_defaults(start.parsed.settings),
        f"{processes}on {run.device.type} (threads: {torch.get_num_threads()}), {run.precision}",
    ]


def faster(run: Run) -> Iterator[str]:
    """Options that would make a run several times as fast."""
    small = _num_weights(run.model) < SMALL and len(run.model.config.towers) == 1
    if run.device.type == "cuda" and run.plan.skips and small and not run.config.static:
        yield (
            "this GPU waits for Python with a model this small: "
            "--static --capture --compile is several times as fast"
        )


def _defaults(settings: Settings) -> Iterator[str]:
    """The default values of the options that matter most for learning, in one line."""
    names = "arch", "optimizer", "lr", "lr_schedule"
    left = {name: settings[name] for name in names if settings[name].origin <= Origin.TASK}
    left |= {name: setting for name, setting in settings.items() if setting.where == RECIPE}
    if left:
        values = (f"{flag(name)} {setting.text}" for name, setting in left.items())
        yield f"defaults: {' '.join(values)}"


def _num_weights(model: nn.Module, trained: bool = False) -> int:
    """The number of weights in all parameters, or in those that are `trained`."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trained)


def warnings(run: Run) -> Iterator[str]:
    """Warnings about data and options that are probably a mistake."""
    data = run.start.data
    feed = run.feed
    parsed = run.start.parsed
    end = run.total
    if run.precision == "bf16" and not computes_in_bf16(run.device):
        # nine times, measured on a CPU with AVX2 alone
        yield (
            "--precision bf16: this processor does not multiply in bf16; "
            "--precision fp32 is several times as fast"
        )
    yield from _unread(parsed, data)
    if data.task.predicts:
        yield from registry.get("measure", "head_layers")(data.task, parsed)
    for name, source in {"train": data.train, **data.valid}.items():
        if source.shortened:
            yield f"{name}: {source.shortened}"
        bounds = source.bounds(0)
        limit = run.start.config.max_tokens
        if long := int((bounds > limit).sum()):
            yield (
                f"{name}: {amount(long, 'texts')} above --max-tokens {limit:,}: "
                f"each is a micro-batch alone, of up to {bounds.max():,} slots"
            )
    values = {flag(key): value for key, (_, value) in parsed.fields().items()}
    values |= {f"--task {name}": task.share for name, task in parsed.mixture.items()}
    for name, value in values.items():
        if end and isinstance(value, Constant) and value.warmup > end:
            yield (
                f"{name}: the warm-up of {value.warmup:,.0f} updates is longer than the run, "
                f"{end:,}"
            )
        if end and isinstance(value, Cyclical):
            if not any(value(step, end) for step in range(1, end + 1)):
                yield f"{name} is 0 in a run of {amount(end, 'updates')}: {value.cycles:g} cycles"
    texts = _per_epoch(feed) / run.per_epoch
    if texts < 2 < run.per_epoch and not feed.batch_texts:
        yield (
            f"--batch-tokens {feed.batch_tokens:,} counts slots: "
            f"an update has {texts:.1f} texts on average"
        )


def _unread(parsed: Parsed, data: Data) -> Iterator[str]:
    """The options that were given, as flags, and that nothing reads with these data."""
    others = CUT[2:] if data.kind == "text" else CUT[:2]  # those of records, or of texts
    idle = dict.fromkeys(others, f"on {CORPORA[data.kind].noun}")
    if not data.valid:
        idle |= dict.fromkeys(("valid_every", "valid_texts", "keep_best"), "without --valid")
    for name, why in idle.items():
        if parsed.settings.given(name, Origin.FLAG):
            yield f"{flag(name)} has no effect {why}"


def _per_epoch(feed: Feed) -> float:
    """The examples of the first epoch, with the weights applied."""
    examples = feed.examples
    return float(np.broadcast_to(examples.weights(0), len(examples.bounds(0))).sum())


def train_line(run: Run, values: Mapping[str, float]) -> str:
    """The values of the last updates, and the time that is left as far as it is known."""
    line = f"{values_line('train', values)}  lr {run.plan.rate:.2e}  gnorm {run.norm:.3g}"
    line += f"  {values['tokens/s']:,.0f} tokens/s  data {values['wait']:.1%}"
    left = seconds_left(run)
    return line if left is None else f"{line}  eta {clock(left)}"


def seconds_left(run: Run) -> float | None:
    """Seconds until the last update at the speed of the last ones; None if that is not known."""
    if not run.total:
        return None
    at = run.progress.step
    interval = run.start.config.valid_every
    validations = -(-run.total // interval) - at // interval
    left = (run.total - at) * run.speed.busy / run.speed.updates
    return left + validations * run.validation_seconds


def early_lines(run: Run) -> tuple[str, str]:
    """The values since the last event, which is not due yet; and how long a long run will take."""
    left = seconds_left(run)
    # the slots are those of this rank
    values = run.means.values("train", run.means.weights) | run.speed.values()
    time = f"{duration_text(left)} to go at {values['tokens/s']:,.0f} tokens/s" if left else ""
    return train_line(run, values), time if left and left >= LONG else ""


def duration_text(seconds: float) -> str:
    """A time in words, to two digits: `about 40 minutes`, `about 4.2 hours`, `about 3.5 days`."""
    for size, unit in ((86400, "days"), (3600, "hours")):
        if seconds >= 2 * size:
            return f"about {float(f'{seconds / size:.2g}'):g} {unit}"
    minutes = max(1, round(seconds / 60))
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"


def last_lines(run: Run) -> list[str]:
    """The last log lines: how time was spent, and how noisy gradients were, if measured."""
    spent = run.spent  # of this process, not of those before a resume
    at = run.progress
    lines = []
    if spent.updates:
        values = spent.values()
        speed = f"{values['tokens/s']:,.0f} tokens/s in updates ({clock(spent.busy)})"
        waits = f"{values['wait']:.1%} of that waiting for data"
        lines.append(f"{speed}, {waits}; {values['padding']:.1%} of the slots were pads")
    if scale := run.noise.scale:
        about = f"gradient noise scale about {float(f'{scale:.2g}'):,g} texts"
        lines.append(f"{about}; an update has {at.texts / at.step:,.0f}")
    if run.last and at.step:
        links = {name: run.start.run.path / name for name in ("last", "best")}
        where = (f"{name} {link.resolve()}" for name, link in links.items() if link.exists())
        lines.append(f"{run.last}; checkpoint {', '.join(where) or 'none'}")
    return lines


def validation_scores(run: Run) -> str:
    """The values of every validation set at the best validation, as a table; "" before one."""
    best = run.progress.best_step
    values = validation_at(run.start.run.path, best).items()
    rows = [f"| {name} | {value:.6g} |" for name, value in values if value is not None]
    if not rows:
        return ""
    head = f"## Scores at step {best}, the best validation\n\n| metric | value |\n| --- | --- |"
    return "\n".join([head, *rows, "", ""])


def samples(run: Run) -> str:
    """Outputs of the model for sources of a validation set, in Markdown; "" if there are none."""
    if not run.samples:
        return ""
    lines = [f"## What it writes at step {run.sampled:,}", ""]
    for sample in run.samples:
        source, target, output = (" ".join(printable(text).split()) for text in sample)
        source = source if len(source) <= SHOWN else f"{source[:SHOWN].rsplit(' ', 1)[0]} ..."
        lines += [f"> {source}", ">", f"> wanted: {target}", ">", f"> written: **{output}**", ""]
    return "\n".join([*lines, ""])


def anonymous(run: Run, text: str) -> str:
    """A text with the names of folders instead of their paths on this machine."""
    config = run.config
    start = run.start
    begun = start.beginning
    given = filter(None, [begun.init_from, begun.resumed, *begun.init_towers.values()])
    # of a run's checkpoint the run's name is kept
    named: list[Path | None] = [
        path.parents[1] if path.parent.name == "checkpoints" else path for path in given
    ]
    named += [config.save_dir, start.run.path, config.user_dir, config.config, config.init_from]
    named += [path for path, _ in config.weighted_data] + [path for _, path in config.named_valid]
    paths = [path for path in named if path is not None]
    known = {*paths, *(path.resolve() for path in paths)}
    for path in sorted(known, key=lambda path: len(str(path)), reverse=True):
        if path.is_absolute():
            text = text.replace(str(path), path.name)
    return text


def readme(run: Run) -> str:
    """README.md of a run folder: what the run is, and how to resume it."""
    start, at = run.start, run.progress
    folder = start.run.remote or start.run.path
    done = [summary(at), *last_lines(run)] if at.step else ["nothing is trained yet"]
    rows = "\n".join(
        f"| `{flag(key)}` | {setting.text} | {setting.where} |"
        for key, setting in start.parsed.settings.items()
        if setting.origin not in (Origin.DEFAULT, Origin.PRESET)
    )
    # pasted into a shell as it stands, beside the folder if that was given by its whole path
    named = folder.resolve() if folder.name in ("", "..") else folder
    quoted = shlex.quote(str(named.name if named.is_absolute() else named))
    user_dir = start.config.user_dir
    plugins = f" --user-dir {shlex.quote(str(user_dir))}" if user_dir else ""
    text = f"""# {folder.resolve().name}

{chr(10).join(f"- {line}" for line in first_lines(run))}

{chr(10).join(f"- {line}" for line in done)}

Licence of the model: not stated. The licences of the training data may restrict its use.

{validation_scores(run)}{samples(run)}## Options

| option | value | from |
| --- | --- | --- |
{rows}

All options are in `config.yaml`, all values in `log.jsonl`. To continue, to look at it, to use it:

```bash
unitk train --resume --save-dir {quoted}{plugins}
unitk plot {quoted}
{use(run).format(f"{quoted}{plugins}")}
```

`unitk convert --to hf --license NAME --scores FILE` writes a card with licence and test scores.

{platform.machine()}, Python {platform.python_version()},
torch {torch.__version__}, unitk {VERSION}.
Data {start.data.fingerprint[:12]}, vocabulary {start.data.vocab.hash[:12]}.
"""
    return anonymous(run, text)


def use(run: Run) -> str:
    """A command that uses the model, with {} for the checkpoint; generating tasks come first."""
    start = run.start
    named = start.parsed.mixture
    if start.data.task.form:
        return "unitk predict --checkpoint {} --input FILE"
    vocab = start.data.vocab
    tasks = [c.made_from(c.config, vocab) for c in named.values()] or [start.data.task]
    ways = {
        "--input FILE": [task for task in tasks if task.generates],
        "--infill TEXT": [task for task in tasks if task.infills],
    }
    for words, able in ways.items():
        if able:
            chosen = f" --task {able[0].name}" if named else ""
            return f"unitk generate --checkpoint {{}}{chosen} {words}"
    return "unitk evaluate --checkpoint {} --data DIR"


def best_so_far(at: Progress) -> str:
    """The best validation so far, as a phrase."""
    if at.best is None:
        return "none was finite"
    return "best yet" if at.stale == 0 else f"best {at.best:.4g} at step {at.best_step:,}"


def summary(at: Progress) -> str:
    """The progress as a sentence."""
    best = f"; best {at.best:.4g} at step {at.best_step:,}" if at.best is not None else ""
    bad = f", {at.bad_steps:,} skipped" if at.bad_steps else ""
    words = f" ({at.words:,} words)" if at.words else ""
    texts = amount(at.texts, "texts")
    return (
        f"{amount(at.step, 'updates')}{bad}, {at.tokens:,} tokens of {texts}{words}"
        f" in {clock(at.seconds)}{best}"
    )


def clock(seconds: float) -> str:
    """`h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
