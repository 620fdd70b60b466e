"""`ExpandWatches`: makes native code of what shows values to who watches them.

A `tt.watch` becomes ordinary ops: reductions of the tile to a summary, an atomic that takes the
next record of the site, and stores. So layouts, shuffles and barriers are those of any kernel, and
interpreted GPU IR fills the same records. Where the records lie is said by two parameters, behind
all others: counters and records, both int64.

Everything is computed in fp64 in a fixed way, so that a summary is the same in whatever order its
elements are reduced: the mean is a sum of integers, the finite elements times a power of two that
depends on the largest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import math, scf, tt
from tkdebug.compiler.dtypes import block_type, pointer_type
from tkdebug.compiler.ir.core import Block, Module, Operation, Region
from tkdebug.compiler.ir.types import shape_of
from tkdebug.compiler.ops import conversion, operators, table
from tkdebug.compiler.ops.emitter import CompileOptions, Emitter
from tkdebug.compiler.probes.watch_sites import (
    BINS,
    FIRST_EXPONENT,
    HEADER_WORDS,
    SUMMARY_WORDS,
    Space,
    WatchSite,
    Word,
    spaces,
    watch_ops,
    watch_sites,
)
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.tensor import tensor
from tkdebug.watches.conditions import (
    Field,
    Logic,
    Node,
    evaluate,
    fields_of,
)

COUNTERS, RECORDS = "watch counters", "watch records"
ALIGNMENT = 16
# Of fp64.
EXPONENT_BIAS = 1023
FRACTION_BITS = 52
# Sums of scaled elements stay below 2 ** 62.
_SUM_BITS = 61


def scale_of(biased_exponent: Any, elements: int) -> Any:
    """Twos by which elements are scaled before they are cut to integers.

    Args:
        biased_exponent: of the largest finite magnitude.
        elements: how many are summed up.
    """
    return EXPONENT_BIAS + _SUM_BITS - (elements - 1).bit_length() - biased_exponent


@dataclass(frozen=True, slots=True)
class ExpandWatches:
    """Replaces every `tt.watch`.

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
        emit = Emitter(module, CompileOptions(), table.OPS)
        known = {op.id for op in module.walk()}
        for op, number in list(watch_ops(module.function)):
            value = tensor(tt.Watch(op).value, _language_type(op, sites[number]))
            code = _Expansion(emit, op, sites[number], rooms[number], value, counters, records)
            with emit.builder.before(op), emit.builder.at(op.location):
                new = code.build()
            rewriter.replace_with_ops(op, "expand-watch", new)
        rewriter.commit()
        for op in module.walk():
            if op.id not in known:
                rewriter.record_new(op, "expand-watch")


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


