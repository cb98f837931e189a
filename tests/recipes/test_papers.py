"""The settings of papers are options that exist, and their lengths fit their models."""

import importlib
from pathlib import Path

import pytest

from unitk.config import parse
from unitk.errors import UsageError
from unitk.train.config import KINDS, TrainConfig

PAPERS = Path(__file__).resolve().parents[2] / "recipes" / "papers"
FILES = sorted(PAPERS.glob("*/*.yaml"))
NEEDED = {
    "preprocess": ["--dest", "d", "--vocab", "v"],
    "train": ["--data", "d", "--save-dir", "s"],
    "generate": ["--checkpoint", "c", "--input", "i"],
}
MAIN = {"train": (TrainConfig, KINDS)}


def read(path: Path):
    verb = path.stem
    main, kinds = MAIN.get(verb) or (importlib.import_module(f"unitk_cli.{verb}").Options, ())
    return parse(verb, main, ["--config", str(path), *NEEDED[verb]], kinds)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_option_exists(path):
    parsed = read(path)
    given = [key for key, origin in parsed.origins.items() if origin == str(path)]
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert sorted(given) == sorted(line.partition(":")[0].replace("-", "_") for line in lines)


@pytest.mark.parametrize("line", ["max-sauce-len: 5", "task.worddrop: 0.5", "lr: fast"])
def test_a_wrong_line_is_refused(tmp_path, line):
    path = tmp_path / "train.yaml"
    path.write_text((PAPERS / "unilm2-cnndm" / "train.yaml").read_text().replace("lr:", "#") + line)
    with pytest.raises(UsageError, match=line.partition(":")[0]):
        read(path)


def test_every_setting_says_how_to_train_and_to_generate():
    folders = sorted(path for path in PAPERS.iterdir() if path.is_dir())
    assert len(folders) == 13
    readme = (PAPERS / "README.md").read_text()
    for folder in folders:
        assert {"train", "generate"} <= {path.stem for path in folder.glob("*.yaml")}
        assert f"`{folder.name}`" in readme


@pytest.mark.parametrize(
    "path", sorted(PAPERS.glob("*/train.yaml")), ids=lambda path: path.parent.name
)
def test_sources_targets_and_outputs_fit(path, toy_vocab):
    parsed = read(path)
    task, arch = parsed.components["task"], parsed.components["arch"].config
    made = task.made_from(task.config, toy_vocab)
    assert len(made.virtual) == arch.num_virtual
    limits = parsed.main.max_source_len, parsed.main.max_target_len
    assert limits[0] <= made.max_source(arch.max_positions, limits[1])
    assert arch.max_positions2 == 0 or limits[1] < arch.max_positions2
    decoding = read(path.with_stem("generate")).main
    assert int(decoding.max_len) <= limits[1]
    assert decoding.max_source_len == limits[0]
    window = path.with_stem("preprocess")
    if window.exists() and "qg" in path.parent.name:
        assert read(window).main.window == limits[0]
