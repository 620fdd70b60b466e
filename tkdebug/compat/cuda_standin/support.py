"""Whether the stand-in knows the installed torch: tested in a child process, once for each.

The child may crash where torch is not built as it is known; this process does not.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tkdebug.errors import UnsupportedError
from tkdebug.knobs import KNOBS
from tkdebug.process.disk_cache import user_cache

_TEST = "from tkdebug.compat.cuda_standin.torch_internals import self_test; self_test()"
_PASSED = "passed"
_TIMEOUT_S = 300
_KNOWN_VERSIONS = "2.6 to 2.15"


class _Checked:
    """A flag: this process has checked the installed torch."""

    is_so = False


def check_installed_torch() -> None:
    """Test the installed torch, if it was not tested before.

    Raises:
        UnsupportedError: it is not built as the versions that are known.
    """
    if _Checked.is_so:
        return
    places = _verdict_paths()
    if not any(_read(place) == _PASSED for place in places):
        reason = _failure()
        if reason:
            raise UnsupportedError(
                f"'cuda' cannot run on the CPU with torch {_torch_version()} ({reason}); install "
                f"torch {_KNOWN_VERSIONS}, as with: pip install 'torch==2.13.*'"
            )
        _write(places)
    _Checked.is_so = True


def _failure() -> str:
    """Return the test's message, in a line; "" if it passes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "ignore", "-c", _TEST]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "its self-test does not end"
    if not done.returncode:
        return ""
    if done.returncode < 0:
        return f"its self-test ends with signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or ["its self-test fails"])[-1]


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "of an unknown version"


def _verdict_paths() -> list[Path]:
    """Return the files that may hold the verdict; their name is a key of torch's build and place.

    The verdict holds for the whole machine, so a cache that is one script's own comes second.
    """
    found = find_spec("torch")
    if found is None or found.origin is None:
        return []
    library = Path(found.origin).parent / "lib"
    sizes = sorted((file.name, file.stat().st_size) for file in library.glob("libtorch_*"))
    own = Path(__file__).with_name("torch_internals.py").read_bytes()
    parts = (found.origin, _torch_version(), sys.version, sizes, own)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    folders = [user_cache(), *([KNOBS.cache_dir] if KNOBS.cache_dir is not None else [])]
    return [folder / "torch" / key for folder in folders]


def _read(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _write(places: list[Path]) -> None:
    """Store the verdict in the first writable place; without one, each process tests again."""
    for place in places:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            beside = place.with_suffix(f".{os.getpid()}")
            beside.write_text(_PASSED, encoding="utf-8")
            os.replace(beside, place)
        except OSError:
            continue
        return
