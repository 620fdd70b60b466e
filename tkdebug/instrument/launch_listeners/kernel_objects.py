"""A launch as external profilers see it: facts of its kernel, and the place of its call.

Invariant: no fact is computed before it is read, so a tool pays for what it uses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from tkdebug.errors import Frame, TkError
from tkdebug.process.tracebacks import OWN_FOLDER
from tkdebug.records import hook_chain

if TYPE_CHECKING:
    from tkdebug.records.events import LaunchRecord

_COMMANDS = os.path.join(OWN_FOLDER, "cli", "")
_HOOKS = hook_chain.__file__


class CodeLine(NamedTuple):
    """The source line of the code from `address` on, a byte offset from the first instruction."""

    address: int
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class KernelObject:
    """One launch and its kernel.

    Attributes:
        kernel: tkdebug's object of the compiled kernel.
        launch: the record that hooks get.
    """

    kernel: Any
    launch: LaunchRecord

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.launch.kernel

    @property
    def correlation_id(self) -> int:
        """Unique in the process, the same at enter and exit; `id` of launches in sessions."""
        return self.launch.id

    @property
    def grid(self) -> tuple[int, int, int]:
        """Programs along x, y, z."""
        return self.launch.grid

    @property
    def mode(self) -> str:
        """The mode of the launch: "interpret" or "native"."""
        return self.launch.mode

    @property
    def options(self) -> Mapping[str, object]:
        """num_warps, num_stages, num_ctas."""
        return self.launch.options

    @property
    def stream(self) -> int:
        """Handle of the CUDA stream, 0 for the default one."""
        return self.launch.stream

    @property
    def duration_ns(self) -> int | None:
        """Wall time of an interpreted launch, host time of a native one; None before its exit."""
        return self.launch.duration_ns

    @property
    def source(self) -> str:
        """Text of the kernel's function, "" if it is not known."""
        found = self._source
        return "" if found is None else str(found.text)

    @property
    def file(self) -> str:
        """File of the source, "" if it is not known."""
        found = self._source
        return "" if found is None else str(found.file)

    @property
    def line(self) -> int:
        """Line (1-based) at which the source begins, 0 if it is not known."""
        found = self._source
        return 0 if found is None else int(found.first_line)

    @property
    def _source(self) -> Any:
        fn = getattr(getattr(self.kernel, "src", None), "fn", None)
        return getattr(fn, "kernel_source", None)

    @property
    def registers(self) -> int | None:
        """Registers of a thread; None if it is interpreted."""
        return int(self.kernel.n_regs) if self._is_native else None

    @property
    def shared_bytes(self) -> int | None:
        """Shared memory of a block; None if it is interpreted."""
        return int(self.kernel.metadata.shared) if self._is_native else None

    @property
    def cubin(self) -> bytes | None:
        """The machine code as it is loaded; None if it is interpreted."""
        return bytes(self.kernel.asm["cubin"]) if self._is_native else None

    def callers(self) -> tuple[Frame, ...]:
        """The calls in the script that led to the launch, outermost first.

        To be asked in a callback, not later.
        """
        return launch_callers()

    def line_table(self) -> tuple[CodeLine, ...]:
        """Source lines of the machine code, by address; () if there is none."""
        cubin = self.cubin
        return () if cubin is None else tuple(_code_lines(cubin))

    @property
    def _is_native(self) -> bool:
        return self.mode == "native" and self.kernel is not None


def _code_lines(cubin: bytes) -> Iterator[CodeLine]:
    from tkdebug.linemap.nvidia.cubins import read_line_info

    try:
        functions = read_line_info(cubin)
    except TkError:
        return  # an edited cubin without line information
    for lines in functions.values():
        last = None
        for address in lines.addresses:
            frames = lines.frames_at(address)
            place = (frames[-1].file, frames[-1].line) if frames else None
            if place is not None and place != last:
                yield CodeLine(address, *place)
            last = place
        return


def launch_callers() -> tuple[Frame, ...]:
    """The calls that led to the launch whose hook is running, outermost first.

    To be asked in a hook, in the thread that launches: frames of the hook itself, of tkdebug and of
    what started `tkdebug run` are left out. Elsewhere it is the calls that led here.
    """
    found = []
    for frame in _outward(_launch(sys._getframe(1))):  # noqa: SLF001
        code = frame.f_code
        if code.co_filename.startswith(_COMMANDS):
            break
        if not code.co_filename.startswith(OWN_FOLDER):
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
    return tuple(reversed(found))


def _launch(innermost: FrameType) -> FrameType:
    """Return the frame that calls hooks, or `innermost` itself if none does."""
    hooks = (frame for frame in _outward(innermost) if frame.f_code.co_filename == _HOOKS)
    return next(hooks, innermost)


def _outward(innermost: FrameType) -> list[FrameType]:
    frames, frame = [], innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames
