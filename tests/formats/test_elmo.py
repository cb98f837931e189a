"""ELMo's released format: what unitk reads computes what bilm-tf's equations say."""

import json

import numpy as np
import pytest
import torch
from rounding import assert_near

from unitk.data.cuts import Text
from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed
from unitk.errors import CheckpointError, UnitkError, UsageError
from unitk.registry import get
from unitk.slots import collate
from unitk.training.saving.checkpoint import load
from unitk.verbs import convert

h5py = pytest.importorskip("h5py")
WIDTH, CELLS, FILTERS, DIM = 6, 10, [[1, 4], [2, 3]], 5
OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": WIDTH,
        "dim": CELLS,
        "n_layers": 2,
        "cell_clip": 0.7,
        "proj_clip": 0.5,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": FILTERS,
        "n_highway": 2,
        "embedding": {"dim": DIM},
        "n_characters": 262,
        "max_characters_per_token": 12,
    },
}


def arrays():
    rng = np.random.default_rng(0)
    total = sum(count for _, count in FILTERS)
    shapes = {"char_embed": (261, DIM), "CNN_proj/W_proj": (total, WIDTH)}
    shapes["CNN_proj/b_proj"] = (WIDTH,)
    for number, (wide, count) in enumerate(FILTERS):
        shapes[f"CNN/W_cnn_{number}"] = (1, wide, DIM, count)
        shapes[f"CNN/b_cnn_{number}"] = (count,)
    for number in range(2):
        for kind in ("carry", "transform"):
            shapes[f"CNN_high_{number}/W_{kind}"] = (total, total)
            shapes[f"CNN_high_{number}/b_{kind}"] = (total,)
        for layer in range(2):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes[f"{cell}/W_0"] = (2 * WIDTH, 4 * CELLS)
            shapes[f"{cell}/B"] = (4 * CELLS,)
            shapes[f"{cell}/W_P_0"] = (CELLS, WIDTH)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def released(tmp_path, toy_vocab):
    """The folder of a model in the released format, its arrays, and a vocabulary."""
    found = arrays()
    write(tmp_path, found, OPTIONS)
    toy_vocab.save(tmp_path / "vocab")
    return tmp_path, found


def write(folder, found, options):
    with h5py.File(folder / "elmo_weights.hdf5", "w") as file:
        for name, array in found.items():
            file[name] = array
    (folder / "elmo_options.json").write_text(json.dumps(options))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def word(there, chars):
    """bilm-tf: convolutions, the largest value over the places, relu, highways, projection."""
    x = np.concatenate([np.zeros((1, DIM)), there["char_embed"]])[chars]
    parts = []
    for number, (wide, _) in enumerate(FILTERS):
        kernel = there[f"CNN/W_cnn_{number}"][0]
        at = range(len(x) - wide + 1)
        values = [np.einsum("wd,wdn->n", x[i : i + wide], kernel) for i in at]
        parts.append(np.max(values, axis=0) + there[f"CNN/b_cnn_{number}"])
    x = np.maximum(np.concatenate(parts), 0)
    for number in range(2):
        own = {name: there[f"CNN_high_{number}/{name}"] for name in
               ("W_carry", "b_carry", "W_transform", "b_transform")}  # fmt: skip
        gate = sigmoid(x @ own["W_carry"] + own["b_carry"])
        value = np.maximum(x @ own["W_transform"] + own["b_transform"], 0)
        x = gate * value + (1 - gate) * x
    return x @ there["CNN_proj/W_proj"] + there["CNN_proj/b_proj"]


def direction(there, x, number, layers=2):
    """TensorFlow's LSTMCell: gates i, j, f, o of [input, output], 1 added to the forget gate."""
    for layer in range(layers):
        cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        h, c, rows = np.zeros(WIDTH), np.zeros(CELLS), []
        for one in x:
            gates = np.concatenate([one, h]) @ there[f"{cell}/W_0"] + there[f"{cell}/B"]
            i, j, f, o = np.split(gates, 4)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -0.7, 0.7)
            h = np.clip((sigmoid(o) * np.tanh(c)) @ there[f"{cell}/W_P_0"], -0.5, 0.5)
            rows.append(h + one * (layer == 1))
        x = np.array(rows)
    return x


