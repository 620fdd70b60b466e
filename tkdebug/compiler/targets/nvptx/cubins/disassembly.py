"""SASS text of a cubin, by NVIDIA's nvdisasm."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tkdebug.compiler.targets.nvptx.codegen.libdevice import nvidia_folders
from tkdebug.errors import TkError

_TIMEOUT_S = 120


class DisassemblyError(TkError):
    """No nvdisasm here, or it refuses the cubin."""


def find_nvdisasm() -> Path | None:
    """The nvdisasm of the nvidia-cuda-nvdisasm package, of CUDA_HOME, or on PATH."""
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
    """SASS text of `cubin`.

    Args:
        cubin: ELF image.
        options: nvdisasm's; `-c` for code only, `-g`, `-gi`, `-gp` for line comments.

    Raises:
        DisassemblyError: there is no nvdisasm, or it fails.
    """
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        raise DisassemblyError(
            "SASS needs nvdisasm, found in no package, CUDA_HOME or PATH; "
            "pip install nvidia-cuda-nvdisasm"
        )
    with tempfile.TemporaryDirectory(prefix="tkdebug-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [nvdisasm, *options, path],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DisassemblyError(f"nvdisasm: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        said = [line for line in said if "warning" not in line] or said
        raise DisassemblyError(
            f"nvdisasm refuses the cubin ({len(cubin)} bytes): {said[0] if said else 'no reason'}"
        )
    return done.stdout.decode(errors="replace")
