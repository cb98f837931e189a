"""Checkpoints whose tensors are divided among files, one of each process (`--save-shards`).

    model.sharded/shard-00002-model-00001-of-00001.safetensors   in place of model.safetensors
    optim.sharded/...                                            in place of optim.safetensors

These are the safetensors files of torch.distributed.checkpoint (`HuggingFaceStorageReader`): the
metadata of each say where in the whole tensors its parts begin. A process writes its own files
beside the checkpoint that the first one is writing, which takes them in when all are there.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import Tensor

from unitk.files import TEMPORARY, discard, fill_whole, finish
from unitk.registry import register
from unitk.training.parallel import Group
from unitk.training.saving.folder import OPTIMIZER, SHARDED, RunFolder
from unitk.training.saving.snapshot import Snapshot, write
from unitk.training.saving.weights import OFFSETS, SHARDS, WEIGHTS, save_tensors

LOOK = 0.02  # seconds between two looks for the files of other processes


@register("measure", "shards")
def divide_rows(taken: Snapshot, ranks: Group) -> Snapshot:
    """A snapshot of the rows that this rank holds, which it writes; all ranks call it at once."""
    whole = dict(taken.files)
    own_rows = dict[str, dict[str, Tensor]]()
    for file in (WEIGHTS, OPTIMIZER):
        tensors = whole.pop(file)
        # what is not divided, such as the number of updates, is the first rank's
        own_rows[file] = {
            name: tensor for name, tensor in tensors.items() if ranks.leads or tensor.dim()
        }
    lengths = {
        file: {name: len(tensor) for name, tensor in tensors.items() if tensor.dim()}
        for file, tensors in own_rows.items()
    }
    # how many rows come before its own, each rank counts from what all of them hold
    lengths_of_ranks = [json.loads(text) for text in ranks.all_gather_texts(json.dumps(lengths))]
    files = whole if ranks.leads else {}
    metadata = dict[str, dict[str, str]]()
    for file, tensors in own_rows.items():
        held = {name: tensor for name, tensor in tensors.items() if ranks.leads or len(tensor)}
        earlier = [lengths_of_rank[file] for lengths_of_rank in lengths_of_ranks[: ranks.rank]]
        before = {name: sum(rows[name] for rows in earlier) for name in held}
        places = {
            name: {OFFSETS: [before[name], *[0] * (tensor.dim() - 1)] if tensor.dim() else []}
            for name, tensor in held.items()
        }
        name = part_name(file, ranks.rank)
        files[name] = held
        metadata[name] = {SHARDS: json.dumps(places)}
    publish: Callable[[RunFolder, Snapshot], bool] = hand_over
    if ranks.leads:
        others = [part_name(file, rank) for file in own_rows for rank in range(1, ranks.world)]
        # bound here, as a saver knows nothing of ranks
        publish = partial(take_in, others, ranks.timeout)
    return replace(taken, files=files, metadata=metadata, publish=publish)


def part_name(file: str, rank: int) -> str:
    """The name of the part of a file that a rank writes."""
    folder = Path(file).with_suffix(SHARDED)
    return f"{folder}/shard-{rank + 1:05}-model-00001-of-00001.safetensors"


def hand_over(folder: RunFolder, snapshot: Snapshot) -> bool:
    """Write this rank's part, which rank 0 takes in; returns False: nothing is published."""
    for name, tensors in snapshot.files.items():
        path = rank_folder(folder, snapshot) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with fill_whole(path) as part:
            save_tensors(tensors, part, snapshot.metadata[name])
    return False


def take_in(others: Sequence[str], patience: float, folder: RunFolder, snapshot: Snapshot) -> bool:
    """Publish a checkpoint with the files of the other ranks; returns True.

    Raises OSError if the disk does, or one of them is not there after `patience` seconds.
    """

    def fill(path: Path) -> None:
        write(path, snapshot)
        end = time.monotonic() + patience
        for name in others:
            part = rank_folder(folder, snapshot) / name
            while not part.exists():
                if time.monotonic() > end:
                    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(part))
                time.sleep(LOOK)
            # in one rename: a part that exists is whole
            finish(part, path / name)

    folder.publish(snapshot.step, fill)
    # empty folders are left of it
    discard(rank_folder(folder, snapshot), folder.checkpoints)
    return True


def rank_folder(folder: RunFolder, snapshot: Snapshot) -> Path:
    """The temporary folder into which the ranks other than rank 0 write."""
    return folder.checkpoints / f"{TEMPORARY}shards-{snapshot.step}"
