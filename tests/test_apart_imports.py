"""Imports in a thread that no signal handler interrupts."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest

from tkdebug.process import apart_imports
from tkdebug.process.apart_imports import import_apart

# Has itself interrupted by the handler before `VALUE` is there, and waits until that has begun.
INTERRUPTED = """
import os, signal, threading
os.kill(os.getpid(), signal.SIGUSR1)
import begun
if threading.current_thread() is not threading.main_thread():
    begun.EVENT.wait(60)
VALUE = 7
"""
BEGUN = "import threading\nEVENT = threading.Event()\n"


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    (tmp_path / "begun.py").write_text(BEGUN)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("interrupted", "begun"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def handled() -> list[object]:
    """The names that handlers that import the module apart find in it."""
    found: list[object] = []

    def handler(number: int, frame: FrameType | None) -> None:
        importlib.import_module("begun").EVENT.set()
        import_apart("interrupted")
        found.append(getattr(importlib.import_module("interrupted"), "VALUE", None))

    signal.signal(signal.SIGUSR1, handler)
    return found


@pytest.mark.usefixtures("interrupted")
def test_import_apart_gives_a_signal_handler_the_whole_module() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        found = handled()
        import_apart("interrupted")
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert found == [7]


@pytest.mark.usefixtures("interrupted")
def test_a_handler_in_an_ordinary_import_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_imports, "LONGEST_WAIT_S", 0.05)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        found = handled()
        importlib.import_module("interrupted")
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert found == [None]


def test_import_apart_leaves_errors_to_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_here.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)

    import_apart("broken_here", "missing_here")

    with pytest.raises(ZeroDivisionError):
        importlib.import_module("broken_here")
    assert capfd.readouterr().err == ""
