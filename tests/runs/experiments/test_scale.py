"""`unitk scale`: what is planned, trained, resumed, held out and refused."""

import json

import pytest
from exact_options import EXACT
from safetensors.torch import load_file

from unitk.errors import NonFiniteError, UsageError
from unitk.options.config import parse
from unitk.runs.experiments import hoffmann, jobs, scale

SIZES, BUDGETS = ("16x1", "24x1", "32x1"), (800, 1200, 2000)


@pytest.fixture
def base(toy_data):
    words = "--task lm --arch gpt2_tiny --arch.dropout 0 --blocks line --block-size 64"
    words += f" --max-tokens 400 {EXACT} --precision fp32 --writers none --valid-texts 4"
    return f"{words} --data {toy_data}/text".split()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(jobs, "MINUTE", 0.0)
    monkeypatch.setattr(hoffmann, "DRAWS", 4)


def options(folder, **more):
    given = {"sizes": ",".join(SIZES), "tokens": ",".join(map(str, BUDGETS))} | more
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return parse("scale", scale.Options, [*words, f"--save-dir={folder}"]).main


def test_a_ladder_is_trained_fitted_and_not_trained_again(base, tmp_path, monkeypatch):
    found = scale.scale(options(tmp_path / "s"), base)
    assert found == json.loads((tmp_path / "s/scale.json").read_text()) | {"fits": found["fits"]}
    rows = found["rungs"]
    assert [row["rung"] for row in rows if row["held_out"]] == ["32x1-2000"]
    assert len(rows) == 9 and all(row["loss"] > 0 for row in rows)
    assert rows[0]["weights"] < rows[-1]["weights"] and rows[0]["tokens"] < rows[-1]["tokens"]
    stored = load_file(tmp_path / "s/lm/32x1-2000/last/model.safetensors")
    assert rows[-1]["weights"] == sum(tensor.numel() for tensor in stored.values())
    assert [one["updates"] for one in found["plan"]] == [2, 3, 5] * 3
    fitted = found["fits"]["lm"]
    assert fitted["measured"] == rows[-1]["loss"]
    text = "\n".join(scale.ladder_lines(found))
    assert "predicted" in text and f"{fitted['measured']:.4f}" in text
    assert fitted["fitted"][-1] == fitted["predicted"][0] and len(fitted["fitted"]) == 9
    page = (tmp_path / "s/scale.md").read_text().splitlines()
    table = [line.split("|")[1:-1] for line in page if line.startswith("|")]
    assert len(table) == 11 and {len(row) for row in table} == {8}
    off = rows[-1]["loss"] - fitted["fitted"][-1]
    assert float(table[-1][6]) == pytest.approx(off, abs=1e-4) and "held out" in table[-1][7]
    config = (tmp_path / "s/lm/16x1-800/config.yaml").read_text()
    assert "arch.width: '16'" in config and "arch.ffn_width: '64'" in config

    def never(*_):
        raise AssertionError("trained twice")

    monkeypatch.setattr(jobs, "train_job", never)
    monkeypatch.setattr(scale, "measure_sizes", never)
    assert scale.scale(options(tmp_path / "s"), base)["rungs"] == rows
    with pytest.raises(UsageError, match="--save-dir .* --sizes 16x1,24.*, not 16x1,24x1,48x1"):
        scale.scale(options(tmp_path / "s", sizes="16x1,24x1,48x1"), base)
    (tmp_path / "s/scale.json").write_text(json.dumps(found | {"plan": found["plan"][:2]}))
    with pytest.raises(UsageError, match="scale.json: .* damaged"):
        scale.scale(options(tmp_path / "s"), base)


def test_a_ladder_without_finite_losses_names_the_rungs(base, tmp_path, monkeypatch):
    """What is known of the rungs is written before."""
    monkeypatch.setattr(scale, "train_all", lambda *_: None)
    monkeypatch.setattr(scale, "measure_sizes", lambda *_: [{"seconds": 1.0, "bytes": 1}])
    with pytest.raises(NonFiniteError, match="lm/16x1-800, lm/16x1-1200, .* of 9 in .*--lr"):
        scale.scale(options(tmp_path / "s"), base)
    assert len(json.loads((tmp_path / "s/scale.json").read_text())["rungs"]) == 9


