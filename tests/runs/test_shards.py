"""Shards of a checkpoint, whichever process writes them, are the whole."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace

import pytest
import torch
from ranks import run_ranks
from torch import Tensor

from unitk.errors import CheckpointError, UsageError
from unitk.files import TEMPORARY
from unitk.runs import shards
from unitk.training.parallel import Group
from unitk.training.saving import checkpoint
from unitk.training.saving.folder import OPTIMIZER, RunFolder, find_checkpoint, stored_files
from unitk.training.saving.snapshot import Snapshot
from unitk.training.saving.weights import WEIGHTS, load_tensors, open_tensors
from unitk.training.start import parse_train, prepare
from unitk.verbs import convert

TENSORS = {
    "table": torch.arange(20.0).view(5, 4),
    "bias": torch.arange(3.0),
    "one": torch.ones(1, 2, dtype=torch.bfloat16),  # too short for all ranks
    "times": torch.tensor(7.0),
}


@dataclass
class One(Group):
    """One of three ranks, which knows what the others say."""

    said: list[str] = field(default_factory=list)

    def all_gather_texts(self, text: str) -> list[str]:
        return self.said


def rows(tensor: Tensor, rank: int, world: int) -> Tensor:
    """Those that FSDP gives to a rank."""
    parts = tensor.chunk(world) if tensor.dim() else ()
    return tensor if not tensor.dim() else parts[rank] if rank < len(parts) else tensor[:0]


def parts(world=3, patience=9.0):
    """The snapshots of the ranks."""
    each = [{n: rows(one, rank, world) for n, one in TENSORS.items()} for rank in range(world)]
    said = [
        json.dumps(
            {f: {n: len(t) for n, t in own.items() if t.dim()} for f in (WEIGHTS, OPTIMIZER)}
        )
        for own in each
    ]
    return [
        shards.divide_rows(
            Snapshot(4, {WEIGHTS: own, OPTIMIZER: own}, "{}", None, None),
            One(rank, world, apart=True, timeout=patience, said=said),
        )
        for rank, own in enumerate(each)
    ]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A checkpoint that three ranks have written."""
    monkeypatch.setattr("unitk.training.saving.snapshot.write_files", lambda folder, task: None)
    run = RunFolder(tmp_path / "run")
    run.create("")
    first, *others = parts()
    threads = [
        threading.Thread(target=one.publish, args=(run, one)) for one in (first, *others[::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return run.step(4)


def test_shards_are_the_whole(written):
    assert {WEIGHTS, OPTIMIZER} <= stored_files(written)
    assert not [*written.parent.glob(f"{TEMPORARY}*")]
    for file in (WEIGHTS, OPTIMIZER):
        found = load_tensors(written / file)
        assert found.keys() == TENSORS.keys()
        assert all(
            torch.equal(found[n], one) and found[n].dtype == one.dtype for n, one in TENSORS.items()
        )


def test_any_rows_are_read_without_the_others(written):
    for file in (WEIGHTS, OPTIMIZER):
        found = open_tensors(written / file)
        assert {name: kept.shape for name, kept in found.items()} == {
            name: one.shape for name, one in TENSORS.items()
        }
        for name, one in TENSORS.items():
            for first in range(len(one) + 1) if one.dim() else ():
                for count in range(len(one) + 1 - first):
                    assert torch.equal(found[name].read(first, count), one[first : first + count])
            assert torch.equal(found[name].read(), one)
    # a rank that is asked for its rows opens the others' files, and reads nothing of them
    whole, kept = found["table"].read(), found["table"]
    own = replace(kept, parts={at: part for at, part in kept.parts.items() if at == 2})
    assert torch.equal(own.read(2, 2), whole[2:4])


def test_they_are_files_of_torch_distributed_checkpoint(written):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    whole = {n: torch.zeros_like(one) for n, one in TENSORS.items() if one.dim()}
    reader = HuggingFaceStorageReader(str(written / "model.sharded"))
    dcp.load(whole, storage_reader=reader, no_dist=True)
    assert all(torch.equal(whole[n], TENSORS[n]) for n in whole)


def test_one_that_is_missing_or_says_nothing_is_told(written, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "LOOK", 0.001)
    run = RunFolder(tmp_path / "other")
    run.create("")
    with pytest.raises(OSError, match="shard-00002"):
        first = replace(parts(patience=0.01)[0], step=5)
        first.publish(run, first)
    assert not run.steps()
    file = sorted((written / "model.sharded").iterdir())[1]
    file.unlink()
    with pytest.raises(CheckpointError, match="shard-00002"):
        find_checkpoint(written)
    bare = tmp_path / "model.sharded"
    bare.mkdir()
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, bare / "shard-1.safetensors")
    with pytest.raises(CheckpointError, match="which rows of a"):
        load_tensors(tmp_path / WEIGHTS)


def test_the_optimizer_is_left_out_of_one_that_is_kept_by_name(written):
    run = RunFolder(written.parent.parent)
    run.publish(6, lambda path: (path / "x").write_text(""))
    run.prune(1, [], [4])
    assert OPTIMIZER not in stored_files(written) and WEIGHTS in stored_files(written)
    assert find_checkpoint(written) == written


def test_it_needs_shards(toy_data, tmp_path):
    words = f"--task lm --arch gpt2_tiny --data {toy_data}/text --save-dir {tmp_path / 'run'}"
    with pytest.raises(UsageError, match="--save-shards .*--shard$"):
        prepare(parse_train(f"{words} --save-shards --max-steps 1".split()))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_any_number_of_ranks_goes_on_from_shards(toy_data, tmp_path, optimizer):
    words = (
        f"--task glm_infill --arch glm_tiny --data {toy_data}/text --blocks line --block-size 64"
        " --max-tokens 270 --batch-tokens 1000 --precision fp32 --lr 1e-2 --writers none"
        " --lr-schedule constant:warmup=0"
        f" --rank-timeout 60 --threads 1 --optimizer {optimizer} --save-every 2 --shard"
    )
    whole, apart = tmp_path / "whole", tmp_path / "apart"
    assert run_ranks(f"{words} --max-steps 6 --save-dir {whole}", 2) == [0, 0]
    again = f"{words} --save-dir {apart} --save-shards"
    assert run_ranks(f"{again} --max-steps 3", 2) == [0, 0]
    assert (apart / "last/optim.sharded").is_dir()
    assert run_ranks(f"{again} --max-steps 6 --resume", 2) == [0, 0]
    a, b = (load_tensors(find_checkpoint(run) / WEIGHTS) for run in (whole, apart))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    # joined, it is that of any run; one process goes on from the shards
    convert.run(f"--from unitk {apart} --to unitk {tmp_path / 'joined'}".split())
    joined = load_tensors(tmp_path / "joined" / WEIGHTS)
    assert all(torch.equal(a[name], joined[name]) for name in a)
    assert checkpoint.load(tmp_path / "joined").model is not None
    assert run_ranks(
        f"{words} --save-dir {apart} --max-steps 8 --resume".replace(" --shard", ""), 1
    ) == [0]
    assert (apart / "last" / WEIGHTS).is_file() and (apart / "last" / OPTIMIZER).is_file()
