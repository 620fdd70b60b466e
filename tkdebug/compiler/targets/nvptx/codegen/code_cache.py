"""Compiled kernels on disk, by content.

One file per kernel, named by the hash of everything that went in: LLVM text, target, options,
locations, versions of the libraries. Invariants: a file is whole or not there (written beside, then
renamed); a damaged file costs a line on stderr and a compile, nothing else; nothing in a file is
executed here, and what others can have written is not used (`private_files`). The directory is kept
under a size by removing what was used longest ago.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path

import tkdebug
from tkdebug import __version__
from tkdebug.compiler.targets.nvptx.codegen import ptxas, wire
from tkdebug.compiler.targets.nvptx.codegen.libdevice import find_libdevice
from tkdebug.compiler.targets.nvptx.codegen.private_files import (
    NotPrivateError,
    check_folder,
    read_private,
)
from tkdebug.compiler.targets.nvptx.native_code import NativeCode, native_code
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia.elf_sections import SectionsError, check_cubin
from tkdebug.linemap.nvidia.ptx_locations import PtxLine
from tkdebug.terminal.text import tell

_FORMAT = 2
_SUFFIX = ".tkc"
_STORES_BETWEEN_TRIMS = 64
_TRIM_TO = 0.8
_TARGET = re.compile(r"^\.target sm_(\d+)", re.MULTILINE)
# Modules that decide what code comes out, by their names below `tkdebug`.
STAGES = (
    *(
        f"compiler.targets.nvptx.{name}"
        for name in (
            "architectures",
            "codegen.generation",
            "codegen.libdevice",
            "codegen.llvm_stage",
            "codegen.ptx_stage",
            "codegen.ptxas",
            "cubins.debug_info",
            "cubins.inline_rows",
            "cubins.sections",
            "cubins.warp_time",
            "cubins.wgmma_lines",
            "cubins.wgmma_rows",
            "occupancy",
        )
    ),
    *(
        f"linemap.nvidia.{name}"
        for name in (
            "cubins",
            "elf_sections",
            "encoding",
            "line_program_rows",
            "line_programs",
            "packages",
            "ptx_locations",
            "wgmma_code",
        )
    ),
)
# Whatever of these is installed decides what code comes out.
_LIBRARIES = (
    "llvmlite",
    "cuda-bindings",
    "nvidia-nvjitlink",
    "nvidia-nvjitlink-cu12",
    "nvidia-nvvm",
)

# The stores of this process, counted: it trims at the first, and now and then.
_STORES = count()


def directory() -> Path:
    """Where compiled kernels lie: knob `cache_dir`, else the user's cache directory."""
    chosen = KNOBS.cache_dir
    if chosen is not None:
        return chosen / "native"
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    return root / "tkdebug" / "native"


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
    """The kernel stored under `key`; None when there is none, or none that can be used."""
    path = _path(key)
    try:
        data = read_private(path)
    except FileNotFoundError:
        return None
    except NotPrivateError as error:
        _say_not_private(error)
        return None
    except OSError as error:
        _say_once(f"compiled kernel cannot be read: {error}")
        return None
    try:
        code = _decode(data, key, kernel)
    except (ValueError, KeyError, TypeError, OverflowError, SectionsError) as error:
        tell(f"{path}: compiled kernel is damaged ({error}); it is made again")
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)
    return code


def store(key: str, kernel: str, code: NativeCode) -> None:
    """Keep `code` under `key`; a directory that cannot be used is reported once."""
    path = _path(key)
    try:
        data = _encode(code, key, kernel)
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        # Where the umask lets a group write, what is in the folder would not be used.
        path.parent.mkdir(mode=0o755, exist_ok=True)
        check_folder(path.parent)
        handle, beside = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
    except NotPrivateError as error:
        _say_not_private(error)
        return
    except (OSError, wire.FrameError) as error:
        _say_once(f"compiled kernels are not kept: {error}")
        return
    _trim_now_and_then()


def _path(key: str) -> Path:
    return directory() / key[:2] / f"{key[2:]}{_SUFFIX}"


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
    check_cubin(cubin, kernel, int(target[1]))
    return native_code(ptx, cubin, kernel, log, table)


def _number(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"got {value!r:.80}, expected a whole number")
    return value


def _op_id(value: object) -> int | None:
    return None if value is None else _number(value)


def _trim_now_and_then() -> None:
    if next(_STORES) % _STORES_BETWEEN_TRIMS == 0:
        trim(directory(), KNOBS.cache_size_bytes)


def trim(folder: Path, limit_bytes: int) -> None:
    """Remove what was used longest ago until the rest is well under `limit_bytes`."""
    entries = []
    for path in folder.glob(f"*/*{_SUFFIX}"):
        with suppress(OSError):  # another process may be trimming, too
            status = path.stat()
            entries.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= limit_bytes:
        return
    for _, size, path in sorted(entries):
        if total <= limit_bytes * _TRIM_TO:
            return
        with suppress(OSError):
            path.unlink()
        total -= size


def _say_not_private(error: NotPrivateError) -> None:
    if error.path.suffix == _SUFFIX:
        _say_once(f"{error}; the compiled kernel is not used, but made again")
        return
    _say_once(
        f"{error}; compiled kernels there are neither used nor kept; `chmod -R go-w` it if it is "
        "yours, or name another folder in TKDEBUG_CACHE_DIR"
    )


@lru_cache(maxsize=16)
def _say_once(text: str) -> None:
    tell(text)
