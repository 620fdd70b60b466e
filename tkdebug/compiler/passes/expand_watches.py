"""`ExpandWatches`: lowers watches to ordinary ops, for native code.

A `tt.watch` becomes ordinary ops: reductions of the tile to a summary, an atomic that takes the
next record of the site, and stores. So layouts, shuffles and barriers are those of any kernel, and
interpreted GPU IR fills the same records. Two more parameters, after all others, are the addresses
of counters and records, both int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import math, scf, tt
from tkdebug.compiler.dtypes import block_type, pointer_type
from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.types import shape_of
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.emitter import CompileOptions, Emitter
from tkdebug.compiler.passes.tile_summaries import Code, TileSummary
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.sites.watches import (
    BINS,
    HEADER_WORDS,
    SUMMARY_WORDS,
    Space,
    WatchSite,
    Word,
    clock_of,
    is_logged,
    spaces,
    watch_ops,
    watch_sites,
)
from tkdebug.compiler.tensor import tensor
from tkdebug.errors import UnsupportedError, shown_path
from tkdebug.watches.conditions import (
    Field,
    Logic,
    Node,
    evaluate,
    fields_of,
)

COUNTERS, RECORDS = "watch counters", "watch records"
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class ExpandWatches:
    """Replaces every `tt.watch` by ops that record the watched values.

    Args:
        budget_bytes: memory for the records of one launch.
    """

    budget_bytes: int
    name: ClassVar[str] = "expand-watches"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Add the parameters, then expand one by one."""
        sites = watch_sites(module.function)
        if not sites:
            return
        counters, records = _add_parameters(module.function)
        rewriter.record_change(module.function, "add-parameters")
        rooms = spaces(sites, self.budget_bytes)
        emit = Emitter(module, CompileOptions())
        known = {op.id for op in module.walk()}
        for op, number in list(watch_ops(module.function)):
            _refuse_waiting_loops(op)
            value = tensor(tt.Watch(op).value, _language_type(op, sites[number]))
            clock = clock_of(sites) if is_logged(sites[number]) else None
            code = _Expansion(
                emit, op, sites[number], rooms[number], value, counters, records, clock
            )
            with emit.builder.before(op), emit.builder.at(op.location):
                new = code.build()
            rewriter.replace_with_ops(op, "expand-watch", new)
        rewriter.commit()
        for op in module.walk():
            if op.id not in known:
                rewriter.record_new(op, "expand-watch")


def _refuse_waiting_loops(op: Operation) -> None:
    """Refuse a watch in a `while` that threads may leave at different times: they cannot meet.

    Raises:
        UnsupportedError: the watch is in such a loop.
    """
    if waits_for_memory(op):
        place = op.location.primary
        raise UnsupportedError(
            f"{shown_path(place.file)}:{place.line}: a value in a `while` that goes on by what "
            "it loads cannot be watched natively; watch it after the loop, or use "
            "`tkdebug run --mode interpret`"
        )


def waits_for_memory(op: Operation) -> bool:
    """Whether an op is in a `while` that threads may leave at different times."""
    return any(
        scf.While.matches(around) and _waits_for_memory(scf.While(around))
        for around in op.ancestors()
    )


def _waits_for_memory(loop: scf.While) -> bool:
    """Whether a loop's condition depends on a `tt.load` in the loop, of any iteration."""
    condition = scf.Condition(loop.before.terminator)
    carried = {
        loop.before: scf.Yield(loop.after.terminator).values,
        loop.after: condition.forwarded,
    }
    inside = set(loop.op.walk())
    pending, seen = [condition.condition], set[Value]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        owner = value.owner
        if isinstance(owner, Block):
            pending += (carried[owner][value.index],) if owner in carried else ()
        elif owner in inside:
            if any(map(tt.Load.matches, owner.walk())):
                return True
            pending += owner.operands
    return False


def _add_parameters(function: Operation) -> tuple[tensor, tensor]:
    view = tt.Func(function)
    type_ = pointer_type(dt.int64)
    names = COUNTERS, RECORDS
    found = tuple(tensor(view.body.add_argument(type_.to_ir()), type_) for _ in names)
    for name, parameter in zip(names, found, strict=True):
        parameter.value.name = name.replace(" ", "_")
    view.arg_names = (*view.arg_names, *names)
    if view.arg_divisibility is not None:
        view.arg_divisibility = (*view.arg_divisibility, ALIGNMENT, ALIGNMENT)
    return found[0], found[1]


