"""Command lines and configuration files that are wrong in some way: one clear line each."""

import random
import re

import pytest

from unitk.errors import UnitkError
from unitk.train.start import parse_train, prepare

pytestmark = pytest.mark.slow
COUNT = 500


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


def mutated(good, chance):
    """The options with one to three faults, as `name value` pairs."""
    options = [list(item) for item in good.items()]
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(options))
        match chance.randrange(7):
            case 0 | 1:
                options[place][1] = chance.choice(VALUES)
            case 2:
                name = options[place][0]
                at = chance.randrange(len(name))
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
        else:
            words += chance.choice(([f"--{name}={value}"], [f"--{name}", value]))
    return words


def as_file(options, path):
    lines = (name if value is None else f"{name}: {value}" for name, value in options)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--config", str(path)]


def test_wrong_options_are_told_in_one_line(good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance, refused = random.Random(7), 0
    for number in range(COUNT):
        options = mutated(good, chance)
        words = (
            as_file(options, tmp_path / "c.yaml") if number % 3 == 0 else as_flags(options, chance)
        )
        try:
            prepare(parse_train([*words, f"--save-dir={tmp_path / 'run'}"]))
        except UnitkError as error:
            refused += 1
            assert error.code in (2, 3, 4), (words, error)
            assert "\n" not in str(error) and len(str(error)) > 15, (words, str(error))
            assert not re.search(r"Traceback|object at 0x|NoneType|KeyError", str(error)), words
    assert refused > COUNT / 2
