"""Compiled kernels on disk, by content.

One file per kernel, named by the hash of everything that went in: LLVM text, target, options,
locations, versions of the libraries. Invariants: a file is whole or not there (written beside, then
renamed); a damaged file costs a line on stderr and a compile, nothing else; nothing in a file is
executed here. The directory is kept under a size by removing the files least recently used.

The cache's code runs on the GPU, so a file is read only if nobody but this user, or root, can have
written it. Owner and mode decide; the check costs some 40 µs a file, a tenth of its hash. An HMAC
under a key of the user's was weighed: where others can write the folder they can replace the key,
so its owner would have to be checked in the same way, and keys get lost. Where owners differ (a
container that runs as root over a user's folder, NFS that maps root to nobody) either refuses. The
folder is held open from its check to that of the file, so that nobody can replace it in between.
Folders above it need no check: a replaced one still has to hold a file of ours.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TypeVar

import tkdebug
from tkdebug import __version__
from tkdebug.compiler.targets.nvptx.codegen import ptxas, wire
from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import find_libdevice
from tkdebug.compiler.targets.nvptx.native_code import NativeCode, native_code
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia.elf_sections import SectionsError, check_cubin
from tkdebug.linemap.nvidia.ptx_locations import PtxLine
from tkdebug.terminal.text import tell

_T = TypeVar("_T")
_ROOT = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(Exception):
    """Somebody else could have written it.

    Args:
        path: the folder or file.
        why: "its owner is user 1234", "others can write it".
    """

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


def read_private(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        NotPrivateError: somebody else can write the file, or replace it in its folder.
        OSError: the file cannot be read.
    """
    if os.name != "posix":  # where the access lists of the user's folder say it
        return path.read_bytes()
    with _opened(path.parent, os.O_DIRECTORY, None) as folder:
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer.
        with _opened(path, os.O_NONBLOCK, folder) as file, open(file, "rb", closefd=False) as data:
            return data.read()


def check_folder(path: Path) -> None:
    """Check whether somebody else can put files into a folder.

    Raises:
        NotPrivateError: somebody else can.
        OSError: there is no such folder.
    """
    if os.name == "posix":
        with _opened(path, os.O_DIRECTORY, None):
            pass


@contextmanager
def _opened(path: Path, flags: int, folder: int | None) -> Iterator[int]:
    name = path if folder is None else path.name
    handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        _check(path, os.fstat(handle))
        yield handle
    finally:
        os.close(handle)


def _check(path: Path, status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise NotPrivateError(path, "it is not a regular file")
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise NotPrivateError(path, f"its owner is user {status.st_uid}")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise NotPrivateError(path, "others can write it")


_FORMAT = 2
SUFFIX = ".tkc"
_STORES_BETWEEN_TRIMS = 64
_TRIM_TO = 0.8
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

# The stores of this process, counted: it trims at the first, and now and then.
_STORES = count()


def directory() -> Path:
    """The folder of compiled kernels: knob `cache_dir`, else the user's cache directory."""
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
    """The kernel stored under `key`; None if there is none, or none that can be used."""
    return read_entry(_path(key), lambda data: _decode(data, key, kernel))


def store(key: str, kernel: str, code: NativeCode) -> None:
    """Keep `code` under `key`; a directory that cannot be used is reported once."""
    write_entry(_path(key), lambda: _encode(code, key, kernel))


def read_entry(path: Path, decode: Callable[[bytes], _T]) -> _T | None:
    """The entry in a file; None if there is none, or none that can be used.

    Args:
        path: the file, in a folder of `directory()`.
        decode: makes the entry of its bytes; raises where they are damaged.
    """
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
        entry = decode(data)
    except (ValueError, KeyError, TypeError, OverflowError, SectionsError) as error:
        tell(f"{path}: compiled kernel is damaged ({error}); it is made again")
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)
    return entry


def write_entry(path: Path, encode: Callable[[], bytes]) -> None:
    """Write an entry; a directory that cannot be used is reported once.

    Args:
        path: the file, in a folder of `directory()`.
        encode: makes its bytes.
    """
    try:
        data = encode()
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        # Where the umask lets a group write, files of the folder would not be used.
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
    return directory() / key[:2] / f"{key[2:]}{SUFFIX}"


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
    """Remove the least recently used files until the rest is well under `limit_bytes`."""
    entries = []
    for path in folder.glob(f"*/*{SUFFIX}"):
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
    if error.path.suffix == SUFFIX:
        _say_once(f"{error}; the compiled kernel is not used, but made again")
        return
    _say_once(
        f"{error}; compiled kernels there are neither used nor kept; `chmod -R go-w` it if it is "
        "yours, or name another folder in TKDEBUG_CACHE_DIR"
    )


@lru_cache(maxsize=16)
def _say_once(text: str) -> None:
    tell(text)