def test_states_are_those_of_the_equations(released):
    folder, there = released
    parts = get("format", "elmo").read(folder / "elmo_weights.hdf5", folder / "vocab")
    ids = parts.task.words[[3, 50, 7, 90]]
    example = parts.task.pretrain(Text([ids], np.zeros(1, int)), np.random.default_rng(0))
    with torch.no_grad():
        states, _ = parts.model(collate([[example]]).to("cpu"))
    there = {name: array.astype(np.float64) for name, array in there.items()}
    x = np.array([word(there, chars) for chars in example.inputs["fwd.chars"]])
    assert_near(states["fwd"][0, :6], direction(there, x, 0))
    assert_near(states["bwd"][0, :6].flip(0), direction(there, x[::-1], 1))


def test_vectors_are_the_states_of_both_directions_in_every_layer(released):
    """Peters et al. 2018, section 3.2: layer 0 is the word itself, in both halves."""
    folder, there = released
    parts = get("format", "elmo").read(folder / "elmo_weights.hdf5", folder / "vocab")
    there = {name: array.astype(np.float64) for name, array in there.items()}
    ids = parts.task.words[[3, 50, 7, 90]]
    example = parts.task.to_embed([ids])
    x = np.array([word(there, chars) for chars in example.inputs["fwd.chars"]])
    how = {"pool": "none", "max_tokens": 64}
    for layer in range(3):
        ways = [direction(there, x, 0, layer), direction(there, x[::-1], 1, layer)[::-1]]
        sources = [[ids], [ids[:1]], [ids[:0]]]
        found, short, empty = embed(
            parts.model, parts.task, sources, EmbedConfig(layer=layer, **how)
        )
        assert_near(torch.from_numpy(found), np.concatenate(ways, 1))
        assert short.shape == (3, 2 * WIDTH) and empty.shape == (0, 2 * WIDTH)
        [mean] = embed(parts.model, parts.task, [[ids]], EmbedConfig(layer=layer))
        assert_near(torch.from_numpy(mean), np.concatenate(ways, 1)[1:-1].mean(0))


def test_the_command_writes_a_checkpoint_without_trained_words(released, tmp_path):
    folder, _ = released
    given = f"--from elmo {folder} --to unitk {tmp_path / 'ours'} --vocab {folder / 'vocab'}"
    convert.run(given.split())
    loaded = load(tmp_path / "ours")
    assert loaded.model.trained == 0 and loaded.config["arch.cell_width"] == "10"
    assert loaded.config["task.characters"] == "12"


def test_what_is_missing_or_does_not_fit_is_named(released, tmp_path):
    folder, there = released
    file, vocab = folder / "elmo_weights.hdf5", folder / "vocab"
    with pytest.raises(UsageError, match="--vocab is needed"):
        get("format", "elmo").read(file)
    write(folder, {name: x for name, x in there.items() if name != "CNN_proj/b_proj"}, OPTIONS)
    with pytest.raises(CheckpointError, match="has no tensor 'CNN_proj/b_proj'"):
        get("format", "elmo").read(file, vocab)
    write(folder, there | {"CNN_proj/b_proj": np.zeros(7, np.float32)}, OPTIONS)
    with pytest.raises(CheckpointError, match=r"CNN_proj/b_proj has shape \[7\], .*options"):
        get("format", "elmo").read(file, vocab)
    write(folder, there, {"lstm": OPTIONS["lstm"]})
    with pytest.raises(CheckpointError, match="not .*options.* ELMo: no 'char_cnn'"):
        get("format", "elmo").read(file, vocab)
    write(folder, there, OPTIONS)
    file.write_bytes(b"no hdf5")
    with pytest.raises(CheckpointError, match="cannot be read"):
        get("format", "elmo").read(file, vocab)


