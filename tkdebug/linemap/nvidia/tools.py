"""NVIDIA's tools on this machine: folders of its PyPI packages, and SASS text by nvdisasm.

Nothing is imported to find the packages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

from tkdebug.errors import TkError
from tkdebug.process.temporary_folders import temporary_folder

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_TIMEOUT_S = 120
_MOST_BYTES = 256 << 20


def nvidia_folders() -> Iterator[Path]:
    """Folders of NVIDIA's PyPI packages: `nvidia/cu13` (CUDA 13) and `nvidia` itself (CUDA 12)."""
    for folder in package_folders("nvidia"):
        yield from sorted(folder.glob("cu[0-9]*"), reverse=True)
        yield folder


def package_folders(name: str) -> Iterator[Path]:
    """Folders of the package `name`, if it is installed."""
    # Looked up, not imported: importing Triton is slow, and `triton` may be tkdebug's own.
    spec = PathFinder.find_spec(name, sys.path)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder)


class DisassemblyError(TkError):
    """There is no nvdisasm here, or it refuses the cubin."""


def find_nvdisasm() -> Path | None:
    """The nvdisasm of NVIDIA's packages, else of CUDA_HOME or CUDA_PATH, else on PATH, or None."""
    places = [folder / "bin" / "nvdisasm" for folder in nvidia_folders()]
    places += [folder / "cuda_nvdisasm" / "bin" / "nvdisasm" for folder in nvidia_folders()]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            places.append(Path(os.environ[variable]) / "bin" / "nvdisasm")
    on_path = shutil.which("nvdisasm")
    if on_path:
        places.append(Path(on_path))
    return next((place for place in places if os.access(place, os.X_OK)), None)


def disassemble(cubin: bytes, options: Sequence[str] = ("-c",)) -> str:
    """SASS text of `cubin`; the texts of the latest cubins are kept.

    Args:
        cubin: ELF image, which may be anybody's.
        options: nvdisasm's; `-c` for code only, `-g`, `-gi`, `-gp` for line comments.

    Raises:
        DisassemblyError: there is no nvdisasm, or it fails.
    """
    return _disassembled(cubin, tuple(options))


@lru_cache(maxsize=16)
def _disassembled(cubin: bytes, options: tuple[str, ...]) -> str:
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        raise DisassemblyError(
            "SASS needs nvdisasm, found in no package, CUDA_HOME or PATH; "
            "pip install nvidia-cuda-nvdisasm"
        )
    with temporary_folder() as folder:
        (folder / "kernel.cubin").write_bytes(cubin)
        try:
            status, text, said = _run([str(nvdisasm), *options, "kernel.cubin"], folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DisassemblyError(f"nvdisasm: {error}") from None
    if status:
        lines = (said or text).strip().splitlines()
        lines = [line for line in lines if "warning" not in line] or lines
        raise DisassemblyError(
            f"nvdisasm refuses the cubin ({len(cubin)} bytes): {lines[0] if lines else 'no reason'}"
        )
    return text


def _run(command: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Run a command in a folder: its status and its outputs, at most `_MOST_BYTES` of either.

    Raises:
        OSError: the command cannot be started.
        TimeoutExpired: it took too long.
    """
    text, said = folder / "text", folder / "errors"
    with text.open("wb") as out, said.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
        )
        if hasattr(resource, "prlimit"):
            # A cubin made to that end could fill the disk.
            with contextlib.suppress(OSError):  # it has ended
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_MOST_BYTES, _MOST_BYTES))
        try:
            status = process.wait(_TIMEOUT_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
    return status, text.read_text(errors="replace"), said.read_text(errors="replace")
