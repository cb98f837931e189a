"""Where and in which precision a run computes."""

from __future__ import annotations

import torch

from unitk.errors import UsageError
from unitk.train.config import TrainConfig


def choose_device(config: TrainConfig, local: int = 0) -> torch.device:
    """The device of `--device`, for process `local` of this machine; auto: CUDA where it is."""
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


def choose_precision(config: TrainConfig, device: torch.device) -> str:
    """The precision of `--precision`; auto: bf16 where the processor multiplies in it."""
    if config.precision != "auto":
        return config.precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    can = torch.cpu.get_capabilities()
    return "bf16" if can.get("avx512_bf16") or can.get("amx_bf16") else "fp32"
