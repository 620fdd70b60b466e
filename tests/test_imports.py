"""What loading tkdebug costs, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "numpy", "llvmlite", "cuda", "textual", "rich", "elftools")
# The best of several: what is measured is tkdebug, not the machine's other work.
ATTEMPTS = 7


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "module", ["tkdebug", "tkdebug.cli", "tkdebug.instrument", "tkdebug.events", "tkdebug.knobs"]
)
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*[m for m in {HEAVY} if m in sys.modules])"
    assert python(code).split() == []


def test_session_reader_and_report_load_nothing_heavy() -> None:
    code = (
        "import sys, tkdebug.instrument.session, tkdebug.instrument.report; "
        f"print(*[m for m in {HEAVY} if m in sys.modules])"
    )
    assert python(code).split() == []


def test_import_takes_under_0_3_s() -> None:
    code = (
        "import time; start = time.perf_counter(); import tkdebug; "
        "print(time.perf_counter() - start)"
    )
    assert min(float(python(code)) for _ in range(ATTEMPTS)) < 0.3


def test_help_takes_under_0_5_s() -> None:
    times_s = []
    for _ in range(ATTEMPTS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "tkdebug", "--help"], capture_output=True, check=True)
        times_s.append(time.perf_counter() - start)
    assert min(times_s) < 0.5


def test_every_public_name_resolves() -> None:
    code = "import tkdebug; [getattr(tkdebug, name) for name in tkdebug.__all__]; print('all')"
    assert python(code).strip() == "all"


def test_package_says_that_it_is_typed() -> None:
    assert (ROOT / "tkdebug" / "py.typed").is_file()
