"""Files that nobody has checked: a pickle runs nothing, and damage is one line."""

import argparse
import json
import os
import pickle
import shutil
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from unitk.errors import CheckpointError, UnitkError, UsageError
from unitk.formats.archive import find_file, read_pickle, read_tensors
from unitk.formats.dictionary import FairseqDictionary, XLMDictionary
from unitk.formats.hf.folder import WEIGHTS
from unitk.models.archs import tiny
from unitk.registry import get, names
from unitk.training.saving.checkpoint import Loaded
from unitk.verbs import convert
from unitk.vocab.base import adopt
from unitk.vocab.open import open_vocab


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
    with pytest.raises(CheckpointError, match=r"refused: .*pickle names posix\.system"):
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
    with pytest.raises(CheckpointError, match="refused: .*pickle names"):
        read_pickle(tmp_path / "model.pt")


def test_another_file_is_no_damaged_pickle(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="cannot be read: .*or torch.save .*not write"):
        read_tensors(tmp_path / "config.json")


@pytest.mark.parametrize("name", ["x.safetensors", "x.bin"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to("pipe")
    with pytest.raises(CheckpointError, match=f"{name} .* a pipe or"):
        read_tensors(tmp_path / name)


def test_a_file_that_was_cut_off_is_said_to_be_incomplete(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(300)}, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="cannot .*read.*incomplete"):
        read_tensors(path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_of_git_lfs_is_called_so(tmp_path, name):
    (tmp_path / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    with pytest.raises(CheckpointError, match=f"{name} .*pointer.* LFS; `git lfs pull`"):
        read_tensors(tmp_path / name)


def test_a_file_that_is_cut_far_from_its_end_is_incomplete(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(40_000), "b": torch.ones(9)}, path)
    path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(CheckpointError, match="it .*damaged.*incomplete"):
        read_tensors(path)


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


def test_a_compressed_pickle_is_refused(tmp_path):
    """torch would map the packed bytes as values: those of b, behind a, are long enough."""
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(300), "b": torch.rand(3000)}, path)
    with zipfile.ZipFile(path) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with pytest.raises(CheckpointError, match="compressed"):
        read_tensors(path)


@pytest.mark.parametrize("found", [[1], {"a": 1}, {1: torch.ones(1)}, {}, None])
def test_what_holds_no_tensors_is_named(tmp_path, found):
    torch.save(found, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="no tensors.*name|.*tensor"):
        read_tensors(tmp_path / "model.pt")


