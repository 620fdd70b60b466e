"""Lowered kernels on disk, by their Tile IR: neither GPU passes nor lowering run for these.

Beside the LLVM IR an entry holds what the passes did, as sessions record it, so a session does not
depend on whether a kernel was lowered now; only the times of its passes are those of the compile
that made the entry. GPU IR is made again when it is first used. The files are those of
`disk_cache`, with its invariants; an entry that code generation refuses is lowered again.

Invariant: all that the passes and the lowering read is in the key: the Tile IR with its locations
and ids, the options, the target, and the compiler's files. So a kernel is not kept where anything
else looks at it or changes it: dumps, edited stages, plugins' passes, watches, timelines.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tkdebug
from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap
from tkdebug.compiler.artifacts import Snapshot, SnapshotRecorder
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.pass_run import PassRun
from tkdebug.compiler.rewriting.rewriter import PassRemark, RewriteRecord
from tkdebug.compiler.targets.nvptx.codegen import code_cache, wire
from tkdebug.compiler.targets.nvptx.compile import (
    LaunchMaps,
    LoweredModule,
    Prepared,
    lower_prepared,
    lower_to_llvm,
    prepare,
)
from tkdebug.knobs import KNOBS
from tkdebug.linemap.parts import Frames, OpPlace
from tkdebug.plugins import names
from tkdebug.process import disk_cache
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.columns import data_coders
from tkdebug.records.events import CompilerPass

if TYPE_CHECKING:
    from tkdebug.compiler.ir.core import Module
    from tkdebug.compiler.targets.backend import NativeOptions, Observers
    from tkdebug.compiler.targets.target import Target

_FORMAT = 1
_MAX_BYTES = 256 << 20
# The folders whose files decide how a kernel is lowered, and what is recorded of it.
_SOURCES = ("compiler", "linemap", "records")


@dataclass(frozen=True, slots=True)
class _Run:
    """One pass: its rewrites as rule, old ids and new ids, and the remarks that it made."""

    name: str
    time_ns: int
    rewrites: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    remarks: tuple[PassRemark, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """A snapshot: the lines on which ops begin, their ids, and the numbers of their chains."""

    stage: str
    text: str
    lines: tuple[int, ...]
    ids: tuple[int, ...]
    chains: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A lowered kernel, and the records of its GPU passes; the fields are `LoweredModule`'s."""

    llvm_ir: str
    shared_bytes: int
    runs: tuple[_Run, ...]
    tests: tuple[str, ...]
    places: tuple[OpPlace, ...]
    entry: Frames
    tensor_maps: Mapping[int, TensorMap]
    made_maps: tuple[MadeMap, ...]
    workspace_bytes: int
    chains: tuple[Frames, ...]
    snapshots: tuple[_Text, ...]
    passes: tuple[CompilerPass, ...]


class _Again:
    """Lowers a kernel from the disk, once, when its GPU IR is first used.

    Args:
        prepared: its Tile IR, which becomes the GPU IR.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._lowered: LoweredModule | None = None
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Replace the lock, which a thread of the parent may hold, after a fork."""
        self._lock = threading.Lock()

    def __call__(self) -> LoweredModule:
        """Return the kernel, lowered by the first call; several threads may call this."""
        with self._lock:
            if self._lowered is None:
                self._lowered = lower_prepared(self._prepared)
            return self._lowered


def lower(
    module: Module, options: NativeOptions, target: Target, observers: Observers
) -> LoweredModule:
    """Lower a kernel, or take it from the disk.

    Args:
        module: Tile IR, which is changed.
        options: warps, stages, registers.
        target: the architecture.
        observers: the callbacks.

    Raises:
        CompileError: an op is not supported.
    """
    if not _is_kept(options, observers):
        return lower_to_llvm(module, options, target, observers)
    prepared = prepare(module, options, target, observers)
    key = _key(prepared, observers.recorder)
    path = _folder() / f"{key}{disk_cache.SUFFIX}"
    if not KNOBS.always_compile:
        found = disk_cache.read_entry(path, lambda data: _decode(data, key, prepared.symbol))
        if found is not None:
            if observers.on_resources is not None:
                observers.on_resources(prepared.threads, found.shared_bytes)
            if observers.recorder is not None:
                observers.recorder.add(_snapshots(found), found.passes)
            return _restored(found, prepared)
    lowered, entry = _lowered(prepared, observers)
    disk_cache.write_entry(path, lambda: _encode(entry, key, prepared.symbol))
    return lowered


def _lowered(prepared: Prepared, observers: Observers) -> tuple[LoweredModule, _Entry]:
    """Lower a kernel; return it and its entry."""
    recorder = observers.recorder
    before = (0, 0) if recorder is None else (len(recorder.snapshots), len(recorder.passes))
    lowered = lower_prepared(prepared, observers)
    snapshots: list[Snapshot] = []
    passes: list[CompilerPass] = []
    if recorder is not None:
        recorder.finish(lowered.module)
        snapshots, passes = recorder.snapshots[before[0] :], recorder.passes[before[1] :]
    return lowered, _entry(lowered, len(prepared.passes), snapshots, passes)


def is_empty() -> bool:
    """Whether nothing was lowered by this compiler yet."""
    return not _folder().is_dir()


