"""`tkdebug run --triton`: whose language kernels are written in."""

from __future__ import annotations

import pytest

SCRIPT = "import triton, importlib.metadata as m; print(triton.__version__, m.version('triton'))"


@pytest.mark.parametrize(("asked", "release"), [("3.6", "3.6.0"), ("3.7.1", "3.7.1")])
def test_triton_says_it_is_that_version(run_main, asked, release):
    code, out, _ = run_main("run", "--no-tui", "--triton", asked, "-c", SCRIPT)
    assert (code, out) == (0, f"{release} {release}\n")


@pytest.mark.parametrize("asked", ["3.5", "3.10", "4", "latest", "3.9.x"])
def test_version_that_is_unknown_is_one_line(run_main, asked):
    code, out, err = run_main("run", "--triton", asked, "-c", SCRIPT)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(f"got '{asked}', expected one of 3.6, 3.7, 3.8, 3.9")
