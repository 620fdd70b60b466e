"""A kernel's line table beside the texts it points into, and its answers.

Responsible for reading line tables from a session or an image, and for the places of a kernel that
a question of `tkdebug lines` is about, or why there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tkdebug.compiler.targets.backend import Backend
from tkdebug.errors import Frame, TkError, UsageError
from tkdebug.instrument.home.variants import variant_key
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import LineTable, Trace
from tkdebug.linemap.line_table_data import from_data
from tkdebug.process.named_files import read_bytes, source_line

FRONT_END_STAGE = "tile-ir"
_IR_STAGES = (FRONT_END_STAGE, "gpu-ir")
_MAX_IMAGE_BYTES = 1 << 30
# Options of builds that are more than the kernel.
INSTRUMENTED = ("checked", "watched", "timeline")
_ADDRESS = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})")


@dataclass(frozen=True, slots=True)
class LinesQuery:
    """One question; with none of the three places, all source lines are shown.

    Attributes:
        kernel: a pattern of names, or the beginning of a hash.
        line: `N`, a line of the kernel's file, or `FILE:N` with the end of a path.
        ptx: a line (1-based) of the PTX.
        sass: an address in hexadecimal, as nvdisasm prints it.
    """

    kernel: str | None = None
    line: str | None = None
    ptx: int | None = None
    sass: str | None = None

    @property
    def is_place(self) -> bool:
        """Whether one place is asked for."""
        return self.line is not None or self.ptx is not None or self.sass is not None


@dataclass(frozen=True, slots=True)
class Stage:
    """One text of a kernel.

    Attributes:
        op_ids: id of the op that is printed on a text line (1-based).
        frames: the call chain of each line.
    """

    name: str
    text: str
    op_ids: Mapping[int, int] = field(default_factory=dict)
    frames: Mapping[int, tuple[Frame, ...]] = field(default_factory=dict)

    def lines_of(self, trace: Trace) -> list[tuple[int, str]]:
        """The lines (number, text) that belong to `trace`."""
        match self.name:
            case "llvm-ir":
                numbers = list(trace.llvm_lines)
            case "ptx":
                numbers = list(trace.ptx_lines)
            case _:
                ops = {*trace.tile_ops, *trace.gpu_ops}
                numbers = [line for line, op_id in self.op_ids.items() if op_id in ops]
                if self.name == FRONT_END_STAGE:
                    # Passes may have replaced its ops since; their places stay.
                    places = {chain[-1] for chain in trace.chains}
                    numbers += [n for n, chain in self.frames.items() if chain[-1] in places]
        texts = self.text.splitlines()
        return [(n, texts[n - 1].strip()) for n in sorted(set(numbers)) if 0 < n <= len(texts)]


@dataclass(frozen=True, slots=True)
class KernelLines:
    """One kernel, as far as it is known.

    Attributes:
        name: the name that the script gives it.
        variant: key of its specialisation, as in all reports; "" when not known.
        signature: its parameters' types, "" if not known.
        options: num_warps and the like that differ from kernel to kernel.
        file: its source file, "" if not known.
        line: the line at which `source` begins.
        source: the kernel's own text, "" when not known.
        stages: Tile IR as the front end left it and after its passes, GPU IR, LLVM IR, PTX.
        source_line: returns the text of a line of a file, None if there is none.
    """

    name: str
    hash: str
    signature: str
    options: Mapping[str, object]
    file: str
    line: int
    source: str
    table: LineTable
    stages: tuple[Stage, ...]
    source_line: Callable[[str, int], str | None]
    variant: str = ""

    @property
    def build(self) -> str:
        """Names of the additions to a build, such as "checked"; "" for nothing."""
        return " and ".join(name for name in INSTRUMENTED if self.options.get(name))

    def stage(self, name: str) -> Stage | None:
        """The stage of that name, or None."""
        return next((stage for stage in self.stages if stage.name == name), None)


def of_session(session: Session) -> list[KernelLines]:
    """The native kernels of a recorded run.

    Raises:
        LineTableError: a table is damaged, or says why it is not there.
        SessionError: the session cannot be read.
    """
    kernels = []
    texts: dict[tuple[str, int], str | None] = {}

    def source_line(file: str, line: int) -> str | None:
        if (file, line) not in texts:
            texts[file, line] = session.source_line(file, line)
        return texts[file, line]

    for kernel in session.kernels():
        data = session.line_table(kernel.hash)
        if data is not None:
            kernels.append(_of_recorded(session, kernel, from_data(data), source_line))
    # The bare kernel comes first.
    kernels.sort(key=lambda kernel: bool(kernel.build))
    # Sources are read while the session is open.
    for kernel_lines in kernels:
        _read_sources(kernel_lines)
    return kernels


def _read_sources(kernel: KernelLines) -> None:
    for line in range(kernel.line, kernel.line + len(kernel.source.splitlines())):
        kernel.source_line(kernel.file, line)
    for file, line in kernel.table.lines():
        kernel.source_line(file, line)
    for instruction in kernel.table.instructions:
        for frame in instruction.frames[:-1]:
            kernel.source_line(frame.file, frame.line)


def _of_recorded(
    session: Session,
    kernel: RecordedKernel,
    table: LineTable,
    source_line: Callable[[str, int], str | None],
) -> KernelLines:
    names = []
    for prefix in _IR_STAGES:
        of_prefix = [stage for stage in kernel.stages if stage.startswith(prefix)]
        # The front end's Tile IR, and each IR as its last pass left it.
        names += of_prefix[:1] if prefix == FRONT_END_STAGE else []
        names += of_prefix[-1:]
    names += [name for name in ("llvm-ir", "ptx") if name in kernel.stages]
    stages = []
    for name in dict.fromkeys(names):
        text = session.artifact(kernel.hash, name) or ""
        ids = {"llvm-ir": table.llvm_ops, "ptx": table.ptx_ops}.get(name)
        if ids is not None:
            stages.append(Stage(name, text, ids))
        else:
            frames = session.op_lines(kernel.hash, name)
            stages.append(Stage(name, text, session.op_ids(kernel.hash, name), frames))
    return KernelLines(
        name=kernel.name,
        hash=kernel.hash,
        signature=kernel.signature,
        options=kernel.options,
        file=kernel.file,
        line=kernel.line,
        source=kernel.source,
        table=table,
        stages=tuple(stages),
        source_line=source_line,
        variant=variant_key(kernel),
    )


def of_image(path: Path, backend: Backend) -> list[KernelLines]:
    """The functions of a file that `backend` loads; sources are read if its line table names them.

    Raises:
        TkError: there is no such image, or it is damaged or without line information.
    """
    try:
        image = read_bytes(path, _MAX_IMAGE_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        tables = backend.image_tables(image)
    except TkError as error:
        raise UsageError(f"{path}: {error}") from None
    return [
        KernelLines(
            name=table.kernel,
            hash="",
            signature="",
            options={},
            file="",
            line=0,
            source="",
            table=table,
            stages=(),
            source_line=lambda file, line: source_line(file, line).rstrip("\n") or None,
        )
        for table in tables
    ]


def answer(kernel: KernelLines, query: LinesQuery) -> Trace:
    """Return what belongs to the place that is asked for; an empty trace if there is nothing.

    Raises:
        UsageError: the place is no line or address.
    """
    if query.line is not None:
        return _of_line(kernel, query.line)
    if query.ptx is not None:
        return kernel.table.of_ptx_line(query.ptx)
    found = _ADDRESS.fullmatch(query.sass or "")
    if not found:
        raise UsageError(f"--sass {query.sass}: expected a hexadecimal address such as 0x1f0")
    return kernel.table.of_address(int(found[1], 16))


def place_text(query: LinesQuery) -> str:
    """The place, as it was asked for."""
    if query.line is not None:
        return f"line {query.line}"
    return f"PTX line {query.ptx}" if query.ptx is not None else f"SASS address {query.sass}"


def _of_line(kernel: KernelLines, place: str) -> Trace:
    name, _, number = place.rpartition(":")
    if not number.isdecimal():
        raise UsageError(f"--line {place}: expected a line number, or file.py:number")
    line = int(number)
    files = _files(kernel, name)
    traces = [kernel.table.of_line(file, line) for file in files]
    return next((trace for trace in traces if trace.found), Trace())


def _files(kernel: KernelLines, name: str) -> list[str]:
    files = list(dict.fromkeys(file for file, _ in kernel.table.lines()))
    if name:
        return [file for file in files if file == name or file.endswith(f"/{name}")]
    # The kernel's own file; a cubin does not say which of several it is.
    return [kernel.file] if kernel.file else files


def not_found(kernels: Sequence[KernelLines], query: LinesQuery) -> str:
    """Return the message for a place that no kernel has."""
    names = ", ".join(dict.fromkeys(kernel.name for kernel in kernels))
    if query.line is not None:
        first = kernels[0]
        own = [line for file, line in first.table.lines() if file == first.file or not first.file]
        there = ", ".join(map(str, own[:40])) + (", …" if len(own) > 40 else "")
        return (
            f"--line {query.line}: no instruction and no op of {names} is of that line; "
            f"{first.name} has lines {there}"
        )
    if query.ptx is not None:
        return f"--ptx {query.ptx}: no instruction of {names} is on that line of the PTX"
    last = max(
        (k.table.instructions[-1].address for k in kernels if k.table.instructions), default=0
    )
    return f"--sass {query.sass}: {names} has code from 0x0 to 0x{last:x} only"
