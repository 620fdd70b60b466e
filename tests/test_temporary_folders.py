"""Remains of dead processes below the temporary folder, and files that are not to be touched."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tkdebug.process import temporary_folders
from tkdebug.process.temporary_folders import TemporaryFolder, temporary_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks as POSIX has them")
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A temporary folder of this test's alone, which no process has looked through."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    temporary_folders._clear_left_folders.cache_clear()
    yield tmp_path
    temporary_folders._clear_left_folders.cache_clear()


def left(place, pid="999999999"):
    """A folder as a killed process leaves it."""
    folder = place / "tkdebug-left"
    folder.mkdir(mode=0o700)
    (folder / ".owner").write_text(pid)
    (folder / "run.tkd").write_text("session")
    return folder


def test_folder_of_a_killed_process_is_cleared_by_the_next(place):
    code = """
import os, signal
from tkdebug.process.temporary_folders import TemporaryFolder
folder = TemporaryFolder("killed")
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    folder = Path(done.stdout.strip())
    assert folder.parent == place
    assert folder.is_dir()
    with temporary_folder() as mine:
        assert not folder.exists()
        assert mine.is_dir()
    assert not mine.exists()


def test_folder_of_a_process_that_lives_stays(place):
    theirs = TemporaryFolder()
    temporary_folders._clear_left_folders.cache_clear()
    with temporary_folder():
        assert theirs.path.is_dir()
    # A script that closes all descriptors gives the lock up, too.
    os.close(theirs._lock)
    temporary_folders._clear_left_folders.cache_clear()
    with temporary_folder():
        assert theirs.path.is_dir()
    theirs.remove()
    assert not theirs.path.exists()


def test_folder_whose_lock_another_process_has_stays(place):
    # Of another container, where this one's numbers of processes mean nothing.
    folder = left(place)
    handle = os.open(folder / ".owner", os.O_RDWR)
    temporary_folders.fcntl.flock(handle, temporary_folders.fcntl.LOCK_SH)
    with temporary_folder():
        assert folder.is_dir()
    os.close(handle)


def test_folder_that_is_kept_stays(place):
    folder = TemporaryFolder()
    folder.keep()
    temporary_folders._clear_left_folders.cache_clear()
    with temporary_folder():
        assert folder.path.is_dir()


@pytest.mark.parametrize("pid", ["", "12 or so", "9" * 30, "own"])
def test_folder_that_does_not_say_whose_it_is_stays(place, pid):
    folder = left(place, str(os.getpid()) if pid == "own" else pid)
    with temporary_folder():
        assert folder.is_dir()


def test_links_are_not_followed(place):
    precious = place / "precious"
    precious.mkdir()
    (precious / ".owner").write_text("999999999")
    (place / "tkdebug-link").symlink_to(precious)
    # In a folder of a dead process only the link goes.
    folder = left(place)
    (folder / "link").symlink_to(precious)
    linked = place / "tkdebug-linked"
    linked.mkdir()
    (linked / ".owner").symlink_to(precious / ".owner")
    with temporary_folder():
        assert not folder.exists()
        assert linked.is_dir()
        assert (precious / ".owner").read_text() == "999999999"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="chown is root's")
def test_folders_of_other_users_are_left_alone(place):
    folder = left(place)
    os.chown(folder, 12345, 12345)
    with temporary_folder():
        assert folder.is_dir()


def test_forked_child_does_not_remove_the_folder(place):
    folder = TemporaryFolder()
    pid = os.fork()
    if not pid:
        folder.remove()
        os._exit(0)
    os.waitpid(pid, 0)
    assert folder.path.is_dir()
    folder.remove()
