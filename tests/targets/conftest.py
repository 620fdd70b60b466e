"""Compiled kernels are kept in a directory of the test's own; looks have time on busy machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tkdebug.interpreter.closer_looks import closer_look
from tkdebug.knobs import KNOBS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with KNOBS.scope(cache_dir=tmp_path / "cache"):
        yield


@pytest.fixture(autouse=True)
def _patient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closer_look, "WHOLE_S", 30.0)
    monkeypatch.setattr(closer_look, "LONGEST_S", 30.0)
