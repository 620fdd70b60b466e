"""NVIDIA's tools show the Python lines of our kernels, as docs/nvidia_tools.md says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dumps import LINES, SCRIPT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        "PYTEST_XDIST_WORKER" in os.environ,
        reason="debuggers want the GPU for themselves: run this file without -n",
    ),
]
needs_cuda_gdb = pytest.mark.skipif(shutil.which("cuda-gdb") is None, reason="no cuda-gdb")
needs_sanitizer = pytest.mark.skipif(
    shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer"
)
needs_ncu = pytest.mark.skipif(shutil.which("ncu") is None, reason="no ncu")
MATMUL = Path(__file__).parents[2] / "examples" / "matmul.py"
FETCH, MIDDLE, KERNEL = (LINES[name] for name in ("crash: chain", "chain: middle", "chain: kernel"))


@pytest.fixture
def output(tmp_path):
    def run(*tool, script=(SCRIPT, "chain"), **environment):
        command = [sys.executable, "-m", "tkdebug", "run", "--no-tui"]
        done = subprocess.run(
            [*tool, *command, "--mode", "native", *map(str, script)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "TKDEBUG_CACHE_DIR": str(tmp_path), **environment},
        )
        return done.stdout + done.stderr

    return run


def cuda_gdb(*commands):
    words = ["set pagination off", "set breakpoint pending on", *commands]
    return ["cuda-gdb", "-batch", *(word for text in words for word in ("-ex", text)), "--args"]


@needs_cuda_gdb
def test_cuda_gdb_prints_file_and_line_of_a_crash(output):
    text = output(*cuda_gdb("run", "bt"))
    (crash,) = re.findall(r"The exception was triggered at .*", text)
    found = re.search(r"chained  \(crashing\.py:(\d+) in (\w+) inlined from crashing", crash)
    # With lines alone, the first instruction of a nested call is shown at the outer one's line.
    assert (int(found[1]), found[2]) in ((FETCH, "fetch"), (MIDDLE, "middle"))
    assert re.search(r"#0 .*chained<<<.* at \S*crashing\.py:\d+", text)


@needs_cuda_gdb
def test_cuda_gdb_with_debug_info_prints_the_innermost_line(output):
    text = output(*cuda_gdb("run"), TKDEBUG_DEBUG_INFO="1")
    assert f"chained  (crashing.py:{FETCH} in fetch inlined from crashing.py:{MIDDLE})" in text


@needs_cuda_gdb
@pytest.mark.parametrize("place", [f"crashing.py:{FETCH}", "fetch"])
def test_cuda_gdb_with_debug_info_stops_and_shows_a_frame_for_each_call(output, place):
    text = output(*cuda_gdb(f"break {place}", "run", "bt"), TKDEBUG_DEBUG_INFO="1")
    frames = re.findall(r"^#(\d+)\s+(?:0x\w+ in )?(\w+).* at \S*crashing\.py:(\d+)", text, re.M)
    assert frames[:3] == [
        ("0", "fetch", str(FETCH)),
        ("1", "middle", str(MIDDLE)),
        ("2", "chained", str(KERNEL)),
    ], text


@needs_cuda_gdb
def test_cuda_gdb_stops_at_a_line(output):
    text = output(*cuda_gdb(f"break crashing.py:{KERNEL}", "run", "bt"))
    assert re.search(r"hit Breakpoint 1, .*chained<<<.* at \S*crashing\.py:\d+", text), text


@needs_sanitizer
def test_compute_sanitizer_prints_the_chain_of_lines(output):
    text = output("compute-sanitizer")
    assert re.search(rf"at fetch\+0x\w+ in crashing\.py:{FETCH}\n", text)
    assert re.search(rf"Device Frame: middle\+0x\w+ in crashing\.py:{MIDDLE}\n", text)
    assert re.search(rf"Device Frame: chained\+0x\w+ in crashing\.py:{KERNEL}\n", text)


@needs_sanitizer
def test_compute_sanitizer_loads_cubins_whose_wgmma_have_rows(output):
    # Statuses that are asked for, such as "not ready" of an event, are no errors.
    text = output("compute-sanitizer", "--report-api-errors", "no", script=(MATMUL,))
    assert re.search(r"ERROR SUMMARY: 0 errors", text), text
    assert "matmul: ok" in text


@needs_ncu
def test_ncu_profiles_cubins_whose_wgmma_have_rows(output):
    words = ["--section", "SourceCounters", "--launch-count", "1", "-k", "matmul_kernel"]
    text = output("ncu", *words, "--page", "source", script=(MATMUL,))
    if "ERR_NVGPUCTRPERM" in text:
        pytest.skip("ncu may not read this GPU's counters")
    assert "HGMMA" in text, text[-2000:]
    assert "matmul: ok" in text
