"""Runs of several processes, forked from this one.

They compute on the CPU. Where there is a GPU they are skipped: once a process has computed
gradients beside one, even on the CPU, torch refuses to in its forks. Without a GPU they run.
"""

import multiprocessing
import os
import socket
import sys

import pytest
import torch

from unitk.errors import UnitkError
from unitk.training import loop
from unitk.training.start import parse_train, prepare


def start_forks(action, world, ranked=True):
    """Fork this process `world` times; each fork calls `action(rank)`.

    ranked: with the variables that `torchrun` sets.
    """
    if torch.cuda.is_available():
        pytest.skip("no gradients in forks beside a GPU: CUDA_VISIBLE_DEVICES= hides it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def child(rank):
        if ranked:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
            os.environ |= {name: str(value) for name, value in names.items()}
            os.environ["MASTER_ADDR"] = "127.0.0.1"
        try:
            action(rank)
        except UnitkError as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(error.code)
        except SystemExit as exit:
            os._exit(exit.code)
        os._exit(0)

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=child, args=(rank,)) for rank in range(world)]
    for process in processes:
        process.start()
    return processes


def exit_codes(processes):
    """Wait for processes; their exit codes."""
    for process in processes:
        process.join(240)
        assert process.exitcode is not None, "a process hangs"
    return [process.exitcode for process in processes]


def run_ranks(words, world, before=lambda rank: None):
    """Train in `world` forks of this process, on the CPU; their exit codes."""

    def action(rank):
        before(rank)
        loop.train(prepare(parse_train([*words.split(), "--device=cpu"])))

    return exit_codes(start_forks(action, world))
