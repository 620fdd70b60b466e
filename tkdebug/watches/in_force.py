"""The watches of this process: those of the command line, and those that the script set.

Responsible for handing out the values of launches, and for reporting what a watch missed. Kernels
are compiled for the present watches: owners of compiled kernels hear of a change.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.watches.places import Watch
    from tkdebug.watches.records import WatchCount, WatchedValue

# The most values that a watch of the script keeps in memory.
MOST_VALUES = 100_000
_MIB = 1 << 20


class ValueWatch:
    """A watch in force, and its values so far.

    As a context manager it is in force until the end of the `with` block.

    Attributes:
        watch: the watch.
        seen: the number of values that there were.
        kept: the number of values for which there was room.
    """

    def __init__(self, watch: Watch, keeps_values: bool) -> None:
        self.watch = watch
        self.seen = self.kept = 0
        self._values: list[WatchedValue] = []
        self._keeps_values = keeps_values
        self._is_compiled = self._was_refused = False
        self._largest_grid: tuple[int, int, int] | None = None
        self._missed_grids = 0

    def __repr__(self) -> str:
        return f"<watch {self.watch.text}: {self.seen} values>"

    @property
    def values(self) -> list[WatchedValue]:
        """The values that it has seen, in the order of launches; waits for launches that go on."""
        WATCHES.settle()
        return list(self._values)

    def stop(self) -> None:
        """End the watch."""
        WATCHES.settle()
        WATCHES.remove(self)

    def __enter__(self) -> ValueWatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def compiled(self) -> None:
        """Note that a kernel has the value."""
        self._is_compiled = True

    def refused(self) -> None:
        """Note that a kernel has the line but not the value, which was reported."""
        self._was_refused = True

    def launched(self, grid: tuple[int, int, int]) -> None:
        """Note that a kernel with the value is launched on a grid."""
        if self.watch.may_be_in(grid):
            self._missed_grids = -1
        elif self._missed_grids >= 0:
            self._missed_grids += 1
            self._largest_grid = max(self._largest_grid or grid, grid)

    def take(self, values: Sequence[WatchedValue], count: WatchCount) -> None:
        """Take the values that a launch showed."""
        self.seen += count.seen
        self.kept += count.kept
        if self._keeps_values:
            self._values += values[: MOST_VALUES - len(self._values)]

    def missing(self) -> str | None:
        """Return a line on what the watch missed, for its end; None if it missed nothing."""
        text = self.watch.text
        if not self._is_compiled:
            if self._was_refused:
                return None
            return f"watch {text}: no kernel that was launched has this line"
        if self._missed_grids > 0:
            return f"watch {text}: its programs are in no grid; the largest is {self._largest_grid}"
        if self.seen > self.kept:
            room = _size(int(KNOBS.watch_buffer_bytes))
            return (
                f"watch {text}: {self.kept:,} of {self.seen:,} values were kept, there was no room "
                "for more; choose programs (@0) or a condition ( if iteration == 3), or have "
                f"TKDEBUG_WATCH_BUFFER say more than {room} a launch"
            )
        if not self.seen:
            return f"watch {text}: its condition held for no value"
        return None


def _size(size_bytes: int) -> str:
    return f"{size_bytes:,} bytes" if size_bytes % _MIB else f"{size_bytes // _MIB} MiB"


class WatchesInForce:
    """The watches of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: tuple[ValueWatch, ...] | None = None
        self._changed: list[Callable[[], None]] = []
        self._settlers: list[Callable[[], None]] = []
        self._said: set[str] = set()

    @property
    def active(self) -> tuple[ValueWatch, ...]:
        """The watches in force."""
        if self._active is None:
            found = _watches_of(KNOBS.watches)
            self._active = found
            if found:
                atexit.register(self.conclude)
        return self._active

    def __bool__(self) -> bool:
        return bool(self.active)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The watches that are looked at."""
        return tuple(one.watch for one in self.active)

    def on_change(self, forget: Callable[[], None]) -> None:
        """Have `forget` called whenever kernels have to be compiled for other watches."""
        self._changed.append(forget)

    def on_settle(self, wait: Callable[[], None]) -> None:
        """Have `wait` called before values are read, as launches may still be running."""
        self._settlers.append(wait)

    def add(self, one: ValueWatch) -> None:
        """Put a watch in force."""
        with self._lock:
            self._active = (*self.active, one)
        self._tell_changed()

    def remove(self, one: ValueWatch) -> None:
        """End a watch, and report what it missed."""
        if one in self.active:
            with self._lock:
                self._active = tuple(other for other in self.active if other is not one)
            self._tell_changed()
            self._tell_missing((one,))

    def reset(self) -> None:
        """Return to the knobs' watches, as a new run begins; drop kernels if any was in force."""
        before, self._active = self._active, None
        self._said.clear()
        if before:
            self._tell_changed()

    def _tell_changed(self) -> None:
        for forget in self._changed:
            forget()

    def settle(self) -> None:
        """Wait for launches that are still running."""
        for wait in self._settlers:
            wait()

    def named(self, text: str) -> list[ValueWatch]:
        """Return the watches of that text."""
        return [one for one in self.active if one.watch.text == text]

    def compiled(self, found: Sequence[str], problems: Sequence[tuple[Watch, str]]) -> None:
        """Note a compiled kernel: the watches whose values it has; report why it lacks others."""
        for text in found:
            for one in self.named(text):
                one.compiled()
        for watch, problem in problems:
            for one in self.named(watch.text):
                one.refused()
            self._tell_once(problem)

    def launched(self, texts: Sequence[str], grid: tuple[int, int, int]) -> None:
        """Note the launch of a kernel that has the values of these watches."""
        for text in texts:
            for one in self.named(text):
                one.launched(grid)

    def take(self, values: Sequence[WatchedValue], counts: Sequence[WatchCount]) -> None:
        """Hand out the values of a launch."""
        for count in counts:
            mine = [value for value in values if value.watch == count.watch]
            for one in self.named(count.watch):
                one.take(mine, count)
            if count.seen:
                HOOKS.record(count)
        for value in values:
            HOOKS.record(value)

    def conclude(self) -> None:
        """Report what each watch in force missed, after waiting for launches that still run."""
        if self._active:
            self.settle()
            self._tell_missing(self._active)

    def _tell_missing(self, watches: Sequence[ValueWatch]) -> None:
        for one in watches:
            problem = one.missing()
            if problem is not None:
                self._tell_once(problem)

    def _tell_once(self, problem: str) -> None:
        if problem not in self._said:
            self._said.add(problem)
            tell(problem)


