"""`tkdebug run --mode native`, from the command line to the report, on an interpreting device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interpreting_device import InterpretingDevice
from schedule_backend import ScheduleBackend

from tkdebug.cli import main
from tkdebug.compiler.targets import register_backend
from tkdebug.compiler.targets.registered_backends import forget_backend
from tkdebug.interpreter.closer_looks import closer_look
from tkdebug.runtime.checked import builds, closer_looks, held_launch
from tkdebug.runtime.checked.checked_launches import CHECKED
from tkdebug.runtime.checked.closer_looks import MOST_LOOKS_AT_THREADS
from tkdebug.runtime.device.platform import platform

_UNWRITTEN = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
x = torch.empty(500)
x[:400] = 1
double[(5,)](x, torch.empty(500), 500, BLOCK=128)
"""
_UNWRITTEN_LATER = _UNWRITTEN.replace(
    "double[",
    """for x in [
    torch.ones(500, dtype=torch.int32), torch.empty(500, dtype=torch.int32)]:
    double[""",
).replace("torch.empty(500), 500", "torch.zeros_like(x), 500")


@pytest.fixture
def device():
    register_backend(ScheduleBackend())
    found = InterpretingDevice()
    CHECKED.renew_locks()
    try:
        with platform(found):
            yield found
    finally:
        forget_backend("schedule")
        CHECKED.renew_locks()


def run(script: str, folder: Path, *options: str) -> int:
    path = folder / "script.py"
    path.write_text(script, "utf-8")
    return main(["run", "--no-tui", "--mode", "native", *options, str(path)])


def test_reads_of_what_nothing_has_written_are_told(device, tmp_path, capsys):
    status = run(_UNWRITTEN, tmp_path, "--check", "uninitialised-read")
    told = capsys.readouterr().err
    assert "uninitialised-read in double: load reads offset 400 of `x`" in told
    assert "100 times" in told
    assert status == 3
    assert device.is_checked == [True]


def test_read_in_a_launch_like_one_that_was_right(device, tmp_path, capsys):
    options = ("--check", "uninitialised-read", "--ignore", "nan")
    assert run(_UNWRITTEN_LATER, tmp_path, *options) == 3
    assert "uninitialised-read in double" in capsys.readouterr().err
    assert device.is_checked == [True, True]


_RACE = """
import torch, triton, triton.language as tl
@triton.jit
def count(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = out + tl.load(x + at)
    tl.store(bins, tl.load(bins) + 1)
count[(4,)](torch.arange(64, dtype=torch.int32) % 20, torch.zeros(20, dtype=torch.int32), BLOCK=16)
"""


def test_races_are_told_from_the_log_of_accesses(device, tmp_path, capsys):
    assert run(_RACE, tmp_path, "--check", "race") == 3
    told = capsys.readouterr().err
    assert "script.py:7: race in count: store writes offset 0 of `out`, which program" in told
    assert "1 launch of 1 kernel (1 of them checked), 1 fault" in told


_RATIO = """
import torch, triton, triton.language as tl
@triton.jit
def ratio(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n)
    tl.store(out + at, a / b, mask=at < n)
    tl.store(out + at, tl.load(out + at, mask=at < n) + 1, mask=at < n)
x, y, out = torch.zeros(100), torch.ones(100), torch.zeros(100)
y[90] = 0
ratio[(2,)](x, y, out, 100, BLOCK=64)
"""


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--check", "race"),
        ("--check", "race", "--check", "uninitialised-read", "--check", "inf"),
        ("--watch", "script.py:6:a"),
    ],
)
def test_stored_nan_is_found_with_whatever_is_looked_for_besides(
    device, tmp_path, capsys, monkeypatch, options
):
    monkeypatch.chdir(tmp_path)
    assert run(_RATIO, tmp_path, *options) == 3
    assert "script.py:7: nan in ratio: a NaN is made here" in capsys.readouterr().err


def test_kernel_that_cannot_be_logged_is_checked_for_the_rest(device, tmp_path, capsys):
    device.memory.is_mapped = False
    assert run(_RATIO, tmp_path, "--check", "race") == 3
    told = capsys.readouterr().err
    assert "kernel ratio: its launches are not checked for race: TkError" in told
    assert "script.py:7: nan in ratio: a NaN is made here" in told
    assert device.is_checked == [True]


def test_all_are_the_checks_of_native_kernels_and_the_others_are_named_once(
    device, tmp_path, capsys
):
    builds._tell_once.cache_clear()
    assert run(_RATIO + _RACE, tmp_path, "--check", "all") == 3
    told = capsys.readouterr().err
    assert told.count("native kernels are not checked for unwritten-output; use") == 1
    assert "nan in ratio: a NaN is made here" in told
    assert "race in count: store writes offset 0 of `out`" in told
    assert "2 launches of 2 kernels (2 of them checked)" in told


_COPIED = """
import torch, triton, triton.language as tl
@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))
for n in range(8):
    x = torch.full((64 + 64 * n,), float("-inf"))
    copy[(1 + n,)](x, torch.zeros_like(x), BLOCK=64)
"""


