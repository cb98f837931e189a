"""What the types of options exclude is refused at its ends, for everything that is registered."""

import math
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import pytest

from unitk import registry
from unitk.api.verb import VerbGroup, find_verb
from unitk.decoding.config import EmbedConfig, GenerateConfig, PredictConfig
from unitk.errors import UsageError
from unitk.optim.schedules import Constant
from unitk.options.config import With, build_config, parse
from unitk.options.fields import (
    Bound,
    Checked,
    Count,
    Option,
    Positive,
    Rate,
    Schedule,
    Share,
    Weights,
    options,
    parse_named,
    parse_value,
)
from unitk.options.settings import Origin, Settings
from unitk.serving.config import Limits
from unitk.training.config import TrainConfig

SHARED = {one.__name__: one() for one in (Limits, GenerateConfig, EmbedConfig, PredictConfig)}


def needed(option: Option) -> object:
    """Some value of an option without a default."""
    if get_origin(option.type) is tuple:
        return ("x", "y")
    if get_origin(option.type) is Literal:
        return get_args(option.type)[0]
    return Path("x") if option.type is Path else "x"


def verbs():
    """The options of every verb, with their defaults."""
    for name in registry.names("verb"):
        verb = find_verb(name)
        for own, one in (verb.verbs if isinstance(verb, VerbGroup) else {"": verb}).items():
            given = {o.name: needed(o) for o in options(one.options) if o.default is MISSING}
            length = {"max_steps": 1} if one.options is TrainConfig else {}
            yield f"{name} {own}".strip(), one.options(**given, **length)


def components():
    """Every config that is registered, with its defaults."""
    for kind in ("task", "arch", "criterion", "optimizer", "schedule"):
        for name in registry.names(kind):
            made_from = registry.get(kind, name)
            yield f"{kind} {name}", (made_from.Config if kind == "task" else made_from)()


def is_ruled(option: Option) -> bool:
    """Whether its type excludes values that are of the right kind."""
    chosen = get_origin(option.type) is Literal and issubclass(option.owner, Checked)
    return option.rule is not None or chosen


CONFIGS = {**SHARED, **dict(verbs()), **dict(components())}
RULED = [name for name, config in CONFIGS.items() if any(map(is_ruled, options(type(config))))]


def outside(bound: Bound, kind: type) -> list[float]:
    """Numbers just beyond the ends of a bound, which an option of this type can have."""
    step = 1 if kind is int else 1e-3
    low = bound.low if bound.above else bound.low - step
    high = bound.high if bound.below else bound.high + step
    # infinity is a float only
    beyond = math.isfinite(high) or (bound.below and kind is float)
    ends = [low, *([high] if beyond else [])]
    return [kind(end) for end in ends] + [math.nan] * (kind is float)


def inside(bound: Bound, kind: type) -> list[float]:
    """The first and the last number in a bound."""
    step = 1 if kind is int else 1e-3
    ends = bound.low + step * bound.above, bound.high - step * bound.below
    return [kind(end) for end in ends if math.isfinite(end)]


def shaped(option: Option, default: object, number: float) -> list[object]:
    """Values of the option that are or hold a number."""
    if get_origin(option.type) is tuple:
        size = len(default) if isinstance(default, tuple) and default else 1
        return [tuple([number] * size)]
    scheduled = Schedule in get_args(option.type)
    return [number, *([Constant(value=number)] if scheduled and math.isfinite(number) else [])]


def tried(option: Option, default: object) -> tuple[str, list[object], list[object]]:
    """What messages say of an option's rule, values that break it, and values that just do not."""
    if get_origin(option.type) is Literal:
        return "must be one of", ["x"], [*get_args(option.type)]
    if not isinstance(option.rule, Bound):
        return "needs a weight above 0", [tuple(0.0 for _ in default)], [default]
    numbers = {option.type, *get_args(option.type)} & {int, float}
    kind = float if float in numbers else int
    each = (ends(option.rule, kind) for ends in (outside, inside))
    wrong, right = ([v for n in some for v in shaped(option, default, n)] for some in each)
    return str(option.rule), wrong, right


