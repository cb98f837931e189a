"""Where and in which precision a run computes."""

from __future__ import annotations

import torch

from unitk.errors import UsageError
from unitk.train.config import TrainConfig


def choose_device(config: TrainConfig) -> torch.device:
    """The device of `--device`; auto: CUDA where there is a GPU."""
    found = torch.cuda.is_available()
    if config.device == "cuda" and not found:
        raise UsageError("--device cuda: PyTorch finds no CUDA GPU")
    return torch.device("cuda" if found and config.device != "cpu" else "cpu")


def choose_precision(config: TrainConfig, device: torch.device) -> str:
    """The precision of `--precision`; auto: bf16 where the processor multiplies in it."""
    if config.precision != "auto":
        return config.precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    can = torch.cpu.get_capabilities()
    return "bf16" if can.get("avx512_bf16") or can.get("amx_bf16") else "fp32"
