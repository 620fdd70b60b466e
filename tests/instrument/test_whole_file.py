"""Text files that are written whole or not at all."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tkdebug.process.named_files import write_whole


def test_what_fails_halfway_leaves_what_stood_there(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "new"
        raise ValueError("halfway")

    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="halfway"):
        write_whole(path, pieces())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links_and_modes_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "out.txt", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    write_whole(link, ["new ", "text"])
    assert link.is_symlink()
    assert path.read_text() == "new text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
