import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tui_sample

from tkdebug.instrument.session import Session


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return tui_sample.write_run(tmp_path / "run.tkd")


@pytest.fixture
def session(run_path: Path) -> Iterator[Session]:
    with Session.open(run_path) as opened:
        yield opened


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """The command that runs a script of that text."""

    def write(text: str) -> list[str]:
        file = tmp_path / "script.py"
        file.write_text(text)
        return [sys.executable, str(file)]

    return write