def edit(path, value):
    """OPTIONS with another value at a path such as `lstm.dim`."""
    options = json.loads(json.dumps(OPTIONS))
    *outer, last = path.split(".")
    inside = options
    for key in outer:
        inside = inside[key]
    inside[last] = value
    return options


@pytest.mark.parametrize(
    "path", ["lstm.n_layers", "lstm.dim", "lstm.projection_dim", "char_cnn.n_highway"]
    + ["char_cnn.embedding.dim", "char_cnn.max_characters_per_token", "char_cnn.filters", "lstm"]
    + ["char_cnn", "char_cnn.embedding", "lstm.use_skip_connections"],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", [-1, 10**6, 10**7, 10**30, 1.5, "2", None, True, [], {}, [[2, 10**7]], float("nan")]
)
def test_any_options_end_in_one_line_at_once(released, path, value):
    """Before anything of the sizes that they claim is built."""
    folder, there = released
    write(folder, there, edit(path, value))
    if (path, value) in [("lstm.use_skip_connections", True)]:
        return
    with pytest.raises(UnitkError) as found:
        get("format", "elmo").read(folder, folder / "vocab")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("text", ["[" * 10**5, "{" * 10**5, '{"a":' * 10**5, "[]", "1", "", "\0"])
def test_options_that_are_no_object_are_named(released, text):
    folder, _ = released
    (folder / "elmo_options.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"elmo_options\.json: not "):
        get("format", "elmo").read(folder, folder / "vocab")


def crafted(file, name, shape):
    """Ways in which the array of a name may be another one than it should."""
    return {
        "text": lambda: file.create_dataset(name, data="x"),
        "strings": lambda: file.create_dataset(name, data=["x"], dtype=h5py.string_dtype()),
        "compound": lambda: file.create_dataset(name, shape, [("a", "f4"), ("b", "f4")]),
        "lists": lambda: file.create_dataset(name, shape, h5py.vlen_dtype(np.float32)),
        "references": lambda: file.create_dataset(name, shape, h5py.ref_dtype),
        "opaque": lambda: file.create_dataset(name, shape, "V8"),
        "whole numbers": lambda: file.create_dataset(name, shape, "i4"),
        "complex": lambda: file.create_dataset(name, shape, "c8"),
        "nothing": lambda: file.create_dataset(name, data=h5py.Empty("f4")),
        "a scalar": lambda: file.create_dataset(name, data=1.0),
        "a group": lambda: file.create_group(name),
        "claimed": lambda: file.create_dataset(name, shape, "f4", chunks=True),
        "a loop": lambda: file.__setitem__(name, h5py.SoftLink(f"/{name}")),
        "another file": lambda: file.__setitem__(name, h5py.ExternalLink("/dev/zero", "/x")),
    }


def test_any_array_ends_in_one_line(released):
    folder, there = released
    name = "CNN_proj/b_proj"
    for way in crafted(None, name, ()):
        with h5py.File(folder / "elmo_weights.hdf5", "a") as file:
            del file[name]
            crafted(file, name, there[name].shape)[way]()
        with pytest.raises(CheckpointError, match=rf"elmo_weights\.hdf5.* {name}|'{name}'"):
            get("format", "elmo").read(folder, folder / "vocab")
        write(folder, there, OPTIONS)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f4", ">f8"])
def test_floats_of_any_width_and_order_are_read(released, kind):
    folder, there = released
    wanted = get("format", "elmo").read(folder, folder / "vocab").model.state_dict()
    write(folder, {name: array.astype(kind) for name, array in there.items()}, OPTIONS)
    found = get("format", "elmo").read(folder, folder / "vocab").model.state_dict()
    for name in wanted:
        if not name.startswith("heads."):  # which begin at random
            assert_near(found[name], wanted[name], roundings=2**14 if kind == "f2" else 1)


def test_groups_that_nobody_needs_cost_nothing(released):
    folder, _ = released
    with h5py.File(folder / "elmo_weights.hdf5", "a") as file:
        inner = file
        for _ in range(2000):
            inner = inner.create_group("g")
    assert get("format", "elmo").read(folder, folder / "vocab").model