WATCHES = WatchesInForce()


def watch(
    place: str | Any,
    line: int | None = None,
    name: str | None = None,
    *,
    programs: str = "",
    condition: str = "",
    whole: bool = False,
) -> ValueWatch:
    """Watch a value of kernels from now on.

    Args:
        place: `"FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION]"`, or a kernel or a file, with
            `line` and `name`.
        line: the first line of the statement that binds the variable; None if `place` has it.
        name: the name of the variable; None if `place` has it.
        programs: the programs, as after the @ of a text: `"3"`, `"0:4,1"`; all by default.
        condition: the condition, as after the `if` of a text.
        whole: keep the whole tile, and not its summary alone.

    Returns:
        The watch: its `values` are the values seen, `stop()` ends it, and so does the end of a
            `with` block.

    Raises:
        UsageError: there is no such place, or something cannot be read.
    """
    from tkdebug.watches.places import Watch, checked_watch, read_watch

    if line is None or name is None:
        if not isinstance(place, str) or line is not None or name is not None:
            raise UsageError("watch: got a place without line or name, expected all three")
        text = place
    else:
        function = place
        while not hasattr(function, "kernel_source") and hasattr(function, "fn"):
            function = function.fn  # of a tuner
        source = getattr(function, "kernel_source", None)
        if source is None and not isinstance(place, str):
            raise UsageError(f"watch: got {place!r:.80}, expected a kernel, or the name of a file")
        file = place if source is None else source.file
        text = f"{file}:{line}:{name}"
    if programs:
        text = _with_programs(text, programs)
    found = read_watch(text + (f" if {condition}" if condition else ""))
    if whole:
        found = checked_watch(
            Watch(found.file, found.line, found.name, found.programs, found.condition, True)
        )
    one = ValueWatch(found, keeps_values=True)
    WATCHES.add(one)
    return one


def _watches_of(texts: Sequence[str]) -> tuple[ValueWatch, ...]:
    if not texts:
        return ()
    from tkdebug.watches.places import read_watch  # launches without watches do not wait for it

    return tuple(ValueWatch(read_watch(text), False) for text in texts)


def _with_programs(text: str, programs: str) -> str:
    place, condition, rest = text.partition(" if ")
    return f"{place}@{programs}{condition}{rest}"
