"""`unitk list`: list tasks, architectures, models and more."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from unitk import pretrained, registry
from unitk.api.verb import verb
from unitk.errors import UsageError
from unitk.options import ready
from unitk.options.config import Parsed, UserDir
from unitk.registry import register

MODEL, CONFIG = "model", "config"  # no kinds of components: checkpoints, files of options


@dataclass(frozen=True, kw_only=True)
class Options:
    """List registered names (tasks, architectures and so on), bundled models and configurations.

    Heads, formats, model types of transformers, measures, drivers, estimators,
    checks and routes (addresses of the server) are listed only if KIND names
    them, because that imports torch.

    unitk list arch
    """

    kind: str | None = None
    """Kind to list: task, criterion, arch, optimizer, schedule, vocab, reader, corpus, annotator,
    linker, head, format, model_type, evaluation, measure, driver, estimator, check, route, hub,
    adapter, metric, tokenizer, model, config."""
    user_dir: UserDir = None


def value(parsed: Parsed) -> dict[str, dict[str, str]]:
    """Kind -> name -> what it stands for, in one line."""
    options = parsed.main
    kinds = [kind for kind in registry.KINDS if kind not in registry.UNLISTED] + [MODEL, CONFIG]
    chosen = {f"{kind}s": kind for kind in kinds}.get(options.kind, options.kind)
    if chosen is not None and chosen not in kinds:
        hint = registry.nearest(chosen, kinds)
        raise UsageError(f"--kind must be one of {', '.join(kinds)}, got {chosen!r}{hint}")
    quick = [kind for kind in kinds if kind not in registry.MODULES]  # which need no torch
    own = {MODEL: pretrained.names, CONFIG: ready.names}
    table = {}
    for kind in quick if chosen is None else [chosen]:
        names = own[kind]() if kind in own else registry.names(kind)
        table[kind] = {name: describe_name(kind, name) for name in names}
    return table


@register("verb", "list")
@verb(Options, words="kind", value=value, example='("arch")["arch"]')
def run(parsed: Parsed) -> None:
    """Print the table."""
    for kind, descriptions in value(parsed).items():
        print(kind)
        width = max(map(len, descriptions), default=0)
        for name, meaning in descriptions.items():
            print(f"  {name:<{width}} {meaning}")


def describe_name(kind: str, name: str) -> str:
    """A description of a name, in one line."""
    if kind in (MODEL, CONFIG):
        return (pretrained if kind == MODEL else ready).about(name)
    component = registry.get(kind, name)
    # a value, such as a format, says itself what it is
    text = getattr(component, "about", None) or inspect.getdoc(component) or ""
    return text.partition("\n")[0]
