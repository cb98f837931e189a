"""The options of `unitk evaluate`: those of all registered evaluations, and which one is meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from unitk import registry
from unitk.data.files.files import ReadingOptions
from unitk.errors import require
from unitk.evaluation.base import CorpusEvaluation, Evaluation, TextEvaluation
from unitk.options.config import Parsed
from unitk.options.fields import Checked, Option, flag, options


def evaluations() -> dict[str, type[Evaluation]]:
    """The registered evaluations by name: those of files, then those of --data."""
    kinds = {name: registry.get("evaluation", name) for name in registry.names("evaluation")}
    return dict(sorted(kinds.items(), key=lambda pair: not of_files(pair[1])))


def of_files(kind: type[Evaluation]) -> bool:
    """Whether the option of its name takes the place of --data."""
    return issubclass(kind, TextEvaluation) and not kind.on_corpus


def names_of(kind: type) -> list[str]:
    """The names of its options."""
    return [option.name for option in options(kind)]


def with_evaluations(main: type) -> type:
    """The options of `main`, and after --data those of each evaluation; shared ones come last.

    The docstring of an evaluation is the help of the option that names its files.
    """

    def keep_default(option: Option) -> tuple[Any, Any]:
        kind = Annotated[option.type, *option.marks] if option.marks else option.type
        return kind, field(default=option.default, metadata={"owner": option.owner})

    kinds = evaluations()
    # an option that several evaluations have is one option, with one meaning
    count = Counter(option.name for kind in kinds.values() for option in options(kind))
    single = dict[str, tuple[Any, Any]]()
    shared = dict[str, tuple[Any, Any]]()
    for name, kind in kinds.items():
        if of_files(kind):
            about = " ".join((kind.__doc__ or "").split())
            single[name] = Path | None, field(default=None, metadata={"help": about})
        for option in options(kind):
            (single if count[option.name] == 1 else shared)[option.name] = keep_default(option)
    inherited = names_of(ReadingOptions)
    plain = {o.name: keep_default(o) for o in options(main) if o.name not in inherited}
    ordered = {name: plain[name] for name in ("checkpoint", "data")} | single | shared | plain

    # what no evaluation can mean is refused at once, whichever is asked for
    def check(chosen: Any) -> None:
        Checked.__post_init__(chosen)
        for kind in kinds.values():
            kind.of(chosen)

    return make_dataclass(
        main.__name__,
        [(name, kind, default) for name, (kind, default) in ordered.items()],
        bases=(ReadingOptions,),
        namespace={"__doc__": main.__doc__, "__post_init__": check},
        frozen=True,
        kw_only=True,
    )


def choose_evaluations(parsed: Parsed) -> dict[str, type[Evaluation]]:
    """The evaluation that the options ask for, by name; of a model on --data, all that may fit it.

    Options that have an effect with others only are refused.
    """
    kinds = evaluations()
    of_models = [name for name, kind in kinds.items() if issubclass(kind, CorpusEvaluation)]
    named = _name_evaluations(parsed.main, kinds, of_models)
    if parsed.main.data is None:
        parsed.idle("without --data", *names_of(ReadingOptions))
    taken = {*named, *(option for name in named for option in names_of(kinds[name]))}
    for option in chain.from_iterable(map(names_of, kinds.values())):
        if option not in taken:
            owners = (name for name, kind in kinds.items() if option in names_of(kind))
            on_data = (option, *of_models)
            needed = [*dict.fromkeys("data" if name in on_data else name for name in owners)]
            # where --data is given, it is no cure
            cured = needed[-1] != "data" or parsed.main.data is None
            parsed.idle(f"without {either(needed)}" if cured else f"with {flag(named[0])}", option)
    return {name: kinds[name] for name in named}


def _name_evaluations(
    chosen: Any, kinds: Mapping[str, type[Evaluation]], of_models: list[str]
) -> list[str]:
    """The name of the evaluation that the options ask for; on --data alone, those of models."""
    sources = ["data", *(name for name, kind in kinds.items() if of_files(kind))]
    named = [name for name in sources if getattr(chosen, name) is not None]
    require(len(named) == 1, f"give one of {', '.join(map(flag, sources))}")
    if named != ["data"]:
        return named
    read = (name for name in kinds if name not in (*sources, *of_models))
    # of two that read --data, the second is refused as idle, as the first lacks its option
    named = [name for name in read if getattr(chosen, name) not in (None, False)]
    return named[:1] or of_models


def either(names: list[str]) -> str:
    """The flags of options as a message lists them: "--a, --b or --c"."""
    *others, last = map(flag, names)
    return " or ".join(filter(None, [", ".join(others), last]))
