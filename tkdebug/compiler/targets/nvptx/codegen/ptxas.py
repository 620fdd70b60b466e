"""PTX to cubin with the program ptxas, if this machine has it.

nvJitLink assembles PTX as a part of something yet to be linked, and leaves it at the registers that
the kernel takes by itself. ptxas assembles a whole program, and takes fewer if one more block then
fits a multiprocessor: measured with CUDA 13.5, 64 instead of 80 for a cross entropy over 16 warps,
165 instead of 255 for a recurrence in one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from tkdebug.compiler.targets.nvptx.codegen.wire import StageError
from tkdebug.linemap.nvidia.tools import nvidia_folders, package_folders
from tkdebug.process.temporary_folders import temporary_folder

# The release that takes PTX 8.7, which most targets' kernels are written in.
_OLDEST_RELEASE = (12, 8)
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_VERSION_TIMEOUT_S = 20
# nvJitLink's names of options, and ptxas's.
_OPTIONS = {"-verbose": "-v", "-no-cache": None}


@lru_cache(maxsize=8)
def find_ptxas(oldest: tuple[int, int] = _OLDEST_RELEASE) -> Path | None:
    """Path of the first ptxas of release `oldest` or later, and 12.8 at least; None without one.

    Looked for in NVIDIA's packages, CUDA_HOME, CUDA_PATH, on PATH, and in an installed Triton.
    """
    for place in programs():
        release = _release_of(place)
        if release is not None and release >= max(oldest, _OLDEST_RELEASE):
            return place
    return None


def programs() -> list[Path]:
    """Every ptxas here, the preferred one first, whatever its release."""
    return [place for place in _places() if os.access(place, os.X_OK)]


def _places() -> Iterator[Path]:
    for folder in nvidia_folders():
        yield folder / "bin" / "ptxas"
        yield folder / "cuda_nvcc" / "bin" / "ptxas"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "ptxas"
    on_path = shutil.which("ptxas")
    if on_path:
        yield Path(on_path)
    for folder in package_folders("triton"):
        yield folder / "backends" / "nvidia" / "bin" / "ptxas"


def _release_of(program: Path) -> tuple[int, int] | None:
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _RELEASE.search(done.stdout)
    return None if found is None else (int(found[1]), int(found[2]))


def assemble(
    program: Path, ptx: bytes, options: Sequence[str], timeout_s: float
) -> tuple[bytes, str]:
    """The cubin and ptxas's messages.

    Args:
        program: the ptxas.
        ptx: the text.
        options: as nvJitLink takes them.
        timeout_s: how long it may take.

    Raises:
        StageError: ptxas refuses the PTX or an option, or takes too long; its log is in `log`.
    """
    given = [name for name in (_OPTIONS.get(option, option) for option in options) if name]
    with temporary_folder() as folder:
        source, target = folder / "kernel.ptx", folder / "kernel.cubin"
        source.write_bytes(ptx)
        try:
            done = subprocess.run(
                [program, *given, source, "-o", target],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StageError("assemble", f"{program}: {error}") from None
        log = done.stdout.decode(errors="replace").strip()
        if done.returncode:
            raise StageError("assemble", f"{program} ended with {done.returncode}", log)
        return target.read_bytes(), log