class _Code:
    """Functions of the language, as methods that emit ops."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit

    def call(self, name: str, *arguments: object, **keywords: object) -> tensor:
        """`tl.name(…)`."""
        found: tensor = table.LANGUAGE[name].emit(self.emit, *arguments, **keywords)
        return found

    def binary(self, name: str, left: object, right: object) -> tensor:
        """A Python operator."""
        return operators.binary(self.emit, name, left, right)

    def compare(self, name: str, left: object, right: object) -> tensor:
        """A comparison."""
        return operators.compare(self.emit, name, left, right)

    def both(self, left: tensor, right: tensor) -> tensor:
        """Both conditions."""
        return self.binary("and", left, right)

    def cast(self, value: tensor, element: dt.dtype) -> tensor:
        """As numbers of another type."""
        return conversion.cast(self.emit, value, element)

    def bits(self, value: tensor, element: dt.dtype) -> tensor:
        """The same bits as another type."""
        return conversion.cast(self.emit, value, element, bitcast=True)

    def number(self, value: float) -> tensor:
        """An fp64 constant."""
        return conversion.constant(self.emit, value, dt.float64)

    def power(self, exponent: tensor) -> tensor:
        """2 to the power of an int64 that fp64 has as a normal number, fp64."""
        biased = self.binary("add", exponent, EXPONENT_BIAS)
        return self.bits(self.binary("lshift", biased, FRACTION_BITS), dt.float64)

    def scaled(self, value: tensor, exponent: tensor) -> tensor:
        """`value` times 2 to the power of `exponent`, in two steps as one may be beyond fp64."""
        half = self.binary("rshift", exponent, 1)
        first = self.binary("mul", value, self.power(half))
        return self.binary("mul", first, self.power(self.binary("sub", exponent, half)))

    def exponents(self, magnitude: tensor) -> tensor:
        """The biased exponents of fp64 numbers without sign, int64."""
        return self.binary("rshift", self.bits(magnitude, dt.int64), FRACTION_BITS)


class _Summary(_Code):
    """The fields of a tile's summary, each computed when it is first asked for."""

    def __init__(self, emit: Emitter, value: tensor) -> None:
        super().__init__(emit)
        self._value = value

    @cached_property
    def elements(self) -> tensor:
        """The tile as one axis of fp64."""
        value = self._value
        element = value.type.scalar
        if isinstance(element, dt.dtype) and element.is_floating():
            # Through fp32, which holds all that are narrower.
            value = self.cast(value, dt.float64 if element == dt.float64 else dt.float32)
        value = self.cast(value, dt.float64)
        if not value.shape:
            return conversion.splat(self.emit, value, (1,))
        return self.call("reshape", value, (value.numel,))

    @cached_property
    def _is_nan(self) -> tensor:
        return self.compare("ne", self.elements, self.elements)

    @cached_property
    def _magnitude(self) -> tensor:
        return self.call("abs", self.elements)

    @cached_property
    def _is_inf(self) -> tensor:
        return self.compare("eq", self._magnitude, float("inf"))

    @cached_property
    def _is_finite(self) -> tensor:
        # NaNs are not less than anything.
        return self.compare("lt", self._magnitude, float("inf"))

    @cached_property
    def _finite_magnitude(self) -> tensor:
        return self.call("where", self._is_finite, self._magnitude, 0.0)

    def count(self, flags: tensor) -> tensor:
        """How many are true, int64."""
        return self.cast(self.call("sum", self.cast(flags, dt.int32)), dt.int64)

    @cached_property
    def nan(self) -> tensor:
        """NaNs, int64."""
        return self.count(self._is_nan)

    @cached_property
    def inf(self) -> tensor:
        """Infinities, int64."""
        return self.count(self._is_inf)

    @cached_property
    def zeros(self) -> tensor:
        """Elements that are 0, int64."""
        return self.count(self.compare("eq", self.elements, 0.0))

    @cached_property
    def minimum(self) -> tensor:
        """Of what is no NaN, fp64; +inf where there is nothing."""
        return self.call("min", self.call("where", self._is_nan, float("inf"), self.elements))

    @cached_property
    def maximum(self) -> tensor:
        """Of what is no NaN, fp64; -inf where there is nothing."""
        return self.call("max", self.call("where", self._is_nan, float("-inf"), self.elements))

    @cached_property
    def scale(self) -> tensor:
        """Twos by which elements are scaled before they are summed up, int64."""
        largest = self.exponents(self.call("max", self._finite_magnitude))
        return self.binary("sub", scale_of(0, self._value.numel), largest)

    @cached_property
    def sum(self) -> tensor:
        """Of the scaled finite elements, int64."""
        finite = self.call("where", self._is_finite, self.elements, 0.0)
        return self.call("sum", self.cast(self.scaled(finite, self.scale), dt.int64))

    @cached_property
    def mean(self) -> tensor:
        """Of the finite elements, fp64; NaN where there is none."""
        total = self.cast(self.sum, dt.float64)
        count = self.binary("sub", self._value.numel, self.binary("add", self.nan, self.inf))
        unscaled = self.scaled(total, self.binary("sub", 0, self.scale))
        return self.binary("truediv", unscaled, self.cast(count, dt.float64))

    @cached_property
    def histogram(self) -> tensor:
        """Finite elements other than 0 by their exponent, int64."""
        first = EXPONENT_BIAS + FIRST_EXPONENT
        bins = self.binary("sub", self.exponents(self._finite_magnitude), first)
        bins = self.call("minimum", self.call("maximum", bins, 0), BINS - 1)
        mask = self.compare("gt", self._finite_magnitude, 0.0)
        counts = self.call("histogram", self.cast(bins, dt.int32), BINS, mask)
        return self.cast(counts, dt.int64)