def test_an_index_names_files_beside_it(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(CheckpointError, match="must name.*folder"):
        read_tensors(path)


@pytest.mark.parametrize("index", ["model.safetensors.index.fp16.json", None])
def test_weights_of_a_variant_are_found(tmp_path, index):
    """As transformers names them with `save_pretrained(variant="fp16")`."""
    weights = {"a": torch.ones(2)}
    part = "model.fp16-00001-of-00001.safetensors" if index else "model.fp16.safetensors"
    save_file(weights, tmp_path / part)
    if index:
        (tmp_path / index).write_text(json.dumps({"weight_map": {"a": part}}))
    assert torch.equal(read_tensors(find_file(tmp_path, WEIGHTS, "model"))["a"], weights["a"])


@pytest.mark.parametrize("name", ["model.pth", "weights.safetensors", "best.pt"])
def test_weights_with_another_name_are_named_and_can_be_given(tmp_path, name):
    path = tmp_path / name
    path.touch()
    with pytest.raises(CheckpointError, match=rf"{name} \(give"):
        find_file(tmp_path, WEIGHTS, "model")
    assert find_file(path, WEIGHTS, "model") == path


def mutated(data, rng):
    """A file's bytes, damaged in one of the ways that happen."""
    kind = rng.integers(5)
    at = int(rng.integers(len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:  # a few bytes flipped, mostly near the start, where the sizes are
        data = bytearray(data)
        for _ in range(rng.integers(1, 8)):
            data[int(len(data) * rng.random() ** 4)] = rng.integers(256)
        return bytes(data)
    if kind == 2:
        return data[:at] + bytes(rng.integers(0, 256, 40, dtype=np.uint8)) + data[at:]
    if kind == 3:
        return data[:at] + b"\xff" * 8 + data[at + 8 :]
    return data[:at] + data[at + int(rng.integers(1, 64)) :]


KINDS = {
    "hf": ("mlm", "bert_tiny"),
    "old": ("mlm", "bert_tiny"),
    "unilm": ("unilm", "unilm_tiny"),
    "glm": ("glm_infill", "glm_tiny"),
    "t5": ("seq2seq", "t5_tiny"),
    "mass": ("mass", "mass_tiny"),
    "xlm": ("mass_translation", "mass_translation"),
    "fairseq": ("bart", "bart_tiny"),
    "optimus": ("optimus", "optimus_tiny"),
    "mdlm": ("mdlm", "mdlm_tiny"),
}
"""Format -> the task and model that are in its checkpoint; "old": hf before safetensors."""
DICTIONARIES = {"xlm": XLMDictionary, "fairseq": FairseqDictionary}
FORMS = {"old": "hf", "t5": "hf", "xlm": "mass", "mdlm": "diffusion"}


def checkpoint(folder, kind, vocab):
    """A small checkpoint of a format; its files."""
    name, arch = KINDS[kind]
    task = get("task", name)
    folder.mkdir()
    form = FORMS.get(kind, kind)
    if kind in DICTIONARIES:
        vocab = adopt(DICTIONARIES[kind](b"".join(b"w%d 1\n" % i for i in range(40))))
    config = get("arch", arch)()
    model = (tiny(config) if config.width > 64 else config).build(len(vocab))
    parts = Loaded(model, task(task.Config(), vocab).with_trained(pairs=False), {}, {})
    get("format", form).write(parts, folder)
    if kind == "old":
        weights = folder / "model.safetensors"
        old = folder / "pytorch_model.bin"
        torch.save(load_file(weights), old, _use_new_zipfile_serialization=False)
        weights.unlink()
    return form, {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fuzz(tmp_path, kit, vocab_txt, kind, count, seed=0):
    rng = np.random.default_rng(seed)
    there, ours = tmp_path / "there", tmp_path / "ours"
    form, files = checkpoint(there, kind, open_vocab(vocab_txt))
    kit.to_unitk(form, there, ours)
    shutil.rmtree(ours)
    size = {path: len(data) for path, data in files.items()}
    weights = [path for path in files if size[path] > 50_000]
    ended = 0
    for number in range(count):
        victim = list(files)[number % len(files)] if number % 3 == 0 else rng.choice(weights)
        victim.write_bytes(mutated(files[victim], rng))
        try:
            kit.to_unitk(form, there, ours)
        except UnitkError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000
            assert not ours.exists()
            ended += 1
        else:  # nothing that could be noticed
            shutil.rmtree(ours)
        assert not list(tmp_path.glob(".*"))
        victim.write_bytes(files[victim])
    return ended


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_end_in_one_line(tmp_path, kit, vocab_txt, kind):
    assert fuzz(tmp_path, kit, vocab_txt, kind, 6) > 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_damaged_files_end_in_one_line(tmp_path, kit, vocab_txt, kind):
    # bits that flip within weights cannot be noticed
    assert fuzz(tmp_path, kit, vocab_txt, kind, 1000 // len(KINDS) + 1, seed=1) > 25


VALUES = [None, True, -1, 10**6, 10**30, 1.5, float("nan"), "x", [], [[]], ["x"], {}, {"0": []}]
MORE = ["model_type", "architectures", "id2label", "problem_type", "unitk", "weight_map"]


def other_values(tmp_path, vocab_txt, kind, values, chosen=()):
    """Read a checkpoint with each value in the place of each setting in its json, or the chosen."""
    form, files = checkpoint(tmp_path / "there", kind, open_vocab(vocab_txt))
    for path in files:
        if path.suffix != ".json" or path.name == "tokenizer.json":
            continue
        given = json.loads(files[path])
        for key in chosen or dict.fromkeys([*given, *MORE]):
            for value in values:
                path.write_text(json.dumps(given | {key: value}))
                with suppress(UnitkError):
                    get("format", form).read(tmp_path / "there")
        path.write_bytes(files[path])


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", ["hf", "t5", "mdlm"])
def test_settings_of_any_type_raise_nothing_else(tmp_path, vocab_txt, kind):
    chosen = ("model_type", "architectures", "feed_forward_proj", "bad_words_ids")
    other_values(tmp_path, vocab_txt, kind, (True, [[]], {}), chosen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hf", "t5", "unilm", "glm", "optimus", "mdlm"])
def test_all_settings_of_any_type_raise_nothing_else(tmp_path, vocab_txt, kind):
    other_values(tmp_path, vocab_txt, kind, VALUES)


def test_a_table_of_waves_is_not_made_of_any_size(tmp_path, kit, vocab_txt):
    """A fairseq checkpoint with sinusoidal positions says itself how many there are.

    One whose positions were learnt must have their table.
    """
    form, _ = checkpoint(tmp_path / "there", "fairseq", open_vocab(vocab_txt))
    path = tmp_path / "there" / "checkpoint_best.pt"
    found = torch.load(path, weights_only=False)
    for side in ("encoder", "decoder"):
        found["model"].pop(f"{side}.embed_positions.weight", None)
    torch.save(found, path)
    with pytest.raises(CheckpointError, match="no decoder.embed_positions.weight"):
        kit.to_unitk(form, tmp_path / "there", tmp_path / "ours")
    found["args"].encoder_learned_pos = found["args"].decoder_learned_pos = False
    found["args"].max_source_positions = found["args"].max_target_positions = 10**7
    torch.save(found, path)
    with pytest.raises(CheckpointError, match="max_target_positions cannot be 10000000"):
        kit.to_unitk(form, tmp_path / "there", tmp_path / "ours")


@pytest.mark.parametrize("name", names("format"))
def test_a_format_that_goes_one_way_refuses_the_other(name, tmp_path):
    """Every format reads or writes, and tells what it is in one line."""
    one = get("format", name)
    assert (one.find or one.write) and one.about.endswith(".") and "\n" not in one.about
    if one.find is None:
        with pytest.raises(UsageError, match=f"--from {name}: .*format"):
            convert.run(["--from", name, str(tmp_path), "--to", "unitk", str(tmp_path / "ours")])
    if one.write is None:
        with pytest.raises(UsageError, match=f"--to {name}: .*format"):
            convert.run(["--from", "unitk", "unitk-base-en", "--to", name, str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("line", "does"),
    [
        ("--from nosuch x --to unitk y", "find"),
        ("--from unitk unitk-base-en --to nosuch y", "write"),
    ],
)
def test_an_unknown_format_is_answered_with_those_that_go_that_way(line, does):
    with pytest.raises(UsageError) as caught:
        convert.run(line.split())
    told = str(caught.value).partition("known: ")[2].rstrip(")").split(", ")
    assert told == [one for one in names("format") if getattr(get("format", one), does)]


def test_a_line_says_what_was_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = []
    for words in (
        "--from unitk unitk-base-en --task lm --to hf there",
        "--from hf there --to unitk here",
        "--from unitk here --to unitk again",
    ):
        convert.run(words.split())
        lines += capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["there", "here", "again"]
    assert lines[0].removeprefix("there: hf, ") == lines[1].removeprefix("here: ")


@pytest.mark.parametrize(
    ("line", "better"),
    [
        ("--from runs/lm --to hf x", "--from unitk runs/lm"),
        ("--from unitk runs/lm --to x", "--to hf x"),
        ("--from bert --to unitk x", "--from hf bert"),
        ("--from hf bert --to x", "--to unitk x"),
        ("--from unitk --to hf x", "--from unitk PATH"),
    ],
)
def test_a_missing_format_is_the_one_that_the_other_side_lacks(line, better):
    with pytest.raises(UsageError, match=f" path: {better}$"):
        convert.run(line.split())
