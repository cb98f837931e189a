"""What a process frees it uses again."""

import platform
import resource

import pytest
import torch

from unitk.kernels import products

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


def test_memory_that_is_freed_is_used_again():
    products.keep_memory()
    faults = []
    for _ in range(20):  # what else is allocated may split what was freed
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        size = torch.ones(1 << 24).nbytes  # 64 MB: above every threshold that glibc sets by itself
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults) < size / 4096 / 100
