"""Where, in which precision and with which random numbers a run computes."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import nn

from unitk.errors import UsageError
from unitk.models.layers import FeedForward, Layer
from unitk.models.stack import Model, Stack
from unitk.train.config import TrainConfig


def choose_device(config: TrainConfig, local: int = 0) -> torch.device:
    """The device of `--device`, for process `local` of this machine; auto: CUDA where it is."""
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(config.deterministic)
    found = torch.cuda.is_available()
    if config.device == "cuda" and not found:
        raise UsageError("--device cuda: PyTorch finds no CUDA GPU")
    if not found or config.device == "cpu":
        return torch.device("cpu")
    if local >= torch.cuda.device_count():
        raise UsageError(
            f"process {local} of this machine has no GPU: there are {torch.cuda.device_count()}"
        )
    return torch.device("cuda", local)


def prepare_model(model: nn.Module, config: TrainConfig) -> None:
    """What `--recompute`, `--compile` and the device make of a model, but for rounding the same."""
    if config.attention == "flex" and next(model.parameters()).is_cpu:
        raise UsageError("--attention flex needs CUDA: on a CPU FlexAttention has no backward")
    lean = next(model.parameters()).is_cpu and not config.shard
    for part in model.modules():
        if isinstance(part, Stack):
            part.recompute, part.attention = config.recompute, config.attention
        if isinstance(part, FeedForward):
            part.lean = lean and not (config.recompute or config.compile)
        if config.compile and isinstance(part, Layer):
            part.compile()  # layer by layer: all of them are one piece of code
        if isinstance(part, Model):
            part.embed.tokens.lean = lean and part.config.tied


def choose_precision(config: TrainConfig, device: torch.device) -> str:
    """The precision of `--precision`; auto: bf16 where the processor multiplies in it."""
    if config.precision != "auto":
        return config.precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    can = torch.cpu.get_capabilities()
    return "bf16" if can.get("avx512_bf16") or can.get("amx_bf16") else "fp32"


def mix(seed: int, *numbers: int) -> int:
    """A seed for torch from the run's seed and what it is for (step, micro-batch)."""
    sequence = np.random.SeedSequence(seed, spawn_key=numbers)
    return int(sequence.generate_state(1, np.uint64)[0])


def reseed(device: torch.device, seed: int) -> None:
    """Seed the device's generator (`torch.manual_seed` seeds all, six times as slowly)."""
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
