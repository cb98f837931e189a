"""Verbs as functions of Python: `unitk.score(metric="bleu", hypotheses="out.txt", ...)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from unitk.api.arguments import option_words, settle, takes
from unitk.api.records import as_files
from unitk.api.verb import Verb, VerbGroup, find_verb
from unitk.data.corpus.writer import called_from_python
from unitk.decoding.files.outputs import STDOUT
from unitk.errors import UsageError, require, show_value
from unitk.options.config import options

ARGUMENTS = """
Options have the names and the values of the command line (`unitk VERB --help`), with `_` for `-`;
those of components are in `options`, as in `options={"task.mask_ratio": 0.3}`. Raises the errors of
`unitk.errors` for options that cannot be meant, and for files and checkpoints.
"""
EXAMPLES = {
    "preprocess": '(input="docs/*.txt", valid="dev.txt", vocab_size=8000, dest="data/docs")',
    "merge": '(parts=["data/0", "data/1"], dest="data/all")',
    "evaluate": '(checkpoint="runs/lm", data="data/docs")["lm/ppl"]',
    "generate": '(["The cat sat on"], checkpoint="runs/lm", beam=5)',
    "predict": '(["A lovely film."], checkpoint="runs/sst2")[0]["label"]',
    "embed": '(["The cat sat on the mat."], checkpoint="runs/lm")',
    "search": '(["Who wrote it?"], checkpoint="runs/vectors", documents="docs.txt")[0]["found"]',
    "score": '(metric="rouge", hypotheses=["a cat sat"], references=["the cat sat"])["rouge"]',
    "show": '("The cat sat on the mat.", task="glm_infill")',
    "plot": '(runs=["runs/lm"], output="loss.png")',
    "average": '(checkpoint="runs/lm", last=2, dest="runs/mean")',
    "convert": '(from_=["unitk", "runs/lm"], to=["hf", "exported/lm"])',
    "push": '(model="exported/lm", repo="me/lm")',
    "list": '("arch")["arch"]',
    "check": '(["data/docs", "runs/lm"])',
    "compare": '(["runs/lm", "runs/glm"], data="dev.txt")',
    "sweep": '(over={"lr": [1e-3, 3e-3]}, save_dir="s", train={"task": "lm", "data": "d"})',
    "mix": '(tasks="lm,mlm", save_dir="m", train={"data": "d", "max_steps": 800})',
    "scale": '(sizes="64x2,96x2", tokens="1M", save_dir="s", train={"task": "lm", "data": "d"})',
    "launch": '(scheduler="slurm", gpus=8, train={"task": "lm", "data": "d", "save_dir": "r"})',
    "quickstart": '(save_dir="runs/quickstart")',
    "serve": '(checkpoint="runs/lm", port=0).url',
    "fairseq_plugin": '(dest="objectives")',
    "analyse.contextuality": '(checkpoint="runs/bert", input="texts.txt")',
    "analyse.vectors": '(checkpoint="runs/bert", input="texts.txt", layer=1)["bank"]',
    "analyse.heads": '(checkpoint="runs/lm", data="data/docs")["importance"]',
    "latent.encode": '(["He is a teacher."], checkpoint="unitk-vae-en")',
    "latent.sample": '(checkpoint="unitk-vae-en", count=5)',
    "latent.reconstruct": '(["He is a teacher."], checkpoint="unitk-vae-en")',
    "latent.interpolate": '(["He runs.", "They sleep."], checkpoint="unitk-vae-en", steps=5)',
    "latent.analogy": '(["He is.", "They are.", "She is."], checkpoint="unitk-vae-en")',
    "latent.restyle": '(["So sad."], among="labelled.txt", from_="bad", to="good", checkpoint="v")',
    "latent.traverse": '(["He is a teacher."], checkpoint="unitk-vae-en", active=1)',
    "latent.neighbors": '(["He is a teacher."], among="dev.txt", checkpoint="unitk-vae-en")',
    "latent.plot": '(input="labelled.txt", output="latents.png", checkpoint="unitk-vae-en")',
    "latent.probe": '(input="labelled.txt", test="test.txt", checkpoint="unitk-vae-en")',
}
"""Verb -> the arguments of a call, which stands in its docstring; verbs of a group follow it."""


class Functions:
    """The verbs of a group as functions, such as `unitk.latent.encode`."""

    def __init__(self, name: str, group: VerbGroup) -> None:
        self.__name__ = name
        self.__doc__ = f"The verbs of `unitk {name}` as functions: {', '.join(group.verbs)}."
        for own, verb in group.verbs.items():
            setattr(self, own, function_of(f"{name}.{own}", verb))

    def __repr__(self) -> str:
        return f"<unitk.{self.__name__}: {self.__doc__}>"


def function(name: str) -> Callable[..., Any] | Functions:
    """Return a verb as a function, or a group of verbs as an object with a method for each."""
    verb = find_verb(name)
    return Functions(name, verb) if isinstance(verb, VerbGroup) else function_of(name, verb)


def function_of(name: str, verb: Verb) -> Callable[..., Any]:
    """Make a function of keyword arguments from a verb; its signature has the verb's options.

    The words that a command line takes without a flag are the function's first argument.
    """

    def run(*first: object, **arguments: object) -> Any:
        settle()
        if first:
            require(verb.words is not None, f"{name}: options have names")
            several = f"several {verb.words} are one list: {name}({show_value(list(first))}, ...)"
            require(len(first) == 1, f"{name}: options have names, and {several}")
            arguments[verb.words or ""] = first[0]
        with called_from_python():
            return run_verb(verb, arguments, name.replace(".", " "))

    run.__name__, run.__qualname__ = name.rpartition(".")[2], name
    about = inspect.cleandoc(verb.options.__doc__ or "").partition("\n\n")[0]
    run.__doc__ = f"{about}\n\n    unitk.{name}{EXAMPLES[name]}\n\n{ARGUMENTS.strip()}"
    return takes(verb.options, verb.kinds, verb.words, verb.behind)(run)


def run_verb(verb: Verb, arguments: Mapping[str, object], name: str) -> Any:
    """Run a verb and return its value; with an `output`, it writes the file and returns None."""
    known = {option.name: option.default for option in options(verb.options)}
    behind = list[str]()
    # a sweep's training is another verb's options, which a command line has behind --
    if verb.behind:
        own = arguments.get(verb.behind)
        if not isinstance(own, Mapping):
            raise UsageError(f"{name} needs {verb.behind}, a dict of options, got {own!r}")
        arguments = {key: value for key, value in arguments.items() if key != verb.behind}
        behind = ["--", *option_words(own)]
    if verb.words and isinstance(text := arguments.get(verb.words), str):
        arguments = {**arguments, verb.words: [text]}  # in which a comma parts nothing
    printed = known.get("output") == STDOUT  # what is found, unless there is a file for it
    idle = "output_format" in known and "output_format" in arguments
    with as_files(arguments, verb.records) as found:
        given = verb.parsed([*option_words(found), *behind], name)
        if verb.value is None or (printed and found.get("output") is not None):
            return verb.act(given)
        require(not idle, "--output-format has no effect in Python, where answers are returned")
        return verb.value(given)
