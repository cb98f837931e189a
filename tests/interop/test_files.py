"""Files that nobody has checked: a pickle runs nothing, and damage is one line."""

import argparse
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from unitk.errors import CheckpointError, UnitkError
from unitk.interop import convert, hf, names
from unitk.interop.files import read_pickle, read_tensors
from unitk.models.archs import bert_tiny


class Malicious:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_pickle_runs_nothing(tmp_path, zipped):
    path, mark = tmp_path / "pytorch_model.bin", tmp_path / "ran"
    evil = {"a": torch.ones(2), "b": Malicious(mark)}
    torch.save(evil, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"refused: its pickle names posix\.system"):
        read_tensors(path)
    assert not mark.exists()
    path.write_bytes(pickle.dumps(evil))
    with pytest.raises(CheckpointError, match=str(path)):
        read_tensors(path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["builtins.eval", "torch.load", "numpy.load", "os.getcwd"])
def test_other_globals_are_refused_by_name(tmp_path, name):
    module, _, function = name.partition(".")

    class Named:
        def __reduce__(self):
            return getattr(__import__(module), function), ("x",)

    torch.save({"a": Named()}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="refused: its pickle names"):
        read_pickle(tmp_path / "model.pt")


def test_plain_values_are_read(tmp_path):
    there = {
        "args": argparse.Namespace(layers=2),
        "np_rng_state": np.random.RandomState(1).get_state(),
        "module": {"a": torch.arange(3.0)},
    }
    for zipped in (True, False):
        torch.save(there, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
        found = read_pickle(tmp_path / "model.pt")
        assert found["args"].layers == 2
        assert torch.equal(found["module"]["a"], there["module"]["a"])
        assert (found["np_rng_state"][1] == there["np_rng_state"][1]).all()


def test_a_tensor_cannot_reach_beyond_its_file(tmp_path):
    """The sizes in a pickle are claims; with the right checksum, only their use can be refused."""
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(300)}, path)
    with zipfile.ZipFile(path) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data.replace(b"M,\x01", b"J\xff\xff\xff\x0f"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_tensors(path)


@pytest.mark.parametrize("found", [[1], {"a": 1}, {1: torch.ones(1)}, {}, None])
def test_what_holds_no_tensors_is_named(tmp_path, found):
    torch.save(found, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="no tensors by name|not a tensor"):
        read_tensors(tmp_path / "model.pt")


def test_an_index_names_files_beside_it(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(CheckpointError, match="must name files that stand beside it"):
        read_tensors(path)


def mutated(data, rng):
    """A file's bytes, damaged in one of the ways that happen."""
    kind = rng.integers(5)
    at = int(rng.integers(len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:  # a few bytes flipped, mostly near the start, where the sizes stand
        data = bytearray(data)
        for _ in range(rng.integers(1, 8)):
            data[int(len(data) * rng.random() ** 4)] = rng.integers(256)
        return bytes(data)
    if kind == 2:
        return data[:at] + bytes(rng.integers(0, 256, 40, dtype=np.uint8)) + data[at:]
    if kind == 3:
        return data[:at] + b"\xff" * 8 + data[at + 8 :]
    return data[:at] + data[at + int(rng.integers(1, 64)) :]


def checkpoint(folder, kind):
    """A small BERT as Hugging Face stores it."""
    config = bert_tiny()
    model = config.build(60)
    tensors = names.BERT.to_theirs(dict(model.named_parameters()))
    tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    settings = hf.write_settings(config, hf.BERT_KEYS) | {"model_type": "bert"}
    (folder / "config.json").write_text(json.dumps(settings))
    if kind == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    else:
        zipped = kind == "zip"
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)


def fuzz(tmp_path, kit, vocab_txt, kind, count, seed=0):
    rng = np.random.default_rng(seed)
    there = tmp_path / "there"
    there.mkdir()
    checkpoint(there, kind)
    files = {path: path.read_bytes() for path in there.iterdir()}
    ended = 0
    for number in range(count):
        victim = list(files)[number % 5 == 0]
        for path, data in files.items():
            path.write_bytes(mutated(data, rng) if path == victim else data)
        try:
            kit.to_unitk("hf", there, tmp_path / "ours", "--vocab", vocab_txt)
        except UnitkError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000
            assert not (tmp_path / "ours").exists()
            ended += 1
        else:  # nothing that could be noticed
            shutil.rmtree(tmp_path / "ours")
        assert not list(tmp_path.glob(".*"))
    return ended


@pytest.mark.parametrize("kind", ["safetensors", "zip", "old"])
def test_damaged_files_end_in_one_line(tmp_path, kit, vocab_txt, kind):
    assert fuzz(tmp_path, kit, vocab_txt, kind, 12) > 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["safetensors", "zip", "old"])
def test_many_damaged_files_end_in_one_line(tmp_path, kit, vocab_txt, kind):
    assert fuzz(tmp_path, kit, vocab_txt, kind, 334, seed=1) > 160


def test_every_format_has_its_file():
    for name in convert.FORMATS:
        assert {"read", "write"} <= vars(convert.module(name, "--from")).keys()