@pytest.mark.parametrize("name", RULED)
def test_bounds_are_enforced_at_their_ends(name):
    """Beyond an end, the message names the option and its bound; at the end, no message does."""
    config = CONFIGS[name]
    for option in filter(is_ruled, options(type(config))):
        said, wrong, right = tried(option, getattr(config, option.name))
        spelt = option.name.rstrip("_").replace("_", "-")
        assert wrong
        for value in wrong:
            with pytest.raises(UsageError) as found:
                replace(config, **{option.name: value})
            assert said in str(found.value), (option.name, value)
            assert spelt in str(found.value).replace("_", "-")
        for value in right:
            try:
                replace(config, **{option.name: value})
            except UsageError as error:  # of several options together
                assert said not in str(error) or spelt not in str(error).replace("_", "-")


@pytest.mark.parametrize("verb", [name for name, _ in verbs()])
def test_an_option_that_a_verb_lacks_is_named(verb):
    name, *own = verb.split()
    with pytest.raises(UsageError, match="--no-such-thing: no such option"):
        find_verb(name)([*own, "--no-such-thing"])


def test_every_number_of_a_schedule_or_tuple_counts():
    @dataclass(frozen=True, kw_only=True)
    class Own(Checked):
        KIND = "task"
        share: Share = 0.5
        betas: tuple[Rate, Rate] = (0.9, 0.9)
        count: Positive | None = None
        weights: Weights = (1, 0, 0)
        way: Literal["a", "b"] = "a"

    assert Own(share=Constant(value=1.0), count=3).count == 3
    for wrong, message in {
        "share": (Constant(value=2.0), r"--task.share must be in \(0, 1\], got 2"),
        "betas": ((0.9, 1.0), r"--task.betas must be in \[0, 1\), got 0.9,1"),
        "count": (0, "--task.count must be at least 1, got 0"),
        "weights": ((1, -1, 0), "--task.weights needs a weight above 0 and none below, got 1,-1,0"),
        "way": ("c", "--task.way must be one of a, b, got c"),
    }.items():
        with pytest.raises(UsageError, match=message[1]):
            Own(**{wrong: message[0]})


def test_an_option_without_what_it_needs_has_no_effect():
    @dataclass(frozen=True, kw_only=True)
    class Own(Checked):
        groups: Positive = 1
        strength: Annotated[float, With("groups")] = 0.5
        metric: tuple[str, ...] = ("bleu",)
        lowercase: Annotated[bool, With("metric", ("bleu", "chrf"))] = False

    def parsed(*argv):
        return parse("test", Own, argv).main

    assert parsed("--groups", "2", "--strength", "1", "--lowercase").strength == 1
    with pytest.raises(UsageError, match="--strength has no effect without --groups"):
        parsed("--strength", "0.5")
    with pytest.raises(UsageError, match="--lowercase has no effect without --metric bleu or chrf"):
        parsed("--metric", "rouge", "--lowercase")


def test_a_default_of_a_subclass_keeps_the_bound():
    @dataclass(frozen=True, kw_only=True)
    class Base(Checked):
        size: Count = 1

    @dataclass(frozen=True, kw_only=True)
    class Derived(Base):
        size: int = 2

    with pytest.raises(UsageError, match="--size .*at least 0, got -1"):
        Derived(size=-1)


def test_a_plain_dataclass_is_checked_where_its_text_is_read():
    @dataclass(frozen=True, kw_only=True)
    class Plain:
        size: Positive = 1

    with pytest.raises(UsageError, match="--arch.size .*at least 1, got 0"):
        build_config(Plain, Settings.of_texts({"arch.size": "0"}, Origin.FLAG), "arch.")


def test_a_field_of_a_value_is_given_once():
    for name, text in (("schedule", "linear:warmup=1,warmup=2"), ("adapter", "lora:rank=2,rank=3")):
        with pytest.raises(UsageError, match="--x: (warmup|rank) is given twice"):
            parse_named(name, text, "--x")


@pytest.mark.parametrize("kind", [float, float | None, tuple[float, ...]])
def test_nan_is_no_value_of_any_option(kind):
    with pytest.raises(UsageError, match="--x .* number, got 'nan'"):
        parse_value("nan", kind, "--x")
