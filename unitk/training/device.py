"""Devices, their memory, and the random seeds of a run."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unitk.errors import UsageError, require


def choose_device(name: str, local: int = 0) -> torch.device:
    """The device that `--device` names, for process `local` of this machine; auto prefers CUDA.

    On CUDA, fp32 is then fp32 everywhere in the process.
    """
    available = torch.cuda.is_available()
    require(available or name != "cuda", "--device cuda: PyTorch finds no CUDA GPU")
    if not available or name == "cpu":
        return torch.device("cpu")
    # cuDNN would round the inputs of LSTMs and convolutions to TF32, which has 10 bits
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if local >= (count := torch.cuda.device_count()):
        raise UsageError(f"--nproc: process {local} has no GPU: this machine has {count}")
    return torch.device("cuda", local)


def named_device(name: str | torch.device) -> torch.device:
    """The device that Python names: auto, cpu, cuda, or another of torch's, such as cuda:1."""
    if name == "auto":
        return choose_device("auto")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, got {name!r}") from error
    return choose_device("cuda", device.index or 0) if device.type == "cuda" else device


@contextmanager
def frozen_objects(device: torch.device) -> Iterator[None]:
    """On a GPU, which waits for Python, a context in which garbage is looked for among new objects
    alone."""
    if device.type != "cuda":
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def check_model_fits(arch: Any, vocab_size: int, size: float, device: torch.device) -> None:
    """Raise `UsageError` if a model cannot fit into memory, before it is built.

    `size`: bytes per weight.
    """
    count = arch.num_weights(vocab_size)
    free = free_memory(device)
    require(
        count * size <= free,
        f"--arch: about {count / 1e6:,.0f} M parameters need {count * size / 1e9:,.1f} GB "
        f"({size:g} bytes each), but {free / 1e9:,.1f} GB are free: choose a smaller --arch, or "
        "lower --arch.num-layers and --arch.width",
    )


def free_memory(device: torch.device) -> float:
    """Bytes that can still be allocated, including swap, as far as the system reports them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        rows = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    except OSError:  # not Linux
        return math.inf
    size = {name: 1024.0 * int(number) for name, number, *_ in rows}
    return size["MemAvailable:"] + size["SwapFree:"]


def derive_seed(seed: int, *numbers: int) -> int:
    """A seed for torch, made from the run's seed and a purpose (step, micro-batch)."""
    return int(np.random.SeedSequence(seed, spawn_key=numbers).generate_state(1, np.uint64)[0])


def reseed(device: torch.device, seed: int) -> None:
    """Seed the device's generator (`torch.manual_seed` seeds all, six times as slowly)."""
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
