"""Variables of which the IR has no value at a line, though Python still holds one.

These are names that a loop's body bound in the iteration before, that an earlier branch bound, or
that an ended loop bound. Their values stay in the batch (`DebugCode.kept`), and the log of lines
passed says where a name was bound last. A value that was computed again since then is read by
executing the launch again, up to that line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.compiler.frontend.variables import Mark
from tkdebug.compiler.ir import Operation, Value
from tkdebug.debugger.execution import CountingObserver, Execution, Here, Passed, Traced
from tkdebug.debugger.stops import Moment
from tkdebug.debugger.values import Reading, Unavailable, read
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

_SEVERAL = "the selected programs bound it at different times; select one of them"
_SOME = "only some of the selected programs have bound it; select one of those"
_FORGOTTEN = "where it was bound is no longer in the log of lines passed"


@dataclass(slots=True)
class _Search:
    """A search for the line where one name was bound last.

    Attributes:
        open: the programs, as batch positions, for which that line is not known yet.
        found: the entries of the log at which it had its values, and whether the value of each was
            not computed again since.
    """

    open: set[int]
    found: list[tuple[Passed, bool]] = field(default_factory=list)


def recall(
    execution: Execution, here: Here, mark: Mark, names: Iterable[str], positions: Tensor
) -> dict[str, Reading]:
    """Read the values that Python holds for names without a value at `mark`.

    Args:
        execution: the execution of the launch.
        here: the moment of the stop.
        mark: the mark of the frame that is asked about.
        names: names of which another line of the function has a value; others are left out.
        positions: the positions of programs in the batch.

    Returns:
        A reading for each name that was bound, or was bound by some programs only.
    """
    known = execution.code.recallable(mark.activation)
    programs = set(positions.tolist())
    searches = {name: _Search(set(programs)) for name in names if name in known}
    if not searches or not programs:
        return {}
    is_whole_log = _search(execution, here, mark, searches, programs)
    out: dict[str, Reading] = {}
    again: dict[str, Passed] = {}
    for name, search in searches.items():
        if not search.found:
            if not is_whole_log:
                out[name] = Unavailable(_FORGOTTEN)
        elif search.open:
            out[name] = Unavailable(_SOME)
        elif len(search.found) > 1:
            out[name] = Unavailable(_SEVERAL)
        else:
            entry, is_untouched = search.found[0]
            if is_untouched:
                out[name] = read(here.run, entry.mark.names[name], positions)
            else:
                again[name] = entry
    if again:
        out.update(_read_again(execution, here, again, positions))
    return out


def _search(
    execution: Execution,
    here: Here,
    mark: Mark,
    searches: dict[str, _Search],
    programs: set[int],
) -> bool:
    """Search the log backwards; return whether it is long enough to find all bound names."""
    code, run = execution.code, here.run
    first = code.first_mark(mark.activation)
    unsettled, since = dict(searches), set[Mark]()
    for entry in reversed(execution.passed):
        if entry.first != run.first or entry.moment >= here.moment:
            continue
        passed = entry.mark
        if passed.activation is mark.activation:
            bound = [name for name in unsettled if name in passed.names]
            if bound:
                active = _active(entry, programs)
                for name in bound:
                    search = unsettled[name]
                    if search.open & active:
                        is_untouched = since.isdisjoint(code.births(passed.names[name]))
                        search.found.append((entry, is_untouched))
                        search.open -= active
                    if not search.open:
                        del unsettled[name]
            if passed is first or not unsettled:
                return True
        since.add(passed)
    return False


def _active(entry: Passed, programs: set[int]) -> set[int]:
    if entry.active is None:
        return programs
    return programs.intersection(entry.active.nonzero().reshape(-1).tolist())


def _read_again(
    execution: Execution, here: Here, wanted: dict[str, Passed], positions: Tensor
) -> dict[str, Reading]:
    last = max(entry.moment for entry in wanted.values())
    until = Moment(last.op + 1, 0)
    observer = execution.execute_beside(
        lambda now: _Reader(execution, until, now, here.run.first, wanted, positions), until
    )
    return observer.readings


class _Reader(CountingObserver):
    """Reads names at the lines at which they had their values.

    Attributes:
        readings: the readings so far.
    """

    def __init__(
        self,
        execution: Execution,
        until: Moment,
        now: int,
        first: int,
        wanted: dict[str, Passed],
        positions: Tensor,
    ) -> None:
        super().__init__(execution, until, now)
        self.readings: dict[str, Reading] = {}
        self._first, self._wanted, self._positions = first, wanted, positions

    def needs(self, op: Operation) -> Iterable[Value]:
        """Return the values of the names of the line."""
        return self._execution.code.needed.get(op, ())

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Count, and read the names that are due."""
        super().before(run, op, operands)
        for name, entry in self._wanted.items():
            if entry.moment.op == self.now and run.first == self._first:
                self.readings[name] = read(run, entry.mark.names[name], self._positions)
        if len(self.readings) == len(self._wanted):
            raise Traced
