"""What a process frees it uses again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from unitk.kernels.products import keep_memory

keep_memory()
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)  # 64 MB: above every threshold that glibc sets by itself
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = (4 << 24) // 4096  # of such a tensor


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_that_is_freed_is_used_again():
    """In a process of its own: what other tests have left would decide where a tensor is put."""
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    faults = [int(line) for line in printed.stdout.split()]
    assert len(faults) == 20
    assert min(faults) < PAGES / 100  # other memory may come between the first ones
