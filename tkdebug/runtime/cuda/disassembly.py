"""Machine code as text, by the nvdisasm of NVIDIA's package, of a CUDA toolkit or on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tkdebug.errors import TkError


def disassemble(cubin: bytes) -> str:
    """The SASS of `cubin`.

    Raises:
        TkError: nvdisasm is not there, or refuses the cubin.
    """
    program = find_nvdisasm()
    if program is None:
        raise TkError("sass: nvdisasm is not on this machine; pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [program, "-c", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise TkError(f"nvdisasm: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def find_nvdisasm() -> str | None:
    """Path of nvdisasm; None without one."""
    # A namespace package: its parts hold one folder per CUDA version, or per tool.
    spec = find_spec("nvidia")
    folders = [Path(part) for part in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        for pattern in ("cu*/bin/nvdisasm", "cuda_nvdisasm/bin/nvdisasm"):
            for found in sorted(folder.glob(pattern), reverse=True):
                return str(found)
    home = os.environ.get("CUDA_HOME")
    if home and (Path(home) / "bin" / "nvdisasm").is_file():
        return str(Path(home) / "bin" / "nvdisasm")
    return shutil.which("nvdisasm")
