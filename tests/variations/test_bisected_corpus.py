"""No pass changes what the example kernels give: `tkdebug bisect` finds nothing in them."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

import pytest
from kept_launches import keeping

from tkdebug import compat
from tkdebug.causes.rerun import on_one_thread
from tkdebug.variations.bisection import bisect

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "target"),
    [
        ("vector_add.py", "sm_80"),
        ("matmul.py", "sm_90a"),
        ("layer_norm.py", "sm_80"),
        ("dropout.py", "sm_90a"),
    ],
)
def test_no_pass_changes_an_example(example: str, target: str) -> None:
    quiet = contextlib.redirect_stdout(io.StringIO())
    installed = compat.install("interpret", True, checks=("none",))
    # Threads that wait for each other spin, which costs more than they save here.
    with installed, quiet, on_one_thread(), keeping() as keeper:
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(EXAMPLES / example), run_name="__main__")
        kept = {launch.name: launch for launch in keeper.kept}
        assert kept
        for launch in kept.values():
            result = bisect(launch, target, 60.0)
            assert result.culprit is None, result.culprit
            assert result.note == ""
