"""Watches as people write them: what is read, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tkdebug.errors import UsageError
from tkdebug.watches.places import read_watch
from tkdebug.watches.records import packed, unpacked

SOURCE = '''import tl

def kernel(x_ptr, n):
    """Text."""
    total = 0
    for i in range(n):
        part = i * 2
    return total
'''


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    "rest",
    [
        "5:total",
        "7:part@3",
        "7:part:tile@0:4,1+7",
        "6:i if iteration > 2 and i < 3",
        "8:total@1,2,3",
    ],
)
def test_text_is_what_was_read(file: str, rest: str) -> None:
    watch = read_watch(f"{file}:{rest}")
    assert watch.text == f"{file}:{rest}"
    assert read_watch(watch.absolute_text) == watch


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("5", "expected FILE:LINE:NAME"),
        ("x:total", "expected FILE:LINE:NAME"),
        (
            "4:total",
            "no statement of a function begins at this line; the nearest one with code is 5",
        ),
        ("99:total", "the nearest one with code is 8, in kernel"),
        (
            "5:totals",
            "kernel has no variable `totals`; its variables up to this line: x_ptr, n, total",
        ),
        ("5:total@", "expected programs behind the @"),
        ("5:total@a", "got 'a', expected a position such as 3, or a range 0:4"),
        ("5:total@4:4", "4:4 has no program"),
        ("5:total@1,2,3,4", "a grid has 3 axes, got 4 positions"),
        ("5:total if ", "expected a condition behind the `if`"),
        ("5:total if total", "column 1: `total` is a number; compare it"),
        ("5:total if total >", "is no expression"),
        (
            "5:total if pid > 1 and other == 2",
            "column 13: `other` is unknown; there are total, pid",
        ),
        ("5:total if total.isnan()", "is a tile; add .any(), .all() or .sum()"),
        ("5:total if (total > 3).any()", "got `total > 3`, expected total.isnan()"),
        ("5:total if total.std() > 1", "expected one of min, amin, max"),
        ("5:total if pid[3] == 1", "expected pid[0], pid[1] or pid[2]"),
        ("5:total if open('x')", "`open('x')` is not part of conditions"),
        ("5:total if total in (1, 2)", "`is` and `in` are not part of conditions"),
        ("5:total if True", "is always the same"),
        ("5:total if " + "not " * 400 + "pid", "expected at most 1000"),
    ],
)
def test_mistakes_are_reported_in_one_line(file: str, rest: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read_watch(f"{file}:{rest}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_watch(f"{tmp_path}/none.py:3:x")
    (tmp_path / "bad.py").write_text("def f(:")
    with pytest.raises(UsageError, match="is no Python source"):
        read_watch(f"{tmp_path}/bad.py:1:x")


def test_tile_of_another_size_is_refused() -> None:
    tile = packed([1.0, 2.0])
    assert unpacked(tile, 2) == (1.0, 2.0)
    for elements in (1, 3):
        with pytest.raises(ValueError, match="elements"):
            unpacked(tile, elements)
    with pytest.raises(ValueError, match="a watched tile"):
        unpacked(b"no", 1)
