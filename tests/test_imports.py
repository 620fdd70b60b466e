"""Costs of loading tkdebug, and modules that it leaves alone."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "numpy", "llvmlite", "cuda", "textual", "rich", "elftools", "hypothesis")
# One is enough: on a loaded machine, processes share caches and cores.
ATTEMPTS = 7


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "module",
    ["tkdebug", "tkdebug.cli", "tkdebug.instrument", "tkdebug.records.events", "tkdebug.knobs"],
)
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*[m for m in {HEAVY} if m in sys.modules])"
    assert python(code).split() == []


def test_compiling_a_bare_kernel_loads_no_checks_and_no_watches() -> None:
    code = (
        "import sys, tkdebug.compiler.targets.nvptx.compile; "
        "rooms = 'lowering.checks', 'watches', 'timelines'; "
        "print(*[m for m in sys.modules for room in rooms if f'.{room}.' in f'{m}.'])"
    )
    assert python(code).split() == []


def test_installing_loads_nothing_of_compiled_models_and_native_launches() -> None:
    code = (
        "import os, sys; os.environ['CUDA_VISIBLE_DEVICES'] = ''; "
        "import torch, tkdebug; tkdebug.install('interpret'); import triton; "
        "rooms = 'compat.inductor', 'instrument'; "
        "print(*[m for m in sys.modules for room in rooms if m.startswith(f'tkdebug.{room}')])"
    )
    assert python(code).split() == []


def test_session_reader_and_report_load_nothing_heavy() -> None:
    code = (
        "import sys, tkdebug.instrument.session, tkdebug.instrument.report; "
        f"print(*[m for m in {HEAVY} if m in sys.modules])"
    )
    assert python(code).split() == []


def cpu_s(command: list[str]) -> float:
    """Processor time of a child: unlike wall time, little of it is other processes' doing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", [["-c", "import tkdebug"], ["-m", "tkdebug", "--help"]])
def test_start_takes_under_0_3_s_of_a_processor(words: list[str]) -> None:
    assert any(cpu_s([sys.executable, *words]) < 0.3 for _ in range(ATTEMPTS))


def test_every_public_name_resolves() -> None:
    code = "import tkdebug; [getattr(tkdebug, name) for name in tkdebug.__all__]; print('all')"
    assert python(code).strip() == "all"


def test_package_says_that_it_is_typed() -> None:
    assert (ROOT / "tkdebug" / "py.typed").is_file()


def test_modules_that_are_loaded_ahead_of_the_first_launch_are_there() -> None:
    code = "from tkdebug.runtime.cuda.platform import CudaPlatform; CudaPlatform().prestart()"
    assert python(code) == ""
