"""Has an installed Triton asked about each kernel that a test, or a script, compiles.

As a plugin of pytest: `-p ask_plugin --ask-triton PYTHON --answers FILE`. As a script:
`python ask_plugin.py --ask-triton PYTHON --answers FILE SCRIPT`. FILE gets a line of JSON for each
answer. Nothing fails by an answer.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

from tkdebug.compat import install
from tkdebug.compat.upstream.asking.asker import TritonAsker
from tkdebug.compat.upstream.installed import triton_of
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

_CAPABILITY = 90
# A machine that runs tests has other things to do.
_SIGNATURE_LIMIT_S = 300
_LIMIT_S = 3600.0


class Asking:
    """Asks while tests or a script run.

    Args:
        python: a Python with Triton.
        path: the file for the answers.
    """

    def __init__(self, python: str, path: Path) -> None:
        self._path = path
        found, triton = triton_of(python, "--ask-triton")
        self._asker = TritonAsker(
            found, triton.version, _CAPABILITY, lambda fault: None, _SIGNATURE_LIMIT_S
        )
        COMPILE_HOOKS.asker = self._asker

    def pytest_runtest_setup(self) -> None:
        """A test begins: the one before it may have had another Triton asked."""
        COMPILE_HOOKS.asker = self._asker

    def pytest_sessionfinish(self) -> None:
        """Write the answers, once all are there."""
        COMPILE_HOOKS.asker = None
        self._asker.wait(_LIMIT_S)
        with self._path.open("a") as file:
            for answer in self._asker.answers:
                place, line = answer.place
                shown = {**asdict(answer), "place": [os.path.relpath(place), line]}
                file.write(json.dumps(shown) + "\n")
        self._asker.conclude()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    parser.addoption("--ask-triton", required=True, metavar="PYTHON")
    parser.addoption("--answers", required=True, type=Path, metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to ask."""
    asking = Asking(config.getoption("--ask-triton"), config.getoption("--answers"))
    config.pluginmanager.register(asking, "asking_triton")


def _run_script() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ask-triton", required=True)
    parser.add_argument("--answers", required=True, type=Path)
    parser.add_argument("script")
    options = parser.parse_args()
    with install(mode="interpret", quick=True):
        asking = Asking(options.ask_triton, options.answers)
        try:
            runpy.run_path(options.script, run_name="__main__")
        finally:
            asking.pytest_sessionfinish()


if __name__ == "__main__":
    _run_script()
