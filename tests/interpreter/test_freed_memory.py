"""Temporaries of interpreted launches lie in memory that the process has kept."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from tkdebug.interpreter import torch_state

# Prints how often the median launch had the system give it a page: on a busy machine single
# launches were given some.
SCRIPT = """
import resource
import statistics
import torch
import tkdebug
import tkdebug.language as tl

@tkdebug.jit
def softmax(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.exp(tl.load(x_ptr + at) - 1)
    y = x / tl.sum(x, 0)
    tl.store(out_ptr + at, tl.exp(y) + x * y)

x = torch.rand(2048, 1024)
out = torch.empty_like(x)
pages = []
for _ in range(30):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    softmax[(2048,)](x, out, BLOCK=1024)
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(int(statistics.median(pages[10:])))
"""


def pages_of_launch(**environment: str) -> int:
    command = [sys.executable, "-c", SCRIPT]
    variables = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        command,
        env={**variables, "TKDEBUG_MODE": "interpret", **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")
def test_launches_take_no_new_pages() -> None:
    by_default = pages_of_launch(MALLOC_TRIM_THRESHOLD_="131072")
    assert by_default > 1000
    assert pages_of_launch() < by_default // 10


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(library: object) -> None:
        raise AssertionError("mallopt was called")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    monkeypatch.setenv(name, "1")
    torch_state.keep_freed_memory.__wrapped__()
    monkeypatch.delenv(name)
    with pytest.raises(AssertionError):
        torch_state.keep_freed_memory.__wrapped__()


def test_another_c_library_has_no_such_function(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(ctypes, "CDLL", asked.append)  # None has no `mallopt`
    torch_state.keep_freed_memory.__wrapped__()
    assert asked == [None]
