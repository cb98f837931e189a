"""Command lines and configuration files that are wrong in some way: one clear line each."""

import io
import random
import re
import shutil
import sys

import pytest

from unitk.errors import UnitkError
from unitk.training.start import parse_train, prepare
from unitk_cli.main import main, verb_names

pytestmark = pytest.mark.slow
TRAIN, OTHER = 500, 24
"""Command lines of `unitk train`, and of each other verb."""


@pytest.fixture
def good(toy_data):
    return {
        "task": "glm_infill",
        "arch": "glm_tiny",
        "data": str(toy_data / "text"),
        "blocks": "line",
        "block-size": "64",
        "max-tokens": "400",
        "batch-tokens": "800",
        "lr": "1e-3",
        "lr-schedule": "linear:warmup=0.1",
        "max-steps": "3",
        "precision": "fp32",
        "seed": "1",
        "clip-norm": "1",
        "on-nonfinite": "skip:3",
        "task.mean-span": "3",
        "arch.dropout": "0.1",
        "arch.width": "64",
        "criterion.label-smoothing": "0.1",
        "optimizer.betas": "0.9,0.98",
        "keep-best": "2",
        "writers": "csv",
        "valid": "none",
    }


VALUES = [
    *("", " ", "nan", "inf", "-1", "0", "1e999", "9" * 30, "0x10", "1,2,3", "none", "on", "-", "="),
    *("a=b", "linear:", "linear:warmup", "linear:warmup=x", "cosine:floor=2", "nope:value=1", "*"),
    *("../..", "/dev/null", "\u00e9\u4e2d", "glm_infil", "mlm=0.5", "a b", "[1, 2]", "{}", "true"),
    *("~", "%s", "\\", "'", '"', "1k"),
]
MORE = """
    resume init-from batch-texts max-hours patience best-metric shard nproc oom-retry compile
    user-dir config init-encoder max-source-len criterion optimizer threads nothing task.nothing
    arch. .x task.glm_infill.mean-span
""".split()


@pytest.fixture(scope="module")
def others(runs, toy_data, tmp_path_factory):
    """Options of each other verb that do something small; what stands alone has no name."""
    place = tmp_path_factory.mktemp("others")
    for task in ("lm", "optimus"):
        runs.train(f"{runs.words(task)} --max-steps 2 --save-every 1", place / task)
    for name in ("text", "more"):
        (place / f"{name}.txt").write_text("The bada fomi.\nThe gula.\n", encoding="utf-8")
        folder = place / name / "train"
        shutil.copytree(toy_data / "text" / "valid", folder)
    text, lm, small = place / "text.txt", place / "lm", {"max-len": "4", "device": "cpu"}
    files = {"hypotheses": text, "references": text}
    behind = f"--task lm --arch gpt2_tiny --data {place / 'text'} --max-steps 1 --valid none"
    return {
        "preprocess": {"input": text, "dest": place / "new", "vocab": lm / "last", "workers": "1"},
        "merge": {"": f"{place / 'text'} {place / 'more'}", "dest": place / "merged"},
        "generate": {"checkpoint": lm, "input": text, "beam": "2", "lenpen": "1", **small},
        "score": {"metric": "bleu,rouge", **files, "separator": "|", "output-format": "json"},
        "embed": {"checkpoint": lm, "input": text, "output": place / "states.npy", "device": "cpu"},
        "predict": {"checkpoint": lm, "input": text, "device": "cpu"},  # refused: it has no labels
        "evaluate": {"checkpoint": lm, "data": toy_data / "text", "max-tokens": "400"},
        "show": {"": "a b c d", "task": "lm", "seed": "1", "max-tokens": "9"},
        "analyse": {"": "contextuality", "checkpoint": lm, "input": text, "min-count": "2"},
        "latent": {"": "encode the-bada", "checkpoint": place / "optimus", "device": "cpu"},
        "list": {"": "task", "user-dir": place},
        "convert": {"from": f"unitk={lm}", "to": f"hf={place / 'hf'}", "vocab": lm / "last"},
        "average": {"checkpoint": lm, "last": "2", "dest": place / "mean"},
        "plot": {"": lm, "output": place / "curves.png"},
        "fairseq-plugin": {"dest": place / "plugin"},
        "search": {"": "bada", "checkpoint": lm, "documents": text, "top": "2", "device": "cpu"},
        "check": {"": toy_data / "text", "shared": "1.0", "device": "cpu"},
        "compare": {"": lm, "data": text, "table": place / "table.csv", "device": "cpu"},
        "launch": {"scheduler": "slurm", "gpus": "2", "time": "60", "": f"-- train {behind}"},
        "sweep": {"over": "lr=.01", "save-dir": place / "sweep", "seed": "1", "": f"-- {behind}"},
        # refused: they need held-out texts
        "scale": {
            "sizes": "32x1",
            "tokens": "1k",
            "save-dir": place / "ladder",
            "": f"-- {behind}",
        },
        "mix": {"tasks": "lm,mlm", "save-dir": place / "mix", "grid": "2", "": f"-- {behind}"},
    }


