"""The Triton that is installed: its release, and whether it can compile.

It is looked at without being imported: an incomplete one fails in ways that name nothing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tkdebug.compat.children import python_path
from tkdebug.errors import UsageError

FIRST, LAST = (3, 6), (3, 9)
_VERSION = re.compile(r"""^__version__\s*=\s*['"]([^'"]+)['"]""", re.M)
_OPTION = "compiler triton"
_ELF = b"\x7fELF"
_PROBE_LIMIT_S = 60
# Variables that make Triton's passes print, or run in another way than in a user's process.
_NOT_PASSED_ON = frozenset(
    "TRITON_INTERPRET MLIR_ENABLE_DUMP LLVM_IR_ENABLE_DUMP TRITON_KERNEL_DUMP NVPTX_ENABLE_DUMP "
    "TRITON_KERNEL_OVERRIDE TRITON_ENABLE_LLVM_DEBUG MLIR_ENABLE_TIMING LLVM_ENABLE_TIMING".split()
)


@dataclass(frozen=True, slots=True)
class InstalledTriton:
    """A Triton in this environment.

    Attributes:
        version: the release.
        folder: the folder of the package.
    """

    version: str
    folder: Path


def installed_triton() -> InstalledTriton:
    """The Triton that `import triton` would find without tkdebug.

    Raises:
        UsageError: there is none, it has no compiler, its parts are of different releases, or
            tkdebug does not know its release.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise UsageError(
            f"{_OPTION}: TRITON_INTERPRET=1 has Triton interpret kernels, not compile them; unset "
            "it, or have tkdebug compile or interpret"
        )
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.origin:
        raise UsageError(f"{_OPTION}: no Triton is installed here; pip install triton")
    folder = Path(spec.origin).parent
    version = version_in(folder)
    if version is None:
        raise UsageError(
            f"{_OPTION}: {folder / '__init__.py'} names no version; pip install triton"
        )
    for file, what in (("_C/libtriton*", "compiler"), ("backends/nvidia/compiler.py", "backend")):
        if not any(folder.glob(file)):
            raise UsageError(
                f"{_OPTION}: the Triton in {folder} has no {what} ({file} is missing); "
                f"pip install --force-reinstall triton=={version}"
            )
    _check_library(folder, version)
    _check_distribution(folder, version)
    _check_release(_OPTION, version)
    _check_backends(version)
    return InstalledTriton(version, folder)


def triton_of(python: str, option: str) -> tuple[str, InstalledTriton]:
    """The Triton that another Python would import, and that Python's path.

    Args:
        python: its path, or its name on the PATH.
        option: the option that asks, for messages.

    Raises:
        UsageError: there is no such Python, or no Triton of a known release that can compile.
    """
    path = shutil.which(python)
    if path is None:
        raise UsageError(f"{option} {python}: no such program; give a Python that has Triton")
    # Without the current folder, of which what it runs later takes no modules either.
    code = "import sys; sys.path[:] = filter(None, sys.path); "
    code += "import importlib.util as u; s = u.find_spec('triton'); print(s.origin if s else '')"
    try:
        done = subprocess.run(
            [path, "-c", code],
            env=foreign_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{option} {python}: it does not run ({error})") from None
    origin = done.stdout.strip()
    if done.returncode or not origin:
        raise UsageError(f"{option} {python}: it has no Triton; {path} -m pip install triton")
    folder = Path(origin).parent
    version = version_in(folder)
    if version is None or not any(folder.glob("_C/libtriton*")):
        raise UsageError(
            f"{option} {python}: the Triton in {folder} is not whole; "
            f"{path} -m pip install --force-reinstall triton"
        )
    _check_release(f"{option} {python}", version)
    return os.path.abspath(path), InstalledTriton(version, folder)


def foreign_environment() -> dict[str, str]:
    """The environment of a process in which nothing of tkdebug's is in force."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_PASSED_ON and not name.startswith("TKDEBUG_")
    }
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(python_path())
    return kept


def _check_release(option: str, version: str) -> None:
    if not FIRST <= _release(version) <= LAST:
        known = " to ".join(".".join(map(str, end)) for end in (FIRST, LAST))
        raise UsageError(f"{option}: Triton {version} is installed; expected {known}")


def version_in(folder: Path) -> str | None:
    """Return the release that a package's own text names, or None if it names none.

    The text is read because nightly builds come as another distribution.

    Args:
        folder: the folder of the package.
    """
    try:
        found = _VERSION.search((folder / "__init__.py").read_text("utf-8"))
    except OSError:
        return None
    return None if found is None else found[1]


def _check_library(folder: Path, version: str) -> None:
    """Refuse a compiler that is no library: a download that broke off, a file of Git LFS."""
    for library in folder.glob("_C/libtriton*.so"):
        with library.open("rb") as file:
            if file.read(len(_ELF)) != _ELF:
                raise UsageError(
                    f"{_OPTION}: {library} is no shared library; "
                    f"pip install --force-reinstall triton=={version}"
                )


def _check_backends(version: str) -> None:
    """Refuse a package without backends in its metadata, where Triton looks for them."""
    in_tree = os.environ.get("TRITON_BACKENDS_IN_TREE") == "1"
    if not in_tree and not importlib.metadata.entry_points(group="triton.backends"):
        raise UsageError(
            f"{_OPTION}: no metadata here names the backends of Triton {version}, which it needs "
            f"to find them; pip install --force-reinstall triton=={version}"
        )


def _check_distribution(folder: Path, version: str) -> None:
    """Refuse files of one release under the metadata of another."""
    try:
        distribution = importlib.metadata.distribution("triton")
    except importlib.metadata.PackageNotFoundError:
        return
    place = Path(str(distribution.locate_file("triton")))
    if place.resolve() == folder.resolve() and _release(distribution.version) != _release(version):
        raise UsageError(
            f"{_OPTION}: the Triton in {folder} is mixed: its files are {version}, its metadata "
            f"says {distribution.version}; pip install --force-reinstall triton=={version}"
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
