"""Peak memory of a launch with a large grid stays near the budget."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Without a budget, each of them needs more.
BUDGET = 16 << 20


KERNELS = ("elementwise", "gather", "atomics", "tiles", "scan", "numbers")


@pytest.fixture(scope="module")
def rises():
    """Return how far each kernel's peak memory rises."""
    script = Path(__file__).with_name("memory_kernels.py")
    # Freed tiles go back to the system at once: what the heap keeps for later is not the launch's.
    allocator = {"MALLOC_MMAP_THRESHOLD_": "131072"}
    environment = {**os.environ, **allocator, "TKDEBUG_MEMORY_BUDGET": str(BUDGET)}
    done = subprocess.run(
        [sys.executable, script, *KERNELS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc")
@pytest.mark.parametrize("name", KERNELS)
def test_peak_stays_near_the_budget(name, rises):
    assert rises[name] < BUDGET
