"""A checkpoint gives back the model, the optimizer and the task, or is named."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_type_hints

import pytest
import torch
from torch import nn

from unitk import pretrained
from unitk.errors import CheckpointError, NonFiniteError, UsageError
from unitk.files import seal
from unitk.slots import collate
from unitk.training.average import mean
from unitk.training.loop import Trainer
from unitk.training.parallel import Ranks
from unitk.training.saving import checkpoint, snapshot
from unitk.training.saving.folder import RunFolder
from unitk.training.saving.state import Identity, Progress, is_of_type, plugins_named, read_state
from unitk.training.saving.weights import load_tensors, save_tensors


def test_a_loaded_model_says_what_the_trained_one_said(start, tmp_path):
    trainer = Trainer(begun := start("--max-steps 2 --task.mask-symbol smask --arch.dropout 0.1"))
    begun.run.create("")
    trainer.update(next(trainer.updates())[0])
    trainer.save()
    trainer.saver.finish()
    drawn = torch.get_rng_state()
    loaded = checkpoint.load(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not loaded.model.training
    assert loaded.task.config.mask_symbol == "smask" and loaded.model.config.dropout == 0.1
    assert loaded.vocab.hash == trainer.data.vocab.hash
    assert loaded.config["task"] == "glm_infill" and loaded.state["step"] == 0
    batch = collate([[loaded.task.prompt([loaded.vocab.unk + torch.zeros(4, dtype=int).numpy()])]])
    with torch.no_grad():
        here = trainer.model.cpu().eval()(batch.to("cpu"))[0]["x"]
        assert torch.equal(loaded.model(batch.to("cpu"))[0]["x"], here)


def test_weights_are_read_from_the_file_and_written_to_copies(train, tmp_path):
    train("--max-steps 1")
    file = tmp_path / "run/last/model.safetensors"
    stored, told = file.read_bytes(), load_tensors(file)
    model, other = (checkpoint.load(tmp_path / "run").model for _ in range(2))
    assert str(file.resolve()) in Path("/proc/self/maps").read_text()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, told[name] + 1)
        assert torch.equal(dict(other.named_parameters())[name], told[name])
    assert file.read_bytes() == stored


def test_the_optimizer_comes_back_with_its_state(start, tmp_path):
    begun = start("--max-steps 4")
    begun.run.create("")
    one = Trainer(begun)
    one.update(next(one.updates())[0])
    one.save()
    one.saver.finish()
    other = Trainer(begun)
    snapshot.restore(
        tmp_path / "run/checkpoints/step-0", other.model, other.plan.optimizers, None, other.ranks
    )
    a, b = (t.plan.optimizers[0].state_dict()["state"] for t in (one, other))
    assert a.keys() == b.keys() and len(a) == len(one.plan.parameters)
    for i in a:
        assert all(torch.equal(a[i][part], b[i][part]) for part in a[i])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3)
        self.out = nn.Linear(3, 7, bias=False)
        self.out.weight = self.table.weight


class Counting(torch.optim.SGD):
    """Keeps a plain number among its state, as some optimizers do."""

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["times"] = self.state[parameter].get("times", 0) + 1


def test_tied_tensors_and_numbers_in_the_optimizer(tmp_path, start):
    begun = start("--max-steps 1")
    models = [Tied(), Tied()]
    optimizers = [Counting(model.named_parameters(), lr=1) for model in models]
    optimizers[0].step()
    folder = RunFolder(tmp_path / "tied")
    folder.create("")
    own = Progress(), begun.identity, begun.data.task
    copy = Ranks().copy_to_host
    taken = snapshot.take_snapshot(models[0], optimizers[:1], *own, copy=copy)
    path = folder.publish(1, lambda to: snapshot.write(to, taken))
    names = list(load_tensors(path / "model.safetensors"))
    assert names in (["table.weight"], ["out.weight"])
    checkpoint.load_weights(models[1], path)
    snapshot.restore(path, models[1], optimizers[1:], None, Ranks())
    assert torch.equal(models[1].out.weight, models[0].table.weight)
    assert optimizers[1].state_dict()["state"][0]["times"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--arch.width 32", "has shape .*64.* but this architecture's is .*32"),
        ("--arch.num-layers 3", "has no tensor layers.2.* which this architecture needs"),
        ("--arch.num-layers 1", "has a tensor layers.1.* that this architecture lacks"),
    ],
)
def test_weights_of_another_shape_are_refused(train, start, tmp_path, words, message):
    train("--max-steps 1", run="first")
    with pytest.raises(CheckpointError, match=message) as error:
        Trainer(start(f"--max-steps 1 --init-from {tmp_path / 'first'} {words}", run="second"))
    assert error.value.code == 4


@pytest.mark.parametrize("words", ["", "--task mass --arch mass_tiny"])
def test_a_longer_position_table_repeats_the_first_rows(train, start, tmp_path, words):
    train(f"--max-steps 1 --arch.max-positions 40 --block-size 30 {words}", run="first")
    longer = f"--init-from {tmp_path / 'first'} --arch.max-positions 100 {words}"
    model = Trainer(start(f"--max-steps 1 {longer}", run="second")).model.cpu()
    first = load_tensors(tmp_path / "first" / "last" / "model.safetensors")
    tables = {name: table for name, table in first.items() if name.endswith(".positions.weight")}
    offset = 1 if words else 0
    assert tables
    for name, table in tables.items():
        rows = model.get_parameter(name)
        assert len(rows) == 100 + offset and torch.equal(rows[: 40 + offset], table)
        assert torch.equal(rows[40 + offset : 80 + offset], table[offset:])
        assert torch.equal(rows[80 + offset :], table[offset : 20 + offset])


def test_starting_from_weights_takes_the_architecture_along(train, tmp_path, toy_data):
    train("--max-steps 1 --arch.width 32 --arch.num-heads 2", run="first")
    from unitk.training.loop import Trainer
    from unitk.training.start import parse_train, prepare

    words = f"--task glm_infill --data {toy_data / 'pairs'} --save-dir {tmp_path / 'second'}"
    words += f" --init-from {tmp_path / 'first'} --max-steps 1 --arch.dropout 0.2"
    parsed = parse_train(words.split())
    arch = parsed.components["arch"]
    assert (arch.name, arch.config.width, arch.config.dropout) == ("glm_tiny", 32, 0.2)
    assert "arch.width: '32'  # checkpoint" in parsed.settings.yaml()
    trainer = Trainer(prepare(parsed))
    before = checkpoint.load(tmp_path / "first").model.state_dict()
    assert all(torch.equal(before[k], v) for k, v in trainer.model.cpu().state_dict().items())
    assert not trainer.plan.optimizers[0].state_dict()["state"] and trainer.progress.step == 0


def test_nothing_is_pickled(train, tmp_path):
    train("--max-steps 1")
    names = {p.name for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert not [name for name in names if name.endswith((".pt", ".pkl", ".bin", ".pth"))]
    program = (
        "import pickle, sys, torch\n"
        "def refuse(*args, **kwargs): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse\n"
        "from pathlib import Path\n"
        "from unitk.training.saving.checkpoint import load\n"
        "load(Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "run"], check=True)


def test_state_is_readable(train, tmp_path):
    train("--max-steps 3 --log-every 2")
    state = read_state(tmp_path / "run" / "last")
    assert state["step"] == 3 and state["config"]["lr"] == "0.01"
    assert set(state["versions"]) == {"unitk", "python", "torch", "numpy", "threads"}
    json.dumps(state, allow_nan=False)


def test_a_plug_in_that_lacks_is_told_in_one_line():
    known = (
        "--task: there is no task 'inward' (known: lm, mlm)",
        "--arch: there is no arch 'narrow'",
    )
    with pytest.raises(UsageError) as found, plugins_named({"user_dir": "mine"}, Path("run")):
        raise UsageError(*known)
    said = str(found.value)
    assert all(word in said for word in ("'inward'", "run", "--user-dir", "'mine'"))
    assert "\n" not in said and "known" not in said


@pytest.mark.slow
def test_a_plug_in_comes_along_only_when_its_user_says_so(tmp_path, start, toy_data):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "mine.py").write_text(PLUGIN)
    words = f"--max-steps 1 --arch mine_tiny --user-dir {tmp_path / 'plugins'}"
    begun = start(words)
    begun.run.create(begun.parsed.settings.yaml())
    trainer = Trainer(begun)
    trainer.save()
    trainer.saver.finish()
    program = (
        "import sys\nfrom pathlib import Path\nfrom unitk import errors, registry\n"
        "from unitk.training.saving.checkpoint import load\n"
        "try:\n    load(Path(sys.argv[1]))\n    raise SystemExit('it was imported')\n"
        "except errors.UsageError as error:\n    assert sys.argv[2] in str(error)\n"
        "registry.load_plugins(Path(sys.argv[2]))\n"
        "assert load(Path(sys.argv[1])).model.config.width == 48\n"
    )
    folders = [tmp_path / "run", tmp_path / "plugins"]
    subprocess.run([sys.executable, "-c", program, *folders], check=True)
    program = (
        "import sys\nfrom unitk.training.start import parse_train\n"
        "assert parse_train(['--config', sys.argv[1]]).components['arch'].name == 'mine_tiny'\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "run/config.yaml"], check=True)


PLUGIN = '''
from dataclasses import replace
from unitk.models.archs import preset
from unitk.registry import register

@register("arch", "mine_tiny")
def mine_tiny():
    """A plug-in."""
    return replace(preset("glm_tiny"), width=48)
'''


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_weights_that_are_no_numbers_are_named(train, tmp_path, value):
    """By whatever loads them: evaluate and convert take `load`, average reads them itself."""
    train("--max-steps 2 --save-every 1")
    path = tmp_path / "run/checkpoints/step-2"
    tensors = load_tensors(path / "model.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    tensors["layers.1.ffn.up.weight"][0, 0] = value
    save_tensors(tensors, path / "model.safetensors")
    (path / "manifest.json").unlink()
    seal(path)
    named = "step-2: layers.1.ffn.up.weight has NaN or infinity"
    with pytest.raises(NonFiniteError, match=named):
        checkpoint.load(path)
    with pytest.raises(NonFiniteError, match=named):
        mean([path.with_name("step-1"), path])


WRONG = [None, True, 3, 0.5, "x", [], [1], [[]], [["a", 1]], {}, {"a": 1}, {"a": {"b": "c"}}]


def test_fields_of_a_state_that_are_of_no_use_are_named(tmp_path):
    """An edited state.json whose hash was made anew: what is read is of its type."""
    given = pretrained.FOLDER / "unitk-vae-en"
    state = json.loads((given / "state.json").read_text()) | asdict(Progress())
    state |= {"labels": ["a"], "lengths": [3, 4], "window": [None, "x"], "corpora": {"a": ["b"]}}
    (tmp_path / "manifest.json").write_text((given / "manifest.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps(state))
    whole = read_state(tmp_path)
    kinds = get_type_hints(Identity) | get_type_hints(Progress)
    refused = 0
    for name in kinds:
        for wrong in WRONG:
            (tmp_path / "state.json").write_text(json.dumps(state | {name: wrong}))
            try:
                assert is_of_type(read_state(tmp_path)[name], kinds[name])
            except CheckpointError as error:
                assert str(error).startswith(f"{tmp_path / 'state.json'} is damaged: it")
                refused += 1
    assert refused > 8 * len(kinds)
    assert whole["window"] == [None, "x"]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, [3], [0.5, "3", None, [3]]),
        (float, [3, 0.5], ["3", None]),
        (str | None, ["", None], [3, []]),
        (list[float], [[], [1, 0.5]], [{}, ["x"], [None], "xy"]),
        (tuple[int, ...], [[], [1]], [["x"], [0.5]]),
        (tuple[int | None, str], [[None, "x"], [1, "x"]], [[0.5, "x"]]),
        (dict[str, dict[str, float]], [{}, {"a": {"b": 1}}], [[], {"a": 1}, {"a": {"b": "c"}}]),
        (Mapping[str, Sequence[str]], [{"a": ["b"]}], [{"a": "b"}, {"a": [1]}]),
    ],
)
def test_values_of_a_json_fit_types(kind, good, bad):
    assert all(is_of_type(value, kind) for value in good)
    assert not any(is_of_type(value, kind) for value in bad)
