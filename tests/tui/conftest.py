import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tui_sample
from patience import LONGEST_WAIT_S
from textual.app import App

from tkdebug.instrument.session import Session


@pytest.fixture(autouse=True)
def lasting_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what the app says stay there until a test has looked at it."""
    notify = App.notify

    def notify_for_long(app: App[int], message: str, **options: Any) -> None:
        notify(app, message, **{**options, "timeout": LONGEST_WAIT_S})

    monkeypatch.setattr(App, "notify", notify_for_long)


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
