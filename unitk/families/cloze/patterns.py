"""Patterns and verbalizers of cloze questions: YAML, a file for each data set (`sets/`).

    fields: [premise, hypothesis]                  # the parts of a text, in this order
    answers: {entailment: "Yes", neutral: "Maybe"} # label -> what it puts into the blank
    patterns:                                      # numbered from 0; [M] is the blank
      - '"{hypothesis:bare}" ? [M], "{premise}"'
      - text: "{premise} question: {hypothesis:bare} True or False? answer: [M]"
        answers: {entailment: "true", ...}         # instead of those above

`{x:bare}` is the field x without its final punctuation, `{x:lower}` has a small first letter, and
`{x:bare,lower}` has both changes. If every text brings its own answers, the second of the `fields`
is `choices`, which stands for several parts. `answers: "{choice}"` then makes an answer of each of
them, and a pattern may contain {choice1} and {choice2}. `words: {question: {cause: because}}`
replaces a field that equals one of these words. `blank: "@placeholder"` says which text in a field
is the blank.

Schick and Schuetze 2021, arXiv 2001.07676, section 3.1, call them patterns and verbalizers.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unitk.errors import UsageError, require
from unitk.foreign import YamlText, parse_yaml
from unitk.registry import nearest

SETS = Path(__file__).parent / "sets"
BLANK, MARK, CHOICES = "[M]", "\0", "choices"
KEYS = {"fields", "answers", "patterns", "words", "blank"}
FILTERS = {
    "bare": lambda text: text.rstrip(string.punctuation + " "),
    "lower": lambda text: text[:1].lower() + text[1:],
}


class Filled(string.Formatter):
    """A formatter that applies the filters of a pattern's fields."""

    def format_field(self, value: Any, spec: str) -> str:
        for name in filter(None, spec.split(",")):
            value = FILTERS[name](value)
        return str(value)


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern with its verbalizer: the template of a text, and the answers of labels."""

    path: Path
    text: YamlText
    fields: tuple[str, ...]
    answers: dict[YamlText, YamlText] | YamlText
    """Label -> answer; or the template that makes an answer of each choice."""
    words: dict[str, dict[str, str]]
    blank: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that have an answer; none if texts bring their own."""
        return tuple(map(str, self.answers)) if isinstance(self.answers, dict) else ()

    def values(self, parts: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The fields of a text by name, and its choices; missing parts are empty."""
        parts = [*parts, *[""] * (len(self.fields) - len(parts))]
        several = len(parts) - len(self.fields) + 1 if CHOICES in self.fields else 0
        choices = list(parts[1 : 1 + several])
        alone = [*parts[:1], *parts[1 + several :]]
        names = [name for name in self.fields if name != CHOICES]
        words = {n: self.words.get(n, {}).get(v, v) for n, v in zip(names, alone, strict=False)}
        if self.blank:
            words = {name: value.replace(self.blank, MARK, 1) for name, value in words.items()}
        numbered = {f"choice{i}": choice for i, choice in enumerate([*choices, "", ""], 1)}
        return numbered | words, choices

    def render(self, parts: Sequence[str]) -> tuple[str, str]:
        """The texts before and after the blank, which is at the end if no field contains it."""
        values, _ = self.values(parts)
        before, _, after = Filled().format(self.text.replace(BLANK, MARK), **values).partition(MARK)
        return before, after

    def candidates(self, parts: Sequence[str]) -> Sequence[str]:
        """The texts that may fill the blank: one for each label, or one for each choice."""
        if isinstance(self.answers, dict):
            return list(self.answers.values())
        _, choices = self.values(parts)
        return [Filled().format(self.answers, choice=choice) for choice in choices]

    def has_blank(self, parts: Sequence[str]) -> bool:
        """Whether one of the fields has the blank, if the pattern takes it from there."""
        return not self.blank or any(self.blank in part for part in parts)

    @property
    def place(self) -> str:
        """The file and line, for errors."""
        return f"{self.path}, line {self.text.line}"


def read_pattern(name: str, number: int) -> Pattern:
    """Read a pattern of a bundled data set by its name, or of a YAML file by its path."""
    known = sorted(path.stem for path in SETS.glob("*.yaml"))
    option = "--task.patterns"
    require(name, f"{option} is needed: {', '.join(known)}, or a YAML file")
    is_file = name.endswith((".yaml", ".yml"))
    if not is_file and name not in known:
        hint = nearest(name, known) or f" (there are {', '.join(known)})"
        raise UsageError(f"{option}: no data set {name!r}{hint}; FILE.yaml has your own")
    path = Path(name) if is_file else SETS / f"{name}.yaml"
    patterns = _read(path, f"{option} {path}" if is_file else str(path))
    fits = 0 <= number < len(patterns)
    require(fits, f"--task.pattern must be 0 to {len(patterns) - 1} of {path}, got {number}")
    return patterns[number]


def _read(path: Path, named: str) -> list[Pattern]:
    tree = parse_yaml(path, named)
    good = isinstance(tree, dict) and {"fields", "patterns"} <= tree.keys() <= KEYS
    lists = good and all(isinstance(tree[name], list) for name in ("fields", "patterns"))
    tables = lists and all(isinstance(table, dict) for table in tree.get("words", {}).values())
    require(
        tables,
        f"{named} must have the lists fields and patterns, and at most answers, words and blank",
    )
    fields = tuple(map(str, tree["fields"]))
    second = CHOICES not in fields or fields.index(CHOICES) == 1
    require(second, f"{named}: choices must be the second of the fields")
    patterns = []
    for entry in tree["patterns"]:
        spec = entry if isinstance(entry, dict) else {"text": entry}
        text: Any = spec.get("text")
        answers = spec.get("answers", tree.get("answers"))
        is_text = isinstance(text, YamlText)
        require(is_text, f"{named}: a pattern must be a text, or have text and answers")
        shared = {"words": tree.get("words", {}), "blank": str(tree.get("blank", ""))}
        patterns.append(Pattern(path=path, text=text, fields=fields, answers=answers, **shared))
        _check(patterns[-1])
    return patterns


def _check(pattern: Pattern) -> None:
    """Raise `UsageError`, with file and line, for a pattern that cannot be rendered."""
    brings_choices = CHOICES in pattern.fields
    answers = pattern.answers
    labels = isinstance(answers, dict) and all(isinstance(v, YamlText) for v in answers.values())
    if brings_choices:
        needed = 'a text such as "{choice}"'
        good = isinstance(answers, YamlText)
    else:
        needed = "two labels or more, each with a text"
        good = labels and len(answers) > 1
    require(good, f"{pattern.place}: answers must be {needed}")
    count = pattern.text.count(BLANK)
    blanks = 0 if pattern.blank else 1
    require(count == blanks, f"{pattern.place}: {BLANK} must occur {blanks} times, got {count}")
    names = {name for name in pattern.fields if name != CHOICES}
    if brings_choices:
        names |= {"choice1", "choice2"}
    _check_fields(pattern, pattern.text, names)
    if isinstance(answers, YamlText):
        _check_fields(pattern, answers, {"choice"})


def _check_fields(pattern: Pattern, text: YamlText, names: set[str]) -> None:
    where = f"{pattern.path}, line {text.line}"
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise UsageError(f"{where}: {error} (write a literal brace twice)") from error
    for _, name, spec, _ in parsed:
        require(
            name is None or name in names,
            f"{where}: no field {{{name}}}; there are {', '.join(sorted(names))}",
        )
        for filter_name in filter(None, (spec or "").split(",")):
            require(
                filter_name in FILTERS,
                f"{where}: no filter {filter_name!r}; there are {', '.join(FILTERS)}",
            )