class _Algebra(_Code):
    """Conditions as ops."""

    def __init__(self, emit: Emitter, summary: _Summary, visit: tensor) -> None:
        super().__init__(emit)
        self._summary = summary
        self._visit = visit

    def program(self, axis: int | None) -> tensor:
        """The program's number."""
        if axis is None:
            return self.cast(linear_program(self), dt.float64)
        return self.cast(self.call("program_id", axis), dt.float64)

    def iteration(self) -> tensor:
        """How often the program came by before."""
        return self.cast(self._visit, dt.float64)

    def summary(self, field: Field) -> tensor:
        """A field of the summary."""
        summary = self._summary
        if field == "elements":
            return self.number(float(summary.elements.numel))
        if field == "value":
            # One element: whatever it is reduced by.
            return self._or_nan(summary.minimum, summary)
        if field in ("minimum", "maximum"):
            return self._or_nan(getattr(summary, field), summary)
        found: tensor = getattr(summary, field)
        return self.cast(found, dt.float64)

    def _or_nan(self, value: tensor, summary: _Summary) -> tensor:
        is_any = self.compare("lt", summary.nan, summary.elements.numel)
        return self.call("where", is_any, value, float("nan"))

    def binary(self, operator: str, left: object, right: object) -> tensor:
        """Arithmetic."""
        names = {"div": "truediv"}
        if operator == "mod":
            quotient = self.binary("truediv", left, right)
            whole = self.emit.value(math.Floor, [quotient], quotient.type)
            return self.binary("sub", left, self.binary("mul", whole, right))
        return super().binary(names.get(operator, operator), left, right)

    def magnitude(self, operand: tensor) -> tensor:
        """Without its sign."""
        return self.call("abs", operand)

    def combine(self, is_and: bool, left: tensor, right: tensor) -> tensor:
        """Both, or either."""
        return super().binary("and" if is_and else "or", left, right)

    def negate(self, operand: tensor) -> tensor:
        """Whether a condition does not hold."""
        return operators.logical_not(self.emit, operand)


def linear_program(code: _Code) -> tensor:
    """The program's number in the grid, x fastest, int64."""
    x, y, z = (code.cast(code.call("program_id", axis), dt.int64) for axis in range(3))
    width, height = (code.cast(code.call("num_programs", axis), dt.int64) for axis in range(2))
    rows = code.binary("add", code.binary("mul", z, height), y)
    return code.binary("add", code.binary("mul", rows, width), x)


class _Expansion(_Code):
    """The ops of one watch."""

    def __init__(
        self,
        emit: Emitter,
        op: Operation,
        site: WatchSite,
        space: Space,
        value: tensor,
        counters: tensor,
        records: tensor,
    ) -> None:
        super().__init__(emit)
        self._op = op
        self._site = site
        self._space = space
        self._value = value
        self._counters = counters
        self._records = records

    def build(self) -> list[Operation]:
        """Build everything at the insertion point; gives what does the watch's work."""
        visit = self.emit.value(tt.Visit, (), dt.int32, watch=self._site.number)
        early, late = _parts(self._site.node)
        outside = _Algebra(self.emit, _Summary(self.emit, self._value), visit)
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
        """Take a record where the conditions hold, and fill it if there is one."""
        summary = _Summary(self.emit, self._value)
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
        header = (linear_program(self), self.cast(visit, dt.int64))
        for word, value in zip((Word.PROGRAM, Word.ITERATION), header, strict=True):
            self._store(place, word, value, fits)
        if self._site.is_whole:
            self._store_tile(place, fits)
        else:
            self._store_summary(place, summary, fits)

    def _store(self, place: tensor, word: int, value: tensor, mask: tensor) -> None:
        self.call("store", self.binary("add", place, word), value, mask)

    def _store_summary(self, place: tensor, summary: _Summary, mask: tensor) -> None:
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
    """The parts of a condition that all have to hold: those without the summary, and the others."""
    if node is None:
        return [], []
    parts = node.operands if isinstance(node, Logic) and node.is_and else (node,)
    early = [part for part in parts if not fields_of(part)]
    return early, [part for part in parts if part not in early]
