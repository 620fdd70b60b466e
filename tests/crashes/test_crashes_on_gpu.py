"""Crashes on a GPU, each in a process of its own, are attributed to the exact line."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from dumps import LINES, SCRIPT

from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault

pytestmark = pytest.mark.gpu


class Run:
    def __init__(self, folder, *arguments, options=(), environment=None, coredump=True):
        report = folder / "report.json"
        session = folder / "run.tkd"
        command = [sys.executable, "-m", "tkdebug", "run", "--no-tui", "--mode", "native"]
        # A checked build masks off the very lanes whose accesses would crash.
        command += ["--check-launches", "none", "--coredump"][: 2 + coredump]
        command += ["--report", str(report), "-o", str(session), *options, str(SCRIPT), *arguments]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_COREDUMP")}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            env={**inherited, **(environment or {})},
        )
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.report = json.loads(report.read_text())
        self.session = session

    @property
    def fault(self):
        (fault,) = self.report["faults"]
        return fault


@pytest.fixture
def run(tmp_path):
    return lambda *arguments, **options: Run(tmp_path, *arguments, **options)


@pytest.mark.parametrize(
    ("case", "kind", "error"),
    [
        ("load", "illegal-address", "illegal memory access"),
        ("store", "illegal-address", "illegal memory access"),
        ("misaligned", "misaligned", "misaligned address"),
        ("trap", "trap", "CUDA error"),
        # A tensor map cannot be made of it.
        ("descriptor", "trap", "CUDA error"),
        ("assert", "assert", "device-side assert"),
    ],
)
def test_crash_names_its_line_and_torch_raises_as_before(run, case, kind, error):
    result = run(case)
    assert result.status == 1
    assert "AcceleratorError" in result.err or "RuntimeError" in result.err
    assert error in result.err
    line = LINES[f"crash: {case}"]
    assert (result.fault["kind"], result.fault["line"]) == (kind, line)
    assert f"crashing.py:{line}: {kind}" in result.err
    assert "SASS" in result.fault["message"]
    assert "launch 1 (1 of 1 of " in result.fault["message"]
    if case == "assert":
        assert "Assertion `too many elements` failed" in result.out + result.err
        assert "failed: too many elements" in result.fault["message"]
    assert "gpu_crashes.py" not in result.err


def test_crash_in_a_device_function_shows_its_chain(run):
    frames = run("chain").fault["call_chain"]
    expected = [LINES["chain: kernel"], LINES["chain: middle"], LINES["crash: chain"]]
    assert [frame["line"] for frame in frames] == expected
    assert [frame["function"] for frame in frames] == ["chained", "middle", "fetch"]


def test_crash_names_the_program(run):
    fault = run("program").fault
    assert fault["line"] == LINES["crash: program"]
    assert fault["program_id"] == [0, 2, 0]


def test_crash_in_the_third_of_five_launches_names_the_third(run):
    result = run("third")
    assert "launch 3 (3 of 5 of load_far)" in result.fault["message"]
    with Session.open(result.session) as session:
        (recorded,) = session.records(Fault)
        assert recorded.event.launch_id == 3


def test_store_whose_warp_has_left_names_the_line(run):
    fault = run("third-store").fault
    assert fault["line"] == LINES["crash: store"]
    assert "launch" in fault["message"]


def test_crash_that_nobody_waits_for_is_reported_at_the_end(run):
    result = run("load", "none")
    assert result.status == 3
    assert result.fault["line"] == LINES["crash: load"]


def test_crash_whose_error_is_caught_is_reported(run):
    result = run("load", "caught")
    assert result.out.startswith("caught CUDA error")
    assert result.status == 3
    assert result.fault["line"] == LINES["crash: load"]


def test_crash_that_fills_the_chip(run):
    fault = run("full").fault
    assert fault["line"] == LINES["crash: load"]
    assert fault["count"] >= 256


def test_without_core_dump_the_launches_in_flight_are_named(run):
    switched_off = {"environment": {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0"}}
    for off in (switched_off, {"coredump": False}):
        result = run("third", **off)
        assert result.status == 1
        assert result.fault["kind"] == "cuda-error"
        assert "in flight: launch" in result.fault["message"]
        assert "`tkdebug run --coredump` names the source line" in result.fault["message"]


def test_core_dump_of_the_users_own_is_read_and_kept(run, tmp_path):
    path = tmp_path / "mine.core"
    environment = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1", "CUDA_COREDUMP_FILE": str(path)}
    result = run("load", environment=environment, coredump=False)
    assert result.fault["line"] == LINES["crash: load"]
    assert path.stat().st_size > 0


def test_crash_in_a_child_process_is_reported(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import subprocess, sys\n"
        f"sys.exit(subprocess.run([sys.executable, {str(SCRIPT)!r}, 'load']).returncode)\n"
    )
    report = script.with_name("report.json")
    command = [sys.executable, "-m", "tkdebug", "run", "--no-tui", "--mode", "native"]
    command += ["--check-launches", "none", "--coredump", "--report", report, script]
    subprocess.run(command, timeout=120, check=False)
    (fault,) = json.loads(report.read_text())["faults"]
    assert fault["line"] == LINES["crash: load"]


@pytest.mark.parametrize("case", ["load", "chain", "misaligned"])
def test_crash_of_an_upstream_kernel_is_read_from_its_dump(tmp_path, case):
    if find_spec("triton") is None:
        pytest.skip("upstream Triton is not installed")
    path = tmp_path / "upstream.core"
    environment = {
        **os.environ,
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_COREDUMP_FILE": str(path),
        "CUDA_COREDUMP_GENERATION_FLAGS": "skip_global_memory,skip_abort",
    }
    command = [sys.executable, str(SCRIPT), case, "item"]
    subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    command = [sys.executable, "-m", "tkdebug", "crash", str(path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (fault,) = json.loads(done.stdout)["faults"]
    assert fault["line"] == LINES[f"crash: {case}"]