def _is_kept(options: NativeOptions, observers: Observers) -> bool:
    if observers.snapshot is not None or observers.on_stage is not None:
        return False
    if observers.on_run is not None and observers.recorder is None:
        return False
    if names("tkdebug.passes") or KNOBS.verify_each or KNOBS.print_after:
        return False
    checks = options.checks
    return checks is None or not (checks.watches or checks.instrumentations or checks.timeline)


def _key(prepared: Prepared, recorder: SnapshotRecorder | None) -> str:
    module, options = prepared.module, prepared.options
    checks = options.checks
    parts = (
        print_module(module, locations=True),
        str(module.next_id),
        prepared.target.name,
        repr(replace(options, checks=None)),
        "" if checks is None else repr((sorted(checks.kinds), checks.is_lasting)),
        "" if recorder is None else recorder.state,
    )
    return code_cache.key_of(parts)


def _folder() -> Path:
    return disk_cache.directory() / f"lowered-{_compiler()[:16]}"


@lru_cache(maxsize=1)
def _compiler() -> str:
    """Hash of the contents of the compiler's files.

    A hash of their times would take 5 ms less, but these may all be the same.
    """
    root = Path(tkdebug.__file__).parent
    digest = hashlib.sha256(f"{_FORMAT}".encode())
    for source in _SOURCES:
        for folder, inner, files in os.walk(root / source):
            inner.sort()
            for name in sorted(files):
                if name.endswith(".py"):
                    digest.update(f"\0{name}\0".encode() + Path(folder, name).read_bytes())
    return digest.hexdigest()


def _entry(
    lowered: LoweredModule, first: int, snapshots: list[Snapshot], passes: list[CompilerPass]
) -> _Entry:
    """Return the entry of a kernel that was lowered; `first`: the number of its first GPU pass."""
    chains: dict[Frames, int] = {}
    texts = tuple(
        _Text(
            one.stage,
            one.text,
            tuple(one.op_ids),
            tuple(one.op_ids.values()),
            tuple(chains.setdefault(one.op_frames[line], len(chains)) for line in one.op_ids),
        )
        for one in snapshots
    )
    runs = tuple(
        _Run(
            run.name,
            run.time_ns,
            tuple((one.rule, one.old_op_ids, one.new_op_ids) for one in run.records),
            run.remarks,
        )
        for run in lowered.passes[first:]
    )
    return _Entry(
        llvm_ir=lowered.llvm_ir,
        shared_bytes=lowered.shared_bytes,
        runs=runs,
        tests=() if lowered.checks is None else lowered.checks.tests,
        places=tuple(lowered.places.values()),
        entry=lowered.entry,
        tensor_maps=lowered.maps.tensor_maps,
        made_maps=lowered.maps.made_maps,
        workspace_bytes=lowered.maps.workspace_bytes,
        chains=tuple(chains),
        snapshots=texts,
        passes=tuple(passes),
    )


def _restored(found: _Entry, prepared: Prepared) -> LoweredModule:
    options, checks = prepared.options, prepared.checks
    again = _Again(prepared)
    runs = (
        PassRun(
            run.name,
            run.time_ns,
            tuple(RewriteRecord(run.name, *rewrite) for rewrite in run.rewrites),
            remarks=run.remarks,
        )
        for run in found.runs
    )
    return LoweredModule(
        symbol=prepared.symbol,
        make_module=lambda: again().module,
        llvm_ir=found.llvm_ir,
        target=prepared.target,
        max_registers=options.max_registers,
        shared_bytes=found.shared_bytes,
        num_warps=options.num_warps,
        passes=(*prepared.passes, *runs),
        checks=None if checks is None else replace(checks, tests=found.tests),
        is_lasting=options.checks is not None and options.checks.is_lasting,
        places={place.id: place for place in found.places},
        entry=found.entry,
        maps=LaunchMaps(found.tensor_maps, found.made_maps, found.workspace_bytes),
        again=again,
    )


def _snapshots(found: _Entry) -> list[Snapshot]:
    return [
        Snapshot(
            one.stage,
            one.text,
            dict(zip(one.lines, map(found.chains.__getitem__, one.chains), strict=True)),
            dict(zip(one.lines, one.ids, strict=True)),
        )
        for one in found.snapshots
    ]


def _encode(entry: _Entry, key: str, kernel: str) -> bytes:
    dump, _ = data_coders(_Entry)
    # The fastest level: texts after passes are much the same.
    body = zlib.compress(json.dumps(dump(entry)).encode(), 1)
    header = {"key": key, "kernel": kernel, "sha256": hashlib.sha256(body).hexdigest()}
    return wire.pack(header, body)


def _decode(data: bytes, key: str, kernel: str) -> _Entry:
    header, body = wire.unpack(data)
    if header["key"] != key or header["kernel"] != kernel:
        raise ValueError("it is another kernel's")
    if header["sha256"] != hashlib.sha256(body).hexdigest():
        raise ValueError("checksum differs")
    _, parse = data_coders(_Entry)
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(body, _MAX_BYTES)
        if not stream.eof:
            raise ValueError("its text is cut short, or too long")
        entry = cast("_Entry", parse(json.loads(text)))
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    if f"@{kernel}(" not in entry.llvm_ir:
        raise ValueError("its code is another kernel's")
    if any(not place.chains for place in entry.places):
        raise ValueError("an op without a place")
    if any(not 0 <= number < len(entry.chains) for one in entry.snapshots for number in one.chains):
        raise ValueError("a line without a place")
    return entry
