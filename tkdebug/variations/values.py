"""The first value that differs between two IRs of a kernel, for one program.

Values are aligned by ops: one that a pass left in place has its number still, and of one that it
replaced the rewriter says by what. Ops that run more or less often than before are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.causes.rerun import Budget, Store, StoreFinder
from tkdebug.compiler.ir import Module, Operation, ScalarType, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.variations.outcomes import Difference, Tolerance, first_index, number_text, run_kept

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import TileValue
    from tkdebug.variations.launches import KeptLaunch

# The most bytes of values that are kept of the run to compare with.
_MOST_BYTES = 512 << 20

# A result of an op: the op's id and the result's number.
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FirstValue:
    """The first value of a program that differs.

    Attributes:
        op: the op that gives it.
        round: how often the op had run before.
        lane: place in the tile.
    """

    op: Operation
    program: int
    round: int
    lane: tuple[int, ...]
    got: str
    expected: str


class Replacements:
    """Notes what passes put in the place of values; a `Follower`."""

    def __init__(self) -> None:
        self._new: dict[Key, Key] = {}

    def replaced(self, old: Value, new: Value) -> None:
        """Note that `new` replaces `old`."""
        before, after = _key(old), _key(new)
        if before is not None and after is not None:
            self._new[before] = after

    def copied(self, op: Operation, copy: Operation, known: Mapping[Value, Value]) -> None:
        """Do nothing: a copy is a value of its own."""

    def originals(self) -> dict[Key, Key]:
        """Return the original of each final replacement, by the replacement."""
        found: dict[Key, Key] = {}
        for old in self._new:
            at, seen = old, {old}
            while (following := self._new.get(at)) is not None and following not in seen:
                at = following
                seen.add(at)
            # Of several the first counts: a merged op was there before.
            found.setdefault(at, old)
        return found


def _key(value: Value) -> Key | None:
    op = value.defining_op
    return None if op is None else (op.id, value.index)


class _Log(Observer):
    """Notes each value of one program."""

    needs_intermediates = True
    is_passive = True

    def __init__(self, program: int) -> None:
        self._program = program
        self.values: dict[Key, list[Tensor]] = {}
        self._bytes = 0

    def moments(self, op: Operation) -> Moments:
        """Ask for the moment after ops that give numbers."""
        return Moments.AFTER if any(map(_is_number, op.results)) else Moments.NEVER

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Note the results of an op for the program."""
        if run.takes_part(self._program):
            place = self._program - run.first
            for value, result in zip(op.results, results, strict=True):
                if _is_number(value):
                    dense = run.full(result, value.type)
                    self.note(op, value, dense[place if dense.shape[0] > 1 else 0])
        return results

    def note(self, op: Operation, value: Value, tile: Tensor) -> None:
        """Store a copy of a value, as long as there is room."""
        self._bytes += tile.numel() * tile.element_size()
        if self._bytes <= _MOST_BYTES:
            self.values.setdefault((op.id, value.index), []).append(tile.clone())


class _Comparing(_Log):
    """Notes the values of one program that differ from the same values of another run."""

    def __init__(
        self, program: int, log: _Log, originals: Mapping[Key, Key], tolerance: Tolerance
    ) -> None:
        super().__init__(program)
        self._log = log
        self._originals = originals
        self._tolerance = tolerance
        self._rounds: dict[Key, int] = {}
        self.differing: list[FirstValue] = []

    def note(self, op: Operation, value: Value, tile: Tensor) -> None:
        """Compare a value with the same value of the other run."""
        key = (op.id, value.index)
        round_ = self._rounds[key] = self._rounds.get(key, -1) + 1
        known = self._log.values.get(key) or self._log.values.get(self._originals.get(key, key))
        if known is None or round_ >= len(known):
            return
        expected = known[round_]
        if expected.shape != tile.shape or expected.dtype != tile.dtype:
            return
        bad = self._tolerance.differing(tile, expected)
        if not bool(bad.any()):
            return
        lane = first_index(bad)
        got, wanted = number_text(tile[lane].item()), number_text(expected[lane].item())
        self.differing.append(FirstValue(op, self._program, round_, lane, got, wanted))

    @property
    def counts(self) -> Mapping[Key, int]:
        """The number of times that each result was given."""
        return {key: last + 1 for key, last in self._rounds.items()}


def _is_number(value: Value) -> bool:
    return isinstance(ir.element_of(value.type), ScalarType) and not isinstance(
        value.type, ir.MemDescType
    )


def store_of(launch: KeptLaunch, module: Module, found: Difference, budget: Budget) -> Store | None:
    """Return the last store of an element, or None.

    Args:
        launch: the launch, which is run again.
        module: the IR that is run.
        found: the difference, which names the element.
        budget: the processor time for it.

    Raises:
        OutOfTimeError: it is used up.
    """
    values = launch.fresh()
    tensor = launch.tensors(values).get(found.tensor)
    if tensor is None:
        return None
    address = tensor.untyped_storage().data_ptr()
    writer = StoreFinder(address, found.place * tensor.element_size())
    run_kept(launch, module, budget, observers=(writer,), values=values)
    return writer.found


def first_values(
    program: int,
    before: Callable[[Observer], object],
    after: Callable[[Observer], object],
    replacements: Replacements,
    tolerance: Tolerance,
) -> list[FirstValue]:
    """Return the values of a program that differ, in the order in which they are computed.

    Values of ops that run more or less often than before are left out.

    Args:
        program: its number.
        before: runs it as it should be, with an observer.
        after: runs it as it differs.
        replacements: what passes put in the place of values between the two runs.
        tolerance: the tolerance for floats.
    """
    log = _Log(program)
    before(log)
    comparing = _Comparing(program, log, replacements.originals(), tolerance)
    after(comparing)
    counts = comparing.counts
    return [
        one
        for one in comparing.differing
        if all(
            _times(log, replacements, result) == counts[key]
            for result in one.op.results
            if (key := (one.op.id, result.index)) in counts
        )
    ]


def _times(log: _Log, replacements: Replacements, result: Value) -> int:
    key = _key(result)
    assert key is not None
    known = log.values.get(key) or log.values.get(replacements.originals().get(key, key), [])
    return len(known)
