"""The zoo on a GPU, and as PTX: checked kernels report what the interpreter's tests expect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import MODULES

TESTS = Path(__file__).parents[1]


@pytest.mark.gpu
@pytest.mark.parametrize("module", MODULES)
def test_faults_are_those_of_the_interpreter(module: str) -> None:
    check("native", module)


def test_faults_of_ptx_are_those_of_the_interpreter() -> None:
    check("ptx", *MODULES)


def check(how: str, *modules: str) -> None:
    paths = [str(TESTS / "interpreter" / f"{module}.py") for module in modules]
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "--zoo", how, "--tb", "line")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", "not batches and not single", *paths],
        cwd=TESTS.parent,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
