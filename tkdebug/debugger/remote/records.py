"""Records of a stop for a Debug pane: plain data that travels as lines of JSON over a socket.

The socket connects the script's process with the TUI's.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tkdebug.errors import TkError

T = TypeVar("T")


class RecordError(TkError):
    """The received data is no such record."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, in a function."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the frame, for one program.

    Attributes:
        text: its value on one line.
        is_drawn: whether there is a picture of it.
        has_nan: whether an element of it is NaN.
    """

    name: str
    text: str
    is_drawn: bool
    has_nan: bool


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Elements of a tile as cells; of a scalar, its values in the programs that are here.

    Attributes:
        name: the name of the variable.
        kind: the type of the tile, such as `fp32[64, 64]`.
        program: the program, "" if cells are programs.
        begin: the first element along each axis that is drawn; one or two axes.
        end: the one after the last, along each.
        shape: the shape of the drawn tile: begin and end are within it.
        plane: the index along the axes before those drawn, of tiles with more than two.
        step: the number of elements of a cell, along each axis.
        wrap: for one axis, the cells of a row; 0 if rows are an axis.
        cells: rows of cells: the element of the largest magnitude, NaN if one is NaN, None if there
            is no element.
        largest: the largest finite magnitude of all that is drawn.
        counts: the numbers of all elements: negative, zero, positive, NaN, infinite.
        labels: the programs that cells are, as people write them; () for elements.
    """

    name: str
    kind: str
    program: str
    begin: tuple[int, ...]
    end: tuple[int, ...]
    shape: tuple[int, ...]
    plane: tuple[int, ...]
    step: tuple[int, ...]
    wrap: int
    cells: tuple[tuple[float | None, ...], ...]
    largest: float
    counts: tuple[int, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramGroup:
    """Programs with the same sign: the sign in `Programs.states`, its meaning, their number."""

    sign: str
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Programs:
    """The places of all programs of the launch.

    Attributes:
        states: a sign for each cell, of programs in linear order, x fastest.
        per_cell: the number of programs of a cell: 1, or more in large grids.
        groups: the meanings of the signs.
        selected: the linear numbers of the selected programs, None for all.
        shown: the program whose values are shown, None if there is none.
        compared: the variable by which programs differ, "" if nothing was compared.
        note: why nothing was.
    """

    grid: tuple[int, int, int]
    states: str
    per_cell: int
    groups: tuple[ProgramGroup, ...]
    selected: tuple[int, ...] | None
    shown: int | None
    compared: str
    note: str


@dataclass(frozen=True, slots=True)
class PassedLine:
    """A line that was passed.

    Attributes:
        moment: the moment as the console's `moment` takes it.
        programs: the number of programs that took part.
        is_of_shown: whether the program that is shown did.
    """

    moment: str
    place: Place
    programs: int
    is_of_shown: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lines that were passed around one of them.

    Attributes:
        total: the number of lines that are remembered.
        now: the index of the line of the stop; -1 before the first one.
        first: the index of the first of `lines`.
    """

    total: int
    now: int
    first: int
    lines: tuple[PassedLine, ...]


@dataclass(frozen=True, slots=True)
class SetBreakpoint:
    """A breakpoint as it is shown.

    Attributes:
        file: the file, "" if it is at no line.
    """

    number: int
    file: str
    line: int
    text: str
    is_enabled: bool
    hits: int


@dataclass(frozen=True, slots=True)
class View:
    """A stop, and the part of it that is looked at.

    Attributes:
        reasons: why it is stopped, one line each.
        launch: its number; at a line of the script's own, the last one's.
        kernel: "" at a line of the script's own.
        frames: the chain of calls, outermost first; () at a launch's end.
        frame: the frame that is looked at, 0 for the innermost.
        census: the number of programs at each place.
        selection: the programs that steps follow, as people write them.
    """

    reasons: tuple[str, ...]
    launch: int
    kernel: str
    grid: tuple[int, int, int]
    frames: tuple[Place, ...]
    frame: int
    census: str
    selection: str
    variables: tuple[Variable, ...]
    heat: HeatMap | None
    programs: Programs
    timeline: Timeline

    @property
    def place(self) -> Place | None:
        """The place of the frame that is looked at; None at a launch's end."""
        return self.frames[len(self.frames) - 1 - self.frame] if self.frames else None


@dataclass(frozen=True, slots=True)
class Look:
    """A pane's wishes: the parts of stops that it wants to see.

    Attributes:
        variable: the variable to draw; "" for the first that can be.
        program: the program whose values are shown, a linear number; None for the first selected
            one.
        begin: the beginning of the drawn part; () for all.
        end: the position after the last.
        plane: the number of the plane of a tile with more than two axes.
        cells: the numbers of rows and columns of cells that there is room for.
        around: the number of the line passed that is to be in the middle; None for the stop's.
    """

    variable: str = ""
    program: int | None = None
    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    plane: int = 0
    cells: tuple[int, int] = (16, 32)
    around: int | None = None


def record_of(kind: type[T], data: Any) -> T:
    """A record of JSON data, the way back from `dataclasses.asdict`.

    Raises:
        RecordError: the data are something else.
    """
    found: T = _made(kind, data)
    return found


def _made(hint: Any, data: Any) -> Any:
    if hint is Any:
        return data
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        if not isinstance(data, dict):
            raise RecordError(f"got {type(data).__name__}, expected {hint}")
        try:
            return hint(**{f.name: _made(hints[f.name], data[f.name]) for f in fields(hint)})
        except KeyError as error:
            raise RecordError(f"{hint}: has no {error}") from None
    if get_origin(hint) in (Union, types.UnionType):
        if data is None:
            return None
        return _made(next(arg for arg in get_args(hint) if arg is not type(None)), data)
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if not isinstance(data, list | tuple):
            raise RecordError(f"got {type(data).__name__}, expected a list")
        kinds = [inner[0]] * len(data) if inner[-1] is Ellipsis else inner
        if len(kinds) != len(data):
            raise RecordError(f"got {len(data)} items, expected {len(kinds)}")
        return tuple(map(_made, kinds, data))
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise RecordError(f"got {type(data).__name__}, expected {hint}")
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


MAX_LINE_BYTES = 64 << 20


class Wire:
    """One end of the socket.

    Args:
        end: one socket of a connected pair, which belongs to the wire from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = end.makefile("rb")
        self._lock = threading.Lock()
        self._is_open = True

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the other end's messages, until it is gone or sends something that is none."""
        while True:
            try:
                line = self._reader.readline(MAX_LINE_BYTES)
                if not line.endswith(b"\n"):
                    return
                message = json.loads(line)
            except (OSError, ValueError):
                return
            if not isinstance(message, dict):
                return
            yield message

    def send(self, message: Mapping[str, Any], *, waits: bool = True) -> bool:
        """Send a message; return whether the other end takes it.

        Args:
            message: a message of JSON's types, NaN and infinities included.
            waits: whether to wait for room; else it is not sent if there is none.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            if not self._is_open:
                return False
            try:
                if waits:
                    self._socket.sendall(data)
                    return True
                # After a part of a message nothing else could be understood.
                self._is_open = self._socket.send(data, socket.MSG_DONTWAIT) == len(data)
                return self._is_open
            except BlockingIOError:
                return False
            except OSError:
                self._is_open = False
                return False

    def close(self) -> None:
        """Close it; a reader in another thread comes to the end."""
        with self._lock:
            self._is_open = False
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end has closed it
        self._socket.close()

    def forget(self) -> None:
        """Leave it to the process that this one was forked from."""
        self._is_open = False
        self._lock = threading.Lock()
        os.close(self._socket.detach())
