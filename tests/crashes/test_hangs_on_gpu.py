"""Kernels on a GPU that never end: stopped, and reported by line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "native" / "hanging_kernels.py"
LINES = {
    text.partition("# waits: ")[2]: number
    for number, text in enumerate(SCRIPT.read_text().splitlines(), start=1)
    if "# waits: " in text
}

pytestmark = pytest.mark.gpu


def command(report, *arguments):
    own = ("run", "--no-tui", "--mode", "native", "--report", str(report))
    return [sys.executable, "-m", "tkdebug", *own, *arguments]


def the_fault(report):
    (fault,) = json.loads(report.read_text())["faults"]
    return fault


def test_lock_that_is_kept_is_reported_after_a_time(tmp_path):
    report = tmp_path / "report.json"
    ended = subprocess.run(
        command(report, "--hang-timeout", "1", SCRIPT, "lock"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    fault = the_fault(report)
    assert (fault["kind"], fault["line"], fault["kernel"]) == ("hang", LINES["lock"], "lock_kept")
    # One program took the lock and has ended; three of 4 warps wait for it.
    assert fault["count"] == 12
    assert "launch 1" in fault["message"]
    assert ended.returncode == 1
    assert "names nothing that crashed" not in ended.stderr
    assert "1 launch of 1 kernel (1 of them checked" in ended.stderr
    assert ended.stderr.endswith(", 1 fault\n")


def test_missing_arrival_at_an_mbarrier_is_reported_by_line(tmp_path):
    report = tmp_path / "report.json"
    began = time.monotonic()
    subprocess.run(
        command(report, "--hang-timeout", "1", SCRIPT, "arrival"), timeout=60, check=False
    )
    fault = the_fault(report)
    assert (fault["kind"], fault["line"], fault["count"]) == ("hang", LINES["arrival"], 2)
    assert "of 2 programs, 2 are on the GPU" in fault["message"]
    # The script starts CUDA, and compiles, before it hangs.
    assert time.monotonic() - began < 30


def interrupted(report, *arguments):
    """Ctrl-C once the script waits in the driver: exit status, stderr, seconds until it ended."""
    script = subprocess.Popen(
        command(report, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may have had background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert script.stdout is not None
        assert script.stdout.readline() == "launched\n"
        time.sleep(1)
        began = time.monotonic()
        script.send_signal(signal.SIGINT)
        _, err = script.communicate(timeout=30)
    finally:
        script.kill()
    return script.returncode, err, time.monotonic() - began


def test_programs_that_wait_for_each_other_are_reported_by_ctrl_c(tmp_path):
    report = tmp_path / "report.json"
    status, err, _ = interrupted(report, "--coredump", SCRIPT, "each_other", "item")
    fault = the_fault(report)
    assert (fault["kind"], fault["line"]) == ("hang", LINES["each_other"])
    assert [frame["function"] for frame in fault["call_chain"]] == ["each_other", "wait_for"]
    assert (fault["count"], fault["program_id"]) == (8, [0, 0, 0])
    assert "of 6 programs, 2 are on the GPU, 4 have ended" in fault["message"]
    assert status == 130
    assert "KeyboardInterrupt" in err
    assert "1 launch of 1 kernel (1 of them checked" in err
    assert err.endswith(", 1 fault\n")


def test_without_core_dump_the_launch_is_named_and_the_script_ends(tmp_path):
    report = tmp_path / "report.json"
    status, err, seconds = interrupted(report, SCRIPT, "lock")
    fault = the_fault(report)
    assert (fault["kind"], fault["kernel"]) == ("hang", "lock_kept")
    assert "kernel[(programs,)](flags, out, B=128)" in err
    assert "--coredump or --hang-timeout" in fault["message"]
    assert status == 130
    assert seconds < 8