def test_a_plan_writes_nothing(base, tmp_path, capsys):
    found = scale.scale(options(tmp_path / "s", plan="on", held_out="48x1-4k"), base)
    assert not (tmp_path / "s").exists()
    assert found["plan"][-1]["rung"] == "48x1-4000" and len(found["plan"]) == 10
    assert all(one["seconds"] > 0 and one["bytes"] > 0 for one in found["plan"])
    assert "1 at" in scale.ladder_lines(found)[-1]


@pytest.mark.parametrize(
    ("more", "words", "named"),
    [
        ({}, ["--max-steps", "9"], "--max-steps excludes"),
        ({}, ["--max-epochs=9"], "--max-epochs excludes"),
        ({}, ["--valid", "none"], "--valid"),
        ({"sizes": "16"}, [], "--sizes 16: "),
        ({"tokens": "400"}, [], "--tokens 400 "),
        ({"held_out": "16"}, [], "--held-out "),
        ({"tasks": "lm,mlm"}, ["--task.ends", "off"], r"--tasks .*--task\.\*"),
        ({"jobs": "100000"}, [], "--jobs 100000 needs .* GB"),
        ({"sizes": "16x1"}, [], "6 rungs"),
        ({"tokens": "800"}, [], "6 rungs"),
        ({"sizes": "16x1,16x1"}, [], "--sizes .*16x1 "),
        ({"tokens": "800,800"}, [], "--tokens .*800 "),
        ({"sizes": "16x1,24x1,16384x40"}, [], "16384x40 of --sizes .*GB"),
        ({"sizes": "16x1,33x1"}, [], "33x1 of --sizes .*divisor"),
        ({"held_out": "0x1-4k"}, [], "0x1 of --sizes or --held-out: .*at least 1"),
        ({}, ["--arch.num_layers", "3"], "--arch.num-layers excludes .*--sizes"),
        ({}, ["--save-dir", "x"], "--save-dir excludes .*before --"),
        ({}, ["--dry-run"], "--dry-run excludes .*--plan"),
    ],
)
def test_what_cannot_be_a_ladder(more, words, named, base, tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "measure_sizes", lambda *_: [{"bytes": 1e12}])
    with pytest.raises(UsageError, match=named):
        scale.scale(options(tmp_path / "s", **more), [*base, *words])
    assert not (tmp_path / "s").exists()


def test_objectives_have_ladders_of_their_own(base, tmp_path):
    rungs = scale.ladder(options(tmp_path, tasks="lm,mlm"), base)
    assert scale.tasks_of(rungs) == ["lm", "mlm"] and len(rungs) == 18
    assert {rung.trial.start.run.path.parent.name for rung in rungs[::8]} == {"lm", "mlm"}


def test_the_rung_held_out_has_most_weights_whatever_its_layers(base, tmp_path):
    given = options(tmp_path, sizes="16x4,32x2")
    assert scale.name_held_out(given, scale.ladder(given, base)) == "32x2-2000"


@pytest.mark.parametrize(
    ("alpha", "told"), [(0.3, False), (hoffmann.HIGH, True), (hoffmann.LOW, True)]
)
def test_an_exponent_that_the_rungs_do_not_tell(alpha, told):
    """At a limit of what is tried, any further exponent would be as near."""
    numbers = {"floor": (2, 1, 3), "alpha": (alpha, 0.1, 1), "beta": (0.3, 0.2, 0.4)}
    law = {"alpha": alpha, "beta": 0.3}
    fits = {"lm": {**numbers, "law": law, "predicted": (4, 3, 5), "measured": 4.1}}
    said = scale.law_lines({"fits": fits})
    assert any("alpha" in line and "do not tell" in line for line in said) is told
    assert said[-1].endswith("predicted 4 [3, 5], measured 4.1000, +0.1000 nats apart")
