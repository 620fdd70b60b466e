"""Compiled kernels on disk, by content: the same Tile IR for the same target compiles once.

Responsible for the files and for the key, which holds all that code generation depends on: the
IR's text with its locations, the options, the architecture, the compiler's own sources and the
versions of the libraries behind it. Invariant: an entry appears whole or not at all, and one that
cannot be read is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path

from tkdebug.knobs import KNOBS
from tkdebug.runtime.cuda.binary import Binary

_DEFAULT_FOLDER = Path("~/.cache/tkdebug")
_LIBRARIES = ("llvmlite", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12", "nvidia-nvvm")
_FIELDS, _CUBIN = "kernel.json", "kernel.cubin"
# Larger than any kernel's text; what is larger is not ours.
_MAX_FILE_BYTES = 256 << 20


def cache_key(tile_ir: str, options: Mapping[str, object], target: str) -> str:
    """The key of a kernel: `tile_ir` with locations, all launch options, the architecture."""
    settings = sorted((name, repr(value)) for name, value in options.items())
    parts = repr((tile_ir, settings, target, compiler_key()))
    return hashlib.sha256(parts.encode()).hexdigest()


@cache
def compiler_key() -> str:
    """What distinguishes this compiler, its libraries included, from others."""
    import tkdebug.compiler

    hasher = hashlib.sha256()
    folder = Path(tkdebug.compiler.__path__[0])
    for path in sorted(folder.rglob("*.py")):
        hasher.update(str(path.relative_to(folder)).encode())
        hasher.update(path.read_bytes())
    for library in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            hasher.update(f"{library}={metadata.version(library)}".encode())
    return hasher.hexdigest()


def load(key: str) -> Binary | None:
    """The kernel under `key`; None when there is none, or compiling always is asked for."""
    if KNOBS.always_compile:
        return None
    folder = _folder() / key
    try:
        if max((folder / name).stat().st_size for name in (_FIELDS, _CUBIN)) > _MAX_FILE_BYTES:
            return None
        fields = json.loads((folder / _FIELDS).read_text(encoding="utf-8"))
        cubin = (folder / _CUBIN).read_bytes()
        return _binary(fields, cubin)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _binary(fields: dict[str, object], cubin: bytes) -> Binary | None:
    # Another file's digest under this name is a damaged or foreign entry.
    if hashlib.sha256(cubin).hexdigest() != fields.pop("cubin_sha256"):
        return None
    binary = Binary(cubin=cubin, **fields)  # type: ignore[arg-type]
    numbers = (binary.threads, binary.shared_bytes, binary.registers, binary.spill_bytes)
    texts = (binary.entry, binary.target, *binary.artifacts, *binary.artifacts.values())
    is_sound = all(type(n) is int and n >= 0 for n in numbers) and all(
        isinstance(text, str) for text in texts
    )
    return binary if is_sound else None


def store(key: str, binary: Binary) -> None:
    """Keep `binary` under `key`; a disk that is full or read-only leaves the cache as it was."""
    folder = _folder()
    fields = asdict(binary)
    cubin = fields.pop("cubin")
    fields["cubin_sha256"] = hashlib.sha256(cubin).hexdigest()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        try:
            (made / _CUBIN).write_bytes(cubin)
            (made / _FIELDS).write_text(json.dumps(fields), encoding="utf-8")
            # Fails where another process was faster, whose entry is as good.
            os.rename(made, folder / key)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)


def _folder() -> Path:
    return (KNOBS.cache_dir or _DEFAULT_FOLDER).expanduser() / "native"
