"""Files that others name: what is read of them, and what is not."""

import linecache
import os
import sys

import pytest

from tkdebug.errors import SessionError
from tkdebug.instrument.session_file.lock import SessionLock
from tkdebug.process.named_files import (
    UnfitFileError,
    fresh_source,
    read_bytes,
    read_text,
    source_line,
    write_whole,
)


def test_file_of_the_limit_is_read_and_a_longer_one_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    assert read_bytes(path, 8) == b"12345678"
    with pytest.raises(UnfitFileError, match="has more than the 7 bytes that are read"):
        read_bytes(path, 7)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_file_whose_size_is_not_known_before_is_bounded_too():
    # Files of /proc have a size of 0.
    assert b"Name:" in read_bytes("/proc/self/status", 1 << 20)
    with pytest.raises(UnfitFileError, match="more than the 8 bytes"):
        read_bytes("/proc/self/status", 8)


def test_directory_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path, 8)


def test_lines_of_what_is_in_no_file_are_those_that_linecache_has(monkeypatch):
    monkeypatch.setitem(linecache.cache, "Cell 3", (4, None, ["a\n", "b\n"], "Cell 3"))
    assert [source_line("Cell 3", line) for line in (0, 1, 2, 3)] == ["", "a\n", "b\n", ""]


def test_source_that_no_one_ends_is_quoted_by_nobody(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert source_line(str(tmp_path / "pipe.py"), 1) == ""
    assert source_line("/dev/zero", 1) == ""
    with pytest.raises(UnfitFileError, match="is a pipe or a device"):
        fresh_source("/dev/zero")


def test_link_in_the_place_of_a_draft_is_not_written_through(tmp_path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("text")
    (tmp_path / ".out.json.new").symlink_to(thesis)
    write_whole(tmp_path / "out.json", ["{}"])
    assert thesis.read_text() == "text"
    assert (tmp_path / "out.json").read_text() == "{}"


def test_link_in_the_place_of_a_lock_is_not_written_through(tmp_path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("text")
    (tmp_path / ".run.tkd.lock").symlink_to(thesis)
    with pytest.raises(SessionError, match="cannot be locked"):
        SessionLock(tmp_path / "run.tkd").take_alone()
    assert thesis.read_text() == "text"