def _language_type(op: Operation, site: WatchSite) -> dt.LanguageType:
    shape, element = shape_of(tt.Watch(op).value.type), dt.dtype(site.dtype)
    return block_type(element, shape) if shape else element


class _Algebra(Code):
    """Emits the ops that evaluate a watch's condition; numbers are fp64."""

    def __init__(self, emit: Emitter, summary: TileSummary, visit: tensor) -> None:
        super().__init__(emit)
        self._summary = summary
        self._visit = visit

    def program(self, axis: int | None) -> tensor:
        """The program's number along `axis`, or in the whole grid if `axis` is None, fp64."""
        if axis is None:
            return self.cast(linear_program(self), dt.float64)
        return self.cast(self.call("program_id", axis), dt.float64)

    def iteration(self) -> tensor:
        """The number of the program's earlier visits to the watch, fp64."""
        return self.cast(self._visit, dt.float64)

    def summary(self, field: Field) -> tensor:
        """The field `field` of the summary of the watched tile, fp64."""
        summary = self._summary
        if field == "elements":
            return self.number(float(summary.elements.numel))
        if field == "value":
            # The tile has one element, so any reduction returns it.
            return summary.or_nan(summary.minimum)
        if field in ("minimum", "maximum"):
            return summary.or_nan(getattr(summary, field))
        found: tensor = getattr(summary, field)
        return self.cast(found, dt.float64)

    def binary(self, operator: str, left: object, right: object) -> tensor:
        """Emit the arithmetic `operator`; "mod" is left - floor(left / right) * right."""
        names = {"div": "truediv"}
        if operator == "mod":
            quotient = self.binary("truediv", left, right)
            whole = self.emit.value(math.Floor, [quotient], quotient.type)
            return self.binary("sub", left, self.binary("mul", whole, right))
        return super().binary(names.get(operator, operator), left, right)

    def magnitude(self, operand: tensor) -> tensor:
        """Return the operand without its sign."""
        return self.call("abs", operand)

    def combine(self, is_and: bool, left: tensor, right: tensor) -> tensor:
        """The conjunction of two conditions if `is_and`, else their disjunction."""
        return super().binary("and" if is_and else "or", left, right)

    def negate(self, operand: tensor) -> tensor:
        """The negation of a condition."""
        return operators.logical_not(self.emit, operand)


def linear_program(code: Code) -> tensor:
    """The program's number in the grid, x fastest, int64."""
    x, y, z = (code.cast(code.call("program_id", axis), dt.int64) for axis in range(3))
    width, height = (code.cast(code.call("num_programs", axis), dt.int64) for axis in range(2))
    rows = code.binary("add", code.binary("mul", z, height), y)
    return code.binary("add", code.binary("mul", rows, width), x)


