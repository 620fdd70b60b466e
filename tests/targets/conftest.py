"""Compiled kernels of these tests are kept in a directory of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tkdebug.knobs import KNOBS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with KNOBS.scope(cache_dir=tmp_path / "cache"):
        yield
