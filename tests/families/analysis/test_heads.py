"""Gates of attention heads: bit-equal at 1, removed rows at 0; importance is a gradient; what is
written computes what the gates do."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near

import unitk
from unitk import registry
from unitk.data.batching import draw
from unitk.errors import UsageError
from unitk.evaluation.objective import objective, open_setup
from unitk.families.analysis import heads
from unitk.families.analysis import verbs as analyse
from unitk.slots import collate
from unitk.verbs import train

CPU = torch.device("cpu")
RUN = "--max-steps 4 --max-tokens 600 --lr 1e-2 --precision fp32 --valid none --block-size 40"
RUNS = {
    "lm": "--task lm --arch gpt2_tiny",
    "modern": "--task lm --arch modern_tiny --arch.head-gate on",
    "qwen3": "--task lm --arch qwen3_tiny",
    "mdlm": "--task mdlm --arch mdlm_tiny",
    "bart": "--task bart --arch bart_tiny",
    "t5": "--task t5 --arch t5_tiny",
}
MOST = 600


@pytest.fixture(scope="module")
def run(toy_data, tmp_path_factory):
    """Opens the evaluation of a short run, trained once."""
    place, text = tmp_path_factory.mktemp("runs"), toy_data / "text" / "valid"

    def opened(name):
        folder = place / name
        if not folder.exists():
            train.run([*f"{RUNS[name]} {RUN}".split(), f"--data={text}", f"--save-dir={folder}"])
        return open_setup(folder, text, CPU)

    return opened


def loss(evaluation, gates):
    return heads.report_figures(evaluation, gates, MOST)["loss"]


def shut(gates, *some):
    """The gates with these shut: (part, head)."""
    found = {name: gate.clone() for name, gate in gates.items()}
    for name, head in some:
        found[name][head] = 0
    return found


def written(evaluation, gates, folder):
    """The evaluation of what is written into a new folder."""
    folder.mkdir()
    heads.write(evaluation, gates, folder)
    return open_setup(folder, evaluation.corpus, CPU)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["lm", "modern", "bart"])
def test_open_gates_change_no_bit(run, name):
    evaluation = run(name)
    gates = heads.open_gates(evaluation.model)
    assert len(gates) == (6 if name == "bart" else 2)  # with cross-attention
    assert loss(evaluation, gates) == objective(evaluation, MOST, lambda done: None)["loss"]
    shuts = loss(evaluation, shut(gates, next((part, 1) for part in gates)))
    assert shuts != loss(evaluation, gates)
    # nothing is left behind
    assert loss(evaluation, {}) == loss(evaluation, gates)


@pytest.mark.parametrize("name", ["lm", "bart"])
def test_a_shut_gate_is_a_map_without_the_heads_columns(run, name):
    evaluation = run(name)
    gates = heads.open_gates(evaluation.model)
    for part in gates:
        gated = loss(evaluation, shut(gates, (part, 2)))
        out = evaluation.model.get_submodule(f"{part}.out")
        kept = out.weight.detach().clone()
        with torch.no_grad():
            out.weight.unflatten(1, (4, -1))[:, 2] = 0
        assert_near(loss(evaluation, gates), gated)
        with torch.no_grad():
            out.weight.copy_(kept)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["lm", "modern", "bart"])
def test_importance_is_the_gradient_by_finite_differences(run, name):
    evaluation = run(name)
    evaluation.model.double()
    gates = {name: gate.double() for name, gate in heads.open_gates(evaluation.model).items()}
    found = heads.importance(evaluation, gates, MOST)
    parts = list(gates)
    part, total = parts[-1], torch.zeros(4, dtype=torch.float64)

    def summed(batch, own):
        with torch.no_grad(), heads.gate(evaluation.model, {part: own}):
            return sum(evaluation.criterion(evaluation.model, batch, 0, None).sums.values())

    texts = evaluation.data.train
    for index in range(len(texts.bounds(0))):
        batch = collate([[draw(texts, 0, 0, index)]])
        for head in range(4):
            step = torch.zeros(1, 4, dtype=torch.float64)
            step[0, head] = 1e-4
            rise = summed(batch.to(CPU), 1 + step) - summed(batch.to(CPU), 1 - step)
            total[head] += abs(rise / 2e-4)
    assert found[part].tolist() == pytest.approx((total / total.norm()).tolist(), rel=1e-4)
    few = heads.importance(evaluation, gates, MOST // 8)  # whatever shares a batch
    assert few[part].tolist() == pytest.approx(found[part].tolist(), rel=1e-9)
    assert all(float(one.norm()) == pytest.approx(1) for one in found.values())


def test_the_least_important_heads_go_first_but_one_stays():
    gates = {"a": torch.ones(3), "b": torch.ones(2)}
    important = {"a": torch.tensor([0.1, 0.2, 0.3]), "b": torch.tensor([0.4, 0.25])}
    assert [one.tolist() for one in heads.prune(gates, important, 1).values()] == [
        [0, 1, 1],
        [1, 1],
    ]
    # heads 0 and 1 of a, then head 1 of b: the last of a stays
    found = heads.prune(gates, important, 3)
    assert [one.tolist() for one in found.values()] == [[0, 0, 1], [1, 0]]
    again = heads.prune(found, important, 1)
    assert all(torch.equal(again[name], found[name]) for name in found)
    assert gates["a"].tolist() == [1, 1, 1]


def test_a_curve_ends_where_one_head_is_left(run):
    evaluation = run("lm")
    steps = list(heads.curve(evaluation, 0.25, 1, MOST, lambda done: None))
    assert [step.removed for step in steps] == [0, 2, 4, 6]
    assert [*steps[-1].left.values()] == [1, 1]
    for step in steps:
        assert loss(evaluation, step.gates) == step.figures["loss"]
    reported = []
    short = list(heads.curve(evaluation, 1, 0.5, MOST, reported.append))
    assert sum(reported) == heads.count_removable(steps[0].gates, 0.5) == short[-1].removed
    assert [step.removed for step in short] == [0, 4]


def test_one_by_one_is_the_loss_of_each(run):
    evaluation = run("lm")
    gates = heads.open_gates(evaluation.model)
    without, alone = heads.measure_each_head(evaluation, gates, MOST, lambda done: None)
    part = list(gates)[1]
    assert without[part][3] == pytest.approx(loss(evaluation, shut(gates, (part, 3))))
    others = [(part, head) for head in (0, 1, 2)]
    assert alone[part][3] == pytest.approx(loss(evaluation, shut(gates, *others)))


@pytest.mark.parametrize("name", ["lm", "modern", "qwen3", "mdlm"])
def test_what_is_written_computes_what_the_gates_do(run, tmp_path, name):
    evaluation = run(name)
    gates = heads.open_gates(evaluation.model)
    first, second = gates
    gates = shut(gates, (first, 0), (first, 2), (second, 3))
    smaller = written(evaluation, gates, tmp_path / "small")
    assert smaller.model.config.layer_heads == (2, 3)
    rest = heads.open_gates(smaller.model)
    assert_near(loss(smaller, rest), loss(evaluation, gates))
    # 4 maps of 3 heads, 16 wide, with the biases of queries, keys and values
    width, more = 4 * 64 * 16, 3 * 16 * (name == "lm") + 66 * (name == "modern")
    sizes = [sum(p.numel() for p in one.model.parameters()) for one in (evaluation, smaller)]
    assert sizes[0] - sizes[1] == 3 * (width + more)
    before, after = (one.model.config.num_weights(300) for one in (evaluation, smaller))
    assert before - after == 3 * width
    # and once more, of what is left
    last = written(smaller, shut(rest, (second, 0)), tmp_path / "smaller")
    assert_near(loss(last, {}), loss(evaluation, shut(gates, (second, 0))))


@pytest.mark.parametrize("name", ["lm", "modern"])
def test_a_pruned_model_decodes_with_its_cache(run, tmp_path, name):
    evaluation = run(name)
    gates = shut(heads.open_gates(evaluation.model), ("layers.0.attention", 1))
    written(evaluation, gates, tmp_path / "small")
    texts = ["The bada", "The gula fomi"]
    small, whole = (unitk.load(path) for path in (tmp_path / "small", evaluation.path))
    found = [one[0].hypothesis for one in small.generate(texts, beam=2, max_len=12)]
    with heads.gate(whole.model, gates):
        wanted = [one[0].hypothesis for one in whole.generate(texts, beam=2, max_len=12)]
    for one, other in zip(found, wanted, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.score == pytest.approx(other.score, rel=1e-5)


@pytest.mark.parametrize(("name", "what"), [("bart", "two towers"), ("t5", "two towers")])
def test_layers_that_cannot_differ(run, tmp_path, name, what):
    evaluation = run(name)
    words = ["heads", "--checkpoint", str(evaluation.path), "--data", str(evaluation.corpus)]
    with pytest.raises(UsageError, match=f"--dest: --arch.layer-heads excludes .*with {what}"):
        analyse.run([*words, "--dest", str(tmp_path / "small")])
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_heads": (4,)}, "a number from 1 to 4 for each of 2 layers, got"),
        ({"layer_heads": (4, 5)}, "a number from 1 to 4 for each of 2 layers, got"),
        ({"layer_heads": (4, 0)}, "a number from 1 to 4 for each of 2 layers, got"),
        ({"layer_groups": 1}, "excludes an architecture with layers of the same weights"),
        ({"relative_buckets": 8}, "with a bias of relative positions, which layers share"),
        ({"norm_inside": True}, "with a LayerNorm inside"),
    ],
)
def test_settings_that_exclude_heads_of_layers(run, changes, message):
    config = run("lm").model.config
    with pytest.raises(UsageError, match="excludes .*architecture.*own"):
        replace(registry.get("arch", "xlnet_tiny")(), layer_heads=(4, 2))
    with pytest.raises(UsageError, match=message):
        replace(config, **{"layer_heads": (4, 2), **changes})


def test_what_cannot_be_written_is_told_before_anything_is_measured(run, tmp_path, monkeypatch):
    evaluation = run("lm")
    monkeypatch.setattr(heads, "importance", None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    words = ["heads", "--checkpoint", str(evaluation.path), "--data", str(evaluation.corpus)]
    with pytest.raises(UsageError, match="--dest .*full exists already"):
        analyse.run([*words, "--dest", str(tmp_path / "full")])
    with pytest.raises(UsageError, match="--plot .*none/h.png: .*write.*none"):
        analyse.run([*words, "--plot", str(tmp_path / "none" / "h.png")])


def test_the_command(run, tmp_path, capsys):
    evaluation = run("lm")
    words = f"heads --checkpoint {evaluation.path} --data {evaluation.corpus} --max-tokens {MOST}"
    capsys.readouterr()
    analyse.run([*words.split(), "--step", "0.25", "--until", "0.5"])
    told = capsys.readouterr().out.splitlines()
    assert told[-1].startswith("   4 of 8") and told[-3].startswith("   0 of 8")
    small, plot = tmp_path / "small", tmp_path / "heads.svg"
    more = f"--each --until 0.25 --dest {small} --plot {plot} --output-format json"
    analyse.run([*words.split(), *more.split()])
    found = json.loads(capsys.readouterr().out)
    assert found["curve"][-1]["removed"] == 2
    assert found["after/loss"] == pytest.approx(found["curve"][-1]["loss"], rel=1e-5)
    assert found["before/weights"] - found["after/weights"] == 2 * (4 * 64 * 16 + 48)
    assert found["before/seconds"] > 0 and np.shape([*found["importance"].values()]) == (2, 4)
    assert np.shape([*found["loss without the head"].values()]) == (2, 4)
    assert plot.read_text().count("<path") > 10
    with pytest.raises(UsageError, match=r"--step must be.* \(0, 1\], got 0"):
        analyse.run([*words.split(), "--step", "0"])


def test_importance_over_a_run_is_that_of_its_checkpoints(toy_data, tmp_path, capsys):
    text, run, plot = toy_data / "text" / "valid", tmp_path / "run", tmp_path / "plot.svg"
    keep = f"--save-every 2 --keep-last 9 --save-dir={run}"
    train.run([*f"{RUNS['lm']} {RUN} {keep}".split(), f"--data={text}"])
    how = f"heads --checkpoint {run} --data {text} --max-tokens {MOST}"
    analyse.run(f"{how} --over-run --plot {plot} --output-format json".split())
    found = json.loads(capsys.readouterr().out)
    assert [name for name in found if "step" in name] == [
        f"importance at step {step}" for step in (2, 4)
    ]
    for step in (2, 4):
        setup = open_setup(run / "checkpoints" / f"step-{step}", text, CPU)
        own = heads.importance(setup, heads.open_gates(setup.model), MOST)
        for name, row in found[f"importance at step {step}"].items():
            assert_near(row, own[name])
    assert plot.stat().st_size > 1000
    analyse.run(f"{how} --over-run".split())
    assert "step 4" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--until .*--over-run"):
        analyse.run(f"{how} --over-run --until 0.5".split())
    with pytest.raises(UsageError, match="--over-run .* has 0"):
        analyse.run(f"{how} --over-run".replace(str(run), str(run / "last")).split())
