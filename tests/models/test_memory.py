"""What a process frees it uses again, and returns where that grows."""

import ctypes
import platform
import resource
import subprocess
import sys

import pytest
import torch

from unitk.kernels import products

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
GAPS = """
import ctypes, sys, time, torch
from unitk.kernels import products

products.KEPT, products.SECONDS = 64 << 20, 0.05
if sys.argv[1] == "off":
    products.return_gaps = lambda libc: None
products.keep_memory()
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = products.Heap
blocks = [torch.ones(1 << size) for _ in range(200) for size in (18, 10)]  # of 1 MB and 4 kB
left = blocks[1::2]
del blocks
first = products.spare(libc)
for _ in range(400 if sys.argv[1] == "on" else 20):
    time.sleep(0.05)
    if (now := products.spare(libc)) < first / 2:
        break
assert all(bool((one == 1).all()) for one in left)
print(first, now)
"""


def test_memory_that_is_freed_is_used_again():
    products.keep_memory()
    faults = []
    for _ in range(20):  # what else is allocated may split what was freed
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        size = torch.ones(1 << 24).nbytes  # 64 MB: above every threshold that glibc sets by itself
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults) < size / 4096 / 100


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc before 2.33")
@pytest.mark.parametrize("watched", ["on", "off"])
def test_gaps_between_blocks_in_use_are_returned(watched):
    command = [sys.executable, "-c", GAPS, watched]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    first, now = map(int, found.stdout.split())
    assert first > 200 << 20 and (now < first / 2) == (watched == "on")


def test_a_process_without_descriptors_says_nothing_about_its_heap(monkeypatch, tmp_path):
    monkeypatch.setattr(products, "STATUS", tmp_path)  # a folder, which cannot be read
    assert products.spare(ctypes.CDLL(None)) == 0