def test_infinities_that_are_copied_are_no_faults(device, tmp_path, capsys):
    assert run(_COPIED, tmp_path) == 0
    told = capsys.readouterr().err
    assert "8 launches of 1 kernel (8 of them checked), no faults" in told
    assert "Inf" not in told


def test_nan_is_found_after_looks_at_infinities_that_found_nothing(device, tmp_path, capsys):
    script = """
import torch, triton, triton.language as tl
@triton.jit
def ratio(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) / tl.load(y + at))
for n in range(8):
    x = torch.full((64 + 64 * n,), 0.0 if n == 6 else float("-inf"))
    y = torch.full_like(x, 0.0 if n == 6 else 1.0)
    ratio[(1 + n,)](x, y, torch.zeros_like(x), BLOCK=64)
"""
    assert run(script, tmp_path) == 3
    assert "script.py:6: nan in ratio: a NaN is made here" in capsys.readouterr().err


_COPIES = """
import torch, triton, triton.language as tl
@triton.jit
def mean(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=1.0)
    tl.store(out + tl.program_id(0), tl.sum(row, 0).to(tl.int8))
x = torch.full((4, 60), 3.0)
mean[(4,)](x, torch.zeros(4, dtype=torch.int8), 60, BLOCK=64)
"""


def test_launches_are_interpreted_for_what_no_device_sees(device, tmp_path, capsys):
    options = ("--check", "narrowing", "--check", "padding")
    assert run(_COPIES, tmp_path, *options) == 3
    told = capsys.readouterr().err
    assert "script.py:7: narrowing in mean" in told
    assert "script.py:7: padding in mean" in told
    assert "1 launch of 1 kernel (1 of them checked), 2 faults" in told


def test_launches_are_not_interpreted_unless_that_is_asked_for(device, tmp_path, monkeypatch):
    monkeypatch.setattr(held_launch.HeldArguments, "copies", None)
    assert run(_COPIES, tmp_path) == 0


def test_launch_that_takes_too_long_to_interpret_is_named(device, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(closer_look, "WHOLE_S", -1.0)
    assert run(_COPIES, tmp_path, "--check", "narrowing") == 0
    told = capsys.readouterr().err
    said = "script.py:4: not all checked launches of mean are checked for narrowing: that takes"
    assert said in told


_TURNED = """
import torch, triton, triton.language as tl
@triton.jit
def turned(scratch, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch + at, at * 2)
    tl.debug_barrier()
    last = tl.program_id(0) * BLOCK + BLOCK - 1
    tl.store(out + at, tl.load(scratch + last - tl.arange(0, BLOCK)))
for programs in range(1, 5):
    numbers = torch.zeros(128 * programs, dtype=torch.int32)
    turned[(programs,)](numbers, numbers.clone(), BLOCK=128)
"""


def test_summary_says_how_many_launches_got_which_check(device, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(closer_looks, "MOST_LOOKS", 3)
    CHECKED.renew_locks()
    report = tmp_path / "report.json"
    options = ("--check", "narrowing", "--check", "race", "--report", str(report))
    assert run(_TURNED, tmp_path, *options) == 0
    *_, differing, last = capsys.readouterr().err.splitlines()
    by_check = {"narrowing": 3, "race": 4, "thread-order": MOST_LOOKS_AT_THREADS}
    assert differing == (
        "tkdebug: turned: of 4 checked launches, 3 for narrowing; 2 for thread-order"
    )
    assert "4 launches of 1 kernel (4 of them checked" in last
    kernels = json.loads(report.read_text("utf-8"))["checked_launches"]["kernels"]
    assert kernels == [{"kernel": "turned", "checked": 4, "by_check": by_check}]


def test_check_that_no_launch_got_is_named_in_the_summary(device, tmp_path, capsys):
    assert run(_COPIES, tmp_path, "--check", "narrowing", "--ignore", "narrowing") == 0
    assert "checked launch" not in capsys.readouterr().err
    device.memory.holds = True
    assert run(_COPIES + "x += 1\n", tmp_path, "--check", "narrowing") == 0
    assert "mean: of 1 checked launch, none for narrowing" in capsys.readouterr().err


def test_launch_whose_arguments_are_gone_is_named(device, tmp_path, capsys):
    device.memory.holds = True
    changed = _COPIES + "x += 1\n"
    assert run(changed, tmp_path, "--check", "narrowing") == 0
    said = "its arguments cannot be looked at again, as some of them have changed"
    assert said in capsys.readouterr().err


def test_launch_after_the_time_of_all_looks_is_named(device, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(closer_looks, "ALL_ASKED_S", 0.0)
    CHECKED.renew_locks()
    assert run(_COPIES, tmp_path, "--check", "narrowing") == 0
    said = "script.py:4: not all checked launches of mean are checked for narrowing: 16 of"
    assert said in capsys.readouterr().err