class _Expansion(Code):
    """Builds the ops of one watch."""

    def __init__(
        self,
        emit: Emitter,
        op: Operation,
        site: WatchSite,
        space: Space,
        value: tensor,
        counters: tensor,
        records: tensor,
        clock: int | None,
    ) -> None:
        super().__init__(emit)
        self._clock = clock
        self._op = op
        self._site = site
        self._space = space
        self._value = value
        self._counters = counters
        self._records = records

    def build(self) -> list[Operation]:
        """Build everything at the insertion point; return the ops that do the watch's work."""
        visit = self.emit.value(tt.Visit, (), dt.int32, watch=self._site.number)
        early, late = _parts(self._site.node)
        outside = _Algebra(self.emit, TileSummary(self.emit, self._value), visit)
        wanted = self.compare("ge", visit, 0)
        if self._site.programs:
            wanted = self.both(wanted, self._boxes())
        for part in early:
            wanted = self.both(wanted, evaluate(part, outside))
        then, otherwise = Block(), Block()
        with self.emit.builder.inside(then):
            self._record(visit, late)
            self.emit.op(scf.Yield, result_types=())
        with self.emit.builder.inside(otherwise):
            self.emit.op(scf.Yield, result_types=())
        regions = [Region([then]), Region([otherwise])]
        branch = self.emit.op(scf.If, [wanted], (), regions)
        return [visit.value.owner, branch]  # type: ignore[list-item]

    def _boxes(self) -> tensor:
        found: tensor | None = None
        for box in self._site.programs:
            inside: tensor | None = None
            for axis, (first, end) in enumerate(box):
                place = self.call("program_id", axis)
                here = self.both(self.compare("ge", place, first), self.compare("lt", place, end))
                inside = here if inside is None else self.both(inside, here)
            assert inside is not None
            found = inside if found is None else self.binary("or", found, inside)
        assert found is not None
        return found

    def _record(self, visit: tensor, conditions: Sequence[Node]) -> None:
        """Reserve a record if the conditions hold, and fill it if the site has room for it."""
        summary = TileSummary(self.emit, self._value)
        algebra = _Algebra(self.emit, summary, visit)
        wanted: tensor | None = None
        for part in conditions:
            holds = evaluate(part, algebra)
            wanted = holds if wanted is None else self.both(wanted, holds)
        counter = self.binary("add", self._counters, self._site.number)
        one = conversion.constant(self.emit, 1, dt.int64)
        slot = self.call("atomic_add", counter, one, mask=wanted, sem="relaxed")
        fits = self.compare("lt", slot, self._space.capacity)
        if wanted is not None:
            fits = self.both(fits, wanted)
        offset = self.binary("mul", slot, self._site.record_words)
        first = self.binary("add", offset, self._space.first_word)
        place = self.binary("add", self._records, first)
        time = self.cast(visit, dt.int64)
        if self._clock is not None:
            clock = self.binary("add", self._counters, self._clock)
            time = self.call("atomic_add", clock, one, sem="relaxed")
        header = (linear_program(self), time)
        for word, value in zip((Word.PROGRAM, Word.ITERATION), header, strict=True):
            self._store(place, word, value, fits)
        if self._site.is_whole:
            self._store_tile(place, fits)
        else:
            self._store_summary(place, summary, fits)

    def _store(self, place: tensor, word: int, value: tensor, mask: tensor) -> None:
        self.call("store", self.binary("add", place, word), value, mask)

    def _store_summary(self, place: tensor, summary: TileSummary, mask: tensor) -> None:
        fields: dict[Word, Callable[[], tensor]] = {
            Word.NAN: lambda: summary.nan,
            Word.INF: lambda: summary.inf,
            Word.ZEROS: lambda: summary.zeros,
            Word.MINIMUM: lambda: self.bits(summary.minimum, dt.int64),
            Word.MAXIMUM: lambda: self.bits(summary.maximum, dt.int64),
            Word.SUM: lambda: summary.sum,
            Word.SCALE: lambda: summary.scale,
        }
        for word, value in fields.items():
            self._store(place, word, value(), mask)
        bins = self.binary("add", self.call("arange", 0, BINS), SUMMARY_WORDS)
        self.call("store", self.binary("add", place, bins), summary.histogram, mask)

    def _store_tile(self, place: tensor, mask: tensor) -> None:
        value = self._value
        element = value.type.scalar
        assert isinstance(element, dt.dtype)
        if element.is_bool():
            value, element = self.cast(value, dt.int8), dt.int8
        elif element.is_fp8():
            value, element = self.bits(value, dt.int8), dt.int8
        first = self.binary("add", place, HEADER_WORDS)
        first = conversion.cast(self.emit, first, pointer_type(element))
        if not value.shape:
            self.call("store", first, value, mask)
            return
        positions: tensor | None = None
        for axis, extent in enumerate(value.shape):
            along = self.call("arange", 0, extent)
            for other in range(len(value.shape)):
                if other != axis:
                    along = conversion.expand_dims(self.emit, along, other)
            if positions is not None:
                along = self.binary("add", self.binary("mul", positions, extent), along)
            positions = along
        assert positions is not None
        self.call("store", self.binary("add", first, positions), value, mask)


def _parts(node: Node | None) -> tuple[list[Node], list[Node]]:
    """Return the conjuncts of a condition: those that need no summary, and the others."""
    if node is None:
        return [], []
    parts = node.operands if isinstance(node, Logic) and node.is_and else (node,)
    early = [part for part in parts if not fields_of(part)]
    return early, [part for part in parts if part not in early]
