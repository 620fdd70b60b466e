"""A kernel's line table beside the texts it points into, from a session or an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tkdebug.compiler.targets.backend import Backend
from tkdebug.errors import Frame, TkError, UsageError
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import LineTable, Trace
from tkdebug.linemap.line_table_data import from_data
from tkdebug.named_files import read_bytes, source_line

FRONT_END_STAGE = "tile-ir"
_IR_STAGES = (FRONT_END_STAGE, "gpu-ir")
_MAX_IMAGE_BYTES = 1 << 30
# Options of builds that are more than the kernel.
INSTRUMENTED = ("checked", "watched", "timeline")


@dataclass(frozen=True, slots=True)
class Stage:
    """One text of a kernel.

    Attributes:
        op_ids: id of the op that is printed on a text line (1-based).
        frames: its call chain.
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
    """What is known of one kernel.

    Attributes:
        name: as the script calls it.
        signature: its parameters' types, "" when not known.
        options: num_warps and the like that differ from kernel to kernel.
        file: its source file, "" when not known.
        line: at which `source` begins.
        source: the kernel's own text, "" when not known.
        stages: Tile IR as the front end left it and after its passes, GPU IR, LLVM IR, PTX.
        source_line: text of a line of a file, None when there is none.
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

    @property
    def build(self) -> str:
        """What a build has beside the kernel: "checked", "watched", "timeline"; "" for nothing."""
        return " and ".join(name for name in INSTRUMENTED if self.options.get(name))

    def stage(self, name: str) -> Stage | None:
        """The stage of that name."""
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
    # What runs by itself comes first.
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
    )


def of_image(path: Path, backend: Backend) -> list[KernelLines]:
    """The functions of a file that `backend` loads; sources are read where its line table says.

    Raises:
        TkError: no such image, damaged, or without line information.
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
