"""The zoo on a GPU: checked kernels report what the interpreter's tests expect of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import MODULES

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("module", MODULES)
def test_faults_are_those_of_the_interpreter(module: str) -> None:
    path = TESTS / "interpreter" / f"{module}.py"
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "--zoo", "native", "--tb", "line")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", "not batches and not single", str(path)],
        cwd=TESTS.parent,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