def mutated(good, chance):
    """The options with one to three faults, as `name value` pairs."""
    options = [list(item) for item in good.items()]
    for _ in range(chance.randint(1, 3)):
        options = options or [["", "x"]]
        place = chance.randrange(len(options))
        match chance.randrange(7):
            case 0 | 1:
                options[place][1] = chance.choice(VALUES)
            case 2:
                name = options[place][0]
                at = chance.randrange(len(name) + 1)
                options[place][0] = name[:at] + chance.choice("aqx-._") + name[at + 1 :]
            case 3:
                options.append([chance.choice(MORE), chance.choice(VALUES)])
            case 4:
                options.append([chance.choice(MORE), None])
            case 5:
                del options[place]
            case 6:
                options[place][1] = None
    return options


def as_flags(options, chance):
    words = []
    for name, value in options:
        if value is None:
            words.append(f"--{name}")
        elif not name:
            words += str(value).split()
        else:
            words += chance.choice(([f"--{name}={value}"], [f"--{name}", str(value)]))
    return words


def as_file(options, path):
    lines = (name if value is None else f"{name}: {value}" for name, value in options)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--config", str(path)]


def test_wrong_options_of_train(good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance, refused = random.Random(7), 0
    for number in range(TRAIN):
        options = mutated(good, chance)
        words = (
            as_file(options, tmp_path / "c.yaml") if number % 3 == 0 else as_flags(options, chance)
        )
        try:
            prepare(parse_train([*words, f"--save-dir={tmp_path / 'run'}"]))
        except UnitkError as error:
            refused += 1
            assert error.code in (2, 3, 4), (words, error)
            # a line for each wrong option
            assert min(map(len, str(error).splitlines())) > 15, (words, str(error))
            assert not re.search(r"Traceback|object at 0x|NoneType|KeyError", str(error)), words
    assert refused > TRAIN / 2


# quickstart runs other verbs, push needs a hub, and serve goes on until a signal comes
@pytest.mark.parametrize("verb", sorted({*verb_names()} - {"train", "quickstart", "push", "serve"}))
def test_wrong_options_of_other_verbs_end_without_a_traceback(
    others, tmp_path, monkeypatch, capfd, verb
):
    monkeypatch.chdir(tmp_path)
    chance, refused = random.Random(verb), 0
    for _ in range(OTHER):
        words = as_flags(mutated(others[verb], chance), chance)
        monkeypatch.setattr(sys, "argv", ["unitk", verb, *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        except BaseException as error:
            pytest.fail(f"{words}: {error!r}")
        told = capfd.readouterr().err
        assert code in (0, 2, 3, 4), (words, told)
        assert not re.search(r"Traceback|object at 0x|NoneType|KeyError", told), (words, told)
        if code:
            refused += 1
            # the last message, with a further line for each further wrong option
            assert told.count(f"unitk {verb}: ") == 1, (words, told)
            message = told.partition(f"unitk {verb}: ")[2].splitlines()
            whole = all(line.startswith(("--", "unexpected word ")) for line in message[1:])
            assert whole, (words, told)
    assert refused > OTHER / 3
