"""Compiled kernels on disk, by content.

One file per kernel, named by the hash of everything that went in: LLVM text, target, options,
locations, versions of the libraries. `disk_cache` reads and writes the files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import tkdebug
from tkdebug import __version__
from tkdebug.compiler.targets.nvptx.codegen import ptxas, wire
from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import find_libdevice
from tkdebug.compiler.targets.nvptx.native_code import NativeCode, native_code
from tkdebug.linemap.nvidia.elf_sections import SectionsError, check_cubin
from tkdebug.linemap.nvidia.ptx_locations import PtxLine
from tkdebug.process import disk_cache

_FORMAT = 2
_TARGET = re.compile(r"^\.target sm_(\d+)", re.MULTILINE)
# Modules that decide the generated code, by their names below `tkdebug`.
STAGES = (
    *(
        f"compiler.targets.nvptx.{name}"
        for name in (
            "architectures",
            "codegen.generation",
            "codegen.llvm_stage",
            "codegen.ptx_stage",
            "codegen.ptxas",
            "cubins.debug_info",
            "cubins.sections",
            "cubins.wgmma_rows",
        )
    ),
    *(
        f"linemap.nvidia.{name}"
        for name in (
            "cubins",
            "elf_sections",
            "line_programs",
            "ptx_locations",
            "sass",
            "tools",
        )
    ),
)
# The installed ones among these decide the generated code.
_LIBRARIES = (
    "llvmlite",
    "cuda-bindings",
    "nvidia-nvjitlink",
    "nvidia-nvjitlink-cu12",
    "nvidia-nvvm",
)


@lru_cache(maxsize=1)
def versions() -> tuple[str, ...]:
    """Versions of tkdebug and of the libraries that make the code."""
    from importlib.metadata import PackageNotFoundError, version

    found = [f"tkdebug {__version__}", f"format {_FORMAT}"]
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    library = find_libdevice()
    for file in (*ptxas.programs(), *([] if library is None else [library])):
        status = file.stat()
        found.append(f"{file} {status.st_size} {status.st_mtime_ns}")
    # Options and order of the stages are in their text; a changed one makes other code.
    root = Path(tkdebug.__file__).parent
    texts = [root.joinpath(*name.split(".")).with_suffix(".py").read_bytes() for name in STAGES]
    found.append(f"stages {hashlib.sha256(b''.join(texts)).hexdigest()}")
    return tuple(found)


def key_of(parts: Iterable[str]) -> str:
    """Hash of `parts` and of the versions."""
    digest = hashlib.sha256()
    for part in (*versions(), *parts):
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def load(key: str, kernel: str) -> NativeCode | None:
    """The kernel stored under `key`; None if there is none, or none that can be used."""
    return disk_cache.read_entry(_path(key), lambda data: _decode(data, key, kernel))


def store(key: str, kernel: str, code: NativeCode) -> None:
    """Keep `code` under `key`; a directory that cannot be used is reported once."""
    disk_cache.write_entry(_path(key), lambda: _encode(code, key, kernel))


def _path(key: str) -> Path:
    return disk_cache.directory() / key[:2] / f"{key[2:]}{disk_cache.SUFFIX}"


def _encode(code: NativeCode, key: str, kernel: str) -> bytes:
    ptx = code.ptx.encode()
    body = ptx + code.cubin
    header = {
        "key": key,
        "kernel": kernel,
        "sha256": hashlib.sha256(body).hexdigest(),
        "ptx_bytes": len(ptx),
        "log": code.log,
        "lines": [[line.line, line.op_id] for line in code.ptx_lines],
    }
    return wire.pack(header, body)


def _decode(data: bytes, key: str, kernel: str) -> NativeCode:
    header, body = wire.unpack(data)
    if header["key"] != key or header["kernel"] != kernel:
        raise ValueError("it is another kernel's")
    if header["sha256"] != hashlib.sha256(body).hexdigest():
        raise ValueError("checksum differs")
    split, log, lines = header["ptx_bytes"], header["log"], header["lines"]
    if type(split) is not int or not isinstance(log, str) or not isinstance(lines, list):
        raise ValueError("fields of a wrong type")
    table = tuple(PtxLine(_number(line), _op_id(op_id)) for line, op_id in lines)
    ptx, cubin = body[:split].decode(), body[split:]
    target = _TARGET.search(ptx)
    if target is None:
        raise ValueError("PTX without a target")
    try:
        check_cubin(cubin, kernel, int(target[1]))
    except SectionsError as error:
        raise ValueError(str(error)) from None
    return native_code(ptx, cubin, kernel, log, table)


def _number(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"got {value!r:.80}, expected a whole number")
    return value


def _op_id(value: object) -> int | None:
    return None if value is None else _number(value)
