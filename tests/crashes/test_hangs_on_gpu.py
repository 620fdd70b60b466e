"""Kernels on a GPU that never end: stopped, and reported by line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tkdebug.cli.command import FAULT_STATUS
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault

SCRIPT = Path(__file__).parents[1] / "native" / "hanging_kernels.py"
LINES = {
    text.partition(mark)[2]: number
    for number, text in enumerate(SCRIPT.read_text().splitlines(), start=1)
    for mark in ("# waits: ", "# outside: ")
    if mark in text
}
BY_MASK, BY_LOAD = LINES["by its mask"], LINES["by what it loads"]

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


def places(faults):
    return {(one["kind"], one["line"]) for one in faults}


# 56 of 200 to 255, and 32 in each of three programs.
OUTSIDE = {("oob-store", BY_MASK): 56, ("oob-store", BY_LOAD): 96}


@pytest.mark.parametrize("how", ["dumped", "undumped"])
def test_faults_of_a_kernel_that_hangs_are_reported(tmp_path, how):
    report = tmp_path / "report.json"
    if how == "dumped":
        command_line = command(report, "--hang-timeout", "1", SCRIPT, "outside")
        subprocess.run(command_line, timeout=60, check=False, capture_output=True)
    else:
        interrupted(report, SCRIPT, "outside")
    faults = json.loads(report.read_text())["faults"]
    assert places(faults) >= set(OUTSIDE)
    assert "hang" in {one["kind"] for one in faults}
    for one in faults:
        if one["kind"] != "hang":
            # The last elements may have come after the last example.
            wanted = OUTSIDE[one["kind"], one["line"]]
            assert 0 < one["count"] <= wanted
            assert one["tensor"] == "out"
            assert one["index"] == (200 if one["line"] == BY_MASK else 500)


def test_faults_of_a_kernel_are_in_the_session_while_it_runs(tmp_path):
    path = tmp_path / "run.tkd"
    script = subprocess.Popen(
        command(tmp_path / "report.json", "-o", str(path), SCRIPT, "outside_slow"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert script.stdout.readline() == "launched\n"
        seen = {}
        until = time.monotonic() + 5
        while len(seen) < 2 and time.monotonic() < until:
            time.sleep(0.2)
            with Session.open(path) as session:
                seen = {one.fault.line: one for one in session.running_faults()}
                reported = session.records(Fault)
        assert script.poll() is None
        assert seen.keys() == {BY_MASK, BY_LOAD}
        assert not reported
        assert seen[BY_LOAD].fault.program_id in {(0, 0, 0), (1, 0, 0), (2, 0, 0)}
        assert "while its launch runs" in seen[BY_MASK].fault.message
        assert script.wait(30) == FAULT_STATUS
    finally:
        script.kill()
    with Session.open(path) as session:
        assert session.running_faults() == ()
        found = {(one.fault.kind, one.fault.line): one.count for one in session.fault_groups()}
    assert found == OUTSIDE
