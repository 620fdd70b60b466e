"""Symptoms that checked kernels note: NaNs that are stored, undefined integers, broken hints.

Each test sets bits of one word of the thread, which LLVM keeps in a register; at the kernel's end,
set bits are reported. There is no branch before that, so loops stay as they are. A test may hold
without a fault, as the launch is then examined again (`compiler.sites.table`), but never misses a
fault of its kind, except where `_hint` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.analysis.global_memory import mask_of, vector_elems
from tkdebug.compiler.analysis.offset_arithmetic import offset_arithmetic
from tkdebug.compiler.dialects import arith, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import PointerAccess, SameElements
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import PointerType, ScalarType, TensorType, element_of, shape_of
from tkdebug.compiler.layouts import LANE, REGISTER, LinearLayout, f2
from tkdebug.compiler.sites import table
from tkdebug.compiler.sites.checks import CheckSite, check_sites
from tkdebug.compiler.sites.table import (
    HINT,
    INDEX,
    SEEN_SOME,
    SYMPTOM_KINDS,
    SYMPTOMS,
    bit_of,
    program_offset,
    unwritten_infinities,
)
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.arithmetic import FLOAT_SUFFIX
from tkdebug.compiler.targets.nvptx.lowering.checks.corners import may_wrap, wraps
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import KernelChecks
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.compiler.targets.target import BF16_ARITHMETIC

# With more groups, masks are looked at only if any value is a NaN, masked on or off.
_FEW_GROUPS = 2
# Suffix -> the register type, 0, Inf and -Inf.
_NUMBERS = {
    "f16": ("b16", "0x0000", "0x7C00", "0xFC00"),
    "bf16": ("b16", "0x0000", "0x7F80", "0xFF80"),
    "f32": ("f32", "0f00000000", "0f7F800000", "0fFF800000"),
    "f64": ("f64", "0d0000000000000000", "0d7FF0000000000000", "0dFFF0000000000000"),
}


class _Values:
    """Floats of one type that are tested, and the PTX that tests them.

    Args:
        ctx: the kernel.
        groups: registers of half, bfloat, float or double.
        masks: i1 of each group: whether it counts; None if all do.
    """

    def __init__(
        self, ctx: Lowering, groups: Sequence[Registers], masks: Sequence[LLVMValue] | None
    ) -> None:
        if masks is not None and all(mask.constant == 1 for mask in masks):
            masks = None
        self._ctx = ctx
        self._groups = groups
        self._masks = masks
        self.text = InlinePTX(["i32"])
        type_ = groups[0][0].type
        # The upper half of a float; arithmetic and comparisons of bf16 exist from sm_90 on.
        self._is_widened = type_ == "bfloat" and not ctx.target.has(BF16_ARITHMETIC)
        self.suffix = "f32" if self._is_widened else FLOAT_SUFFIX[type_]
        self.text.put("{", ".reg .pred here;")
        if self._is_widened:
            self.text.put(".reg .b16 low;", ".reg .f32 x, y;", "mov.b16 low, 0;")
        self.has_many = masks is not None and len(groups) > _FEW_GROUPS

    @property
    def all(self) -> Registers:
        """All values, those that are masked off too."""
        return [value for group in self._groups for value in group]

    def test(self, test: Callable[[Registers, str], None], found: str) -> None:
        """Test all values that count; `test` ORs its result into a predicate, here `found`."""
        if self._masks is None:
            test(self.all, found)
            return
        for group, mask in zip(self._groups, self._masks, strict=True):
            if mask.constant == 1:
                test(group, found)
            elif mask.constant is None:
                self.text.put("setp.ne.u32 here, 0, 0;")
                test(group, "here")
                both = f"and.pred here, here, {self.text.use(mask)};"
                self.text.put(both, f"or.pred {found}, {found}, here;")

    def compare(self, values: Registers, found: str) -> None:
        """OR into `found` whether any of `values` is a NaN."""
        names = self._names(values)
        for pair in zip(names[::2], [*names[1::2], names[-1]], strict=False):
            one, other = self._wide(*pair)
            self.text.put(f"setp.nan.or.{self.suffix} {found}, {one}, {other}, {found};")

    def add_up(self) -> None:
        """Make `sum` a NaN if any value is not finite, masked on or off."""
        for name in self._names(self.all):
            (one,) = self._wide(name)
            self.text.put(f"fma.rn.{self.suffix} sum, {one}, zero, sum;")

    def equal(self, values: Registers, found: str) -> None:
        """OR into `found` whether any of `values` equals `number`."""
        for name in self._names(values):
            (one,) = self._wide(name)
            self.text.put(f"setp.eq.or.{self.suffix} {found}, {one}, number, {found};")

    def _names(self, values: Registers) -> list[str]:
        return [self.text.use(_operand(self._ctx, value)) for value in dict.fromkeys(values)]

    def _wide(self, *names: str) -> tuple[str, ...]:
        if not self._is_widened:
            return names
        wide = ("x", "y")[: len(names)]
        self.text.put(*(f"mov.b32 {w}, {{low, {n}}};" for w, n in zip(wide, names, strict=True)))
        return wide


def any_nan(
    ctx: Lowering, groups: Sequence[Registers], masks: Sequence[LLVMValue] | None, bit: int
) -> LLVMValue:
    """i32: `bit` where this thread has a NaN, else 0.

    Args:
        ctx: the kernel.
        groups: registers of half, bfloat, float or double.
        masks: i1 of each group: whether it counts; None if all do.
        bit: the bit to set.
    """
    values = _Values(ctx, groups, masks)
    text = values.text
    text.put(".reg .pred any;", "setp.ne.u32 any, 0, 0;")
    if values.has_many:
        values.compare(values.all, "any")
        text.put("@!any bra NONE;", "setp.ne.u32 any, 0, 0;")
    values.test(values.compare, "any")
    if values.has_many:
        text.put("NONE:")
    text.put(f"selp.u32 $0, {bit}, 0, any;", "}")
    (found,) = text.emit(ctx, side_effects=False)
    return found


def any_not_finite(
    ctx: Lowering,
    groups: Sequence[Registers],
    masks: Sequence[LLVMValue] | None,
    bits: tuple[int, int],
    infinities: Collection[float],
) -> LLVMValue:
    """i32: bits of this thread's symptoms.

    Args:
        ctx: the kernel.
        groups: registers of half, bfloat, float or double.
        masks: i1 of each group: whether it counts; None if all do.
        bits: the bits for a NaN, and for a NaN or one of these infinities.
        infinities: the infinities that count.
    """
    values, (of_nan, of_inf) = _Values(ctx, groups, masks), bits
    text, suffix = values.text, values.suffix
    type_, zero, positive, negative = _NUMBERS[suffix]
    text.put(f".reg .{type_} sum, zero, number;", ".reg .pred any, inf;", "mov.u32 $0, 0;")
    text.put(f"mov.{type_} zero, {zero};", f"mov.{type_} sum, {zero};")
    values.add_up()
    text.put(f"setp.nan.{suffix} any, sum, sum;", "@!any bra NONE;")
    text.put("setp.ne.u32 any, 0, 0;", "setp.ne.u32 inf, 0, 0;")
    values.test(values.compare, "any")
    for number in sorted(infinities):
        text.put(f"mov.{type_} number, {positive if number > 0 else negative};")
        values.test(values.equal, "inf")
    text.put(f"selp.u32 $0, {of_nan | of_inf}, 0, any;", f"@inf or.b32 $0, $0, {of_inf};")
    text.put("NONE:", "}")
    (found,) = text.emit(ctx, side_effects=False)
    return found


def _operand(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    """Return a value for PTX: half and bfloat, which have no register type there, as bits."""
    return ctx.to_bits(value) if value.type in ("half", "bfloat") else value


_FLOATS = ("f16", "bf16", "f32", "f64")
_VIEWS = names_of(SameElements, arith.ExtSI)


@dataclass(frozen=True, slots=True)
class _Neighbour:
    """The element before another one along an axis, and an i1 that says whether it is known."""

    value: LLVMValue
    is_known: LLVMValue


class Symptoms:
    """The symptoms of one kernel.

    Args:
        checks: the checks of the kernel.
        site: the site of the report.
        kinds: the symptoms to look for, some of `SYMPTOM_KINDS`.
        infinities: the infinities that are looked for.
    """

    def __init__(
        self,
        checks: KernelChecks,
        site: CheckSite,
        kinds: Sequence[str],
        infinities: Collection[float],
    ) -> None:
        self._ctx = checks.ctx
        self._carried = checks.carried
        self._place, self._shown = checks.place(site), checks.place(site, shown=True)
        self._kinds = kinds
        self._infinities = infinities
        self._word: LLVMValue | None = None
        self._noted: set[str] = set()

    def look_at(self, op: Operation) -> None:
        """Note the symptoms of `op`, which was lowered."""
        if arith.IntegerDivision.matches(op):
            self._division(op)
        elif arith.Shift.matches(op):
            self._shift(op)
        elif op in self._offset_sums:
            self._offset(op)
        elif tt.Hint.matches(op):
            self._hint(tt.Hint(op))
        elif tt.Gather.matches(op):
            self._index(tt.Gather(op))
        elif tt.Store.matches(op):
            self._stored(tt.Store(op).value, *_mask_and_group(self._ctx, op))
        elif tt.AtomicRmw.matches(op):
            self._stored(tt.AtomicRmw(op).value, *_mask_and_group(self._ctx, op))
        elif ttg.LocalAlloc.matches(op) and _is_copied_out(op):
            (value,) = op.operands
            self._stored(value, None, self._ctx.register_count(value))

    def finish(self) -> None:
        """Write the report of the noted symptoms at the kernel's end."""
        if self._word is None:
            return
        word = self._ctx.emit.load("i32", self._word, 4)
        text = InlinePTX(())
        (address, first), bits = self._place, text.use(word)
        table_address = text.use(address)
        text.put("{", ".reg .pred there;", ".reg .b64 p;", ".reg .b32 x, yz, t;")
        # A branch of LLVM's would take it as long as a tenth of a small kernel.
        text.put(f"setp.eq.u32 there, {bits}, 0;", "@there bra WITHOUT;")
        seen = f"[{text.use(self._shown[0])}+{self._shown[1] + table.COUNT}]"
        text.put(f"st.relaxed.sys.global.b64 {seen}, {SEEN_SOME};")
        # The least program has the greatest complement.
        text.put("mov.u32 t, %ctaid.z;", "mov.u32 yz, %ctaid.y;", "mad.lo.u32 yz, t, 65536, yz;")
        text.put("mov.u32 x, %ctaid.x;", "mov.b64 p, {x, yz};", "not.b64 p, p;")
        for kind in SYMPTOM_KINDS:
            if kind in self._noted:
                place = f"[{table_address}+{first + program_offset(kind)}]"
                text.put(
                    f"and.b32 t, {bits}, {1 << bit_of(kind)};",
                    "setp.ne.u32 there, t, 0;",
                    f"@there red.relaxed.gpu.global.max.u64 {place}, p;",
                )
        text.put("WITHOUT:", "}")
        text.emit(self._ctx)

    def _note(self, kind: str, found: Iterable[LLVMValue]) -> None:
        """Set the bit of a kind where any of these i1 holds."""
        emit, any_found = self._ctx.emit, integer("i1", 0)
        for condition in dict.fromkeys(found):
            any_found = emit.binary("or", any_found, condition)
        if any_found.constant != 0:
            bit = integer("i32", 1 << bit_of(kind))
            self._set(self._ctx.emit.select(any_found, bit, integer("i32", 0)), kind)

    def _set(self, bits: LLVMValue, *kinds: str) -> None:
        """Set the bits, i32, of some kinds of symptoms."""
        emit = self._ctx.emit
        if self._word is None:
            with emit.in_entry():
                self._word = emit.raw("ptr", "alloca i32, align 4")
                emit.store(integer("i32", 0), self._word, 4)
        emit.store(emit.binary("or", emit.load("i32", self._word, 4), bits), self._word, 4)
        self._noted.update(kinds)

    # Stored values

    def _stored(self, value: Value, mask: Registers | None, group: int) -> None:
        """Note NaNs and infinities among stored values; registers of a group share a mask."""
        element = element_of(value.type)
        if not isinstance(element, ScalarType) or element.name not in _FLOATS:
            return
        registers = self._ctx.values[value]
        firsts = range(0, len(registers), group)
        groups = [registers[first : first + group] for first in firsts]
        masks = None if mask is None else [mask[first] for first in firsts]
        of_nan = 1 << bit_of("nan") if "nan" in self._kinds else 0
        if "inf" in self._kinds:
            bits, infinities = (of_nan, 1 << bit_of("inf")), self._infinities
            found = any_not_finite(self._ctx, groups, masks, bits, infinities)
            self._set(found, *(kind for kind in ("nan", "inf") if kind in self._kinds))
        elif of_nan:
            self._set(any_nan(self._ctx, groups, masks, of_nan), "nan")

    # Integers

    def _division(self, op: Operation) -> None:
        if "division-by-zero" not in self._kinds or _is_combining(op):
            return
        _, right = op.operands
        divisors = dict.fromkeys(self._ctx.values[right])
        self._note(
            "division-by-zero",
            [self._ctx.emit.icmp("eq", self._opaque(d), 0) for d in divisors if not d.constant],
        )

    def _opaque(self, value: LLVMValue) -> LLVMValue:
        """Return a divisor hidden from LLVM, which assumes that no divisor is 0."""
        emit = self._ctx.emit
        wide = emit.cast("zext", value, "i64" if value.type == "i64" else "i32")
        letter, bits = ("l", 64) if wide.type == "i64" else ("r", 32)
        text, constraints = f"mov.b{bits} $0, $1;", f"={letter},{letter}"
        return emit.asm(text, constraints, wide.type, (wide,), side_effects=False)

    def _shift(self, op: Operation) -> None:
        if "shift-range" not in self._kinds or _is_combining(op):
            return
        _, right = op.operands
        amounts = dict.fromkeys(self._ctx.values[right])
        bits = self._ctx.element_bits(op.result)
        self._note(
            "shift-range",
            [
                self._ctx.emit.icmp("uge", amount, bits)
                for amount in amounts
                if bits > 1 and (amount.constant is None or not 0 <= amount.constant < bits)
            ],
        )

    @cached_property
    def _offset_sums(self) -> frozenset[Operation]:
        if "offset-overflow" not in self._kinds:
            return frozenset()
        return offset_arithmetic(self._ctx.module).sums

    def _offset(self, op: Operation) -> None:
        """Note wrapped sums that move pointers: scalars one by one, a tile by its bounds."""
        is_tile = isinstance(op.result.type, TensorType)
        if is_tile and all(user in self._offset_sums for user in op.result.uses):
            return  # seen with the sum that it is a part of
        self._note("offset-overflow", self._wrapped(op))

    def _wrapped(self, op: Operation) -> list[LLVMValue]:
        """Return i1s, of which one holds if elements of a sum or of its parts wrapped."""
        if isinstance(op.result.type, TensorType):
            found = may_wrap(self._ctx, self._carried, op.result)
            if found is not None:
                return [found]
        each = zip(*(self._ctx.values[value] for value in (*op.operands, op.result)), strict=True)
        wrapped = [wraps(self._ctx.emit, op.name, *one) for one in dict.fromkeys(each)]
        if isinstance(op.result.type, TensorType):
            for operand in op.operands:
                source = _computed(operand)
                if source in self._offset_sums and isinstance(source.result.type, TensorType):
                    wrapped += self._wrapped(source)
        return wrapped

    def _index(self, gather: tt.Gather) -> None:
        """Note a gather's indices beyond its axis; negative ones are large as unsigned numbers."""
        if INDEX not in self._kinds or _is_combining(gather.op):
            return
        extent = shape_of(gather.source.type)[gather.axis]
        indices = dict.fromkeys(self._ctx.values[gather.indices])
        self._note(INDEX, [self._ctx.emit.icmp("uge", index, extent) for index in indices])

    def _hint(self, hint: tt.Hint) -> None:
        """Test assumed multiples where runs begin, and assumed runs where neighbours are known."""
        kind, source = hint.kind, hint.source
        is_pointer = isinstance(element_of(source.type), PointerType)
        if HINT not in self._kinds or (is_pointer and isinstance(source.type, TensorType)):
            return
        registers = self._ctx.values[source]
        if is_pointer:
            # The base of a descriptor.
            registers = [self._ctx.to_bits(registers[0])]
        if not isinstance(source.type, TensorType):
            if kind in ("divisibility", tt.BLOCK_START):
                self._note(HINT, [self._is_no_multiple(registers[0], max(hint.values))])
            return
        for axis, number in enumerate(hint.values):
            if number > 1:
                self._note(HINT, self._broken(source, axis, kind, number))

    def _is_no_multiple(self, value: LLVMValue, number: int) -> LLVMValue:
        emit = self._ctx.emit
        if number & (number - 1) == 0:
            return emit.icmp("ne", emit.bit_and(value, number - 1), 0)
        return emit.icmp("ne", emit.binary("srem", value, integer(value.type, number)), 0)

    def _broken(self, source: Value, axis: int, kind: str, number: int) -> list[LLVMValue]:
        """Return i1s: whether an element is known to break a hint on itself or a neighbour."""
        ctx, emit = self._ctx, self._ctx.emit
        layout, registers = ctx.layout(source), ctx.values[source]
        found = []
        neighbours = self._neighbours(layout, registers, layout.out_dims[axis])
        places = ctx.coordinates(layout)
        for value, before, place in zip(registers, neighbours, places, strict=True):
            begins = emit.xor(self._is_no_multiple(place[axis], number), 1)
            if kind == "divisibility":
                good = emit.xor(begins, 1)
                if before is not None:
                    follows = emit.icmp("eq", value, emit.add(before.value, 1))
                    good = emit.select(before.is_known, follows, good)
                found.append(emit.bit_and(self._is_no_multiple(value, number), emit.xor(good, 1)))
            elif before is not None:
                wanted = before.value if kind == "constancy" else emit.add(before.value, 1)
                broken = emit.bit_and(emit.icmp("ne", value, wanted), emit.xor(begins, 1))
                if kind == "contiguity":
                    broken = emit.bit_and(broken, emit.icmp("ne", value, 0))
                found.append(emit.bit_and(broken, before.is_known))
        return found

    def _neighbours(
        self, layout: LinearLayout, registers: Registers, name: str
    ) -> list[_Neighbour | None]:
        """Return the element before each one if it is in this thread or the lane before."""
        steps = [layout.unpack_out(v) for v in f2.spanned(layout.packed_bases(REGISTER))]
        run = _elements_per_lane(layout, name)
        found: list[_Neighbour | None] = []
        for step in steps:
            before, last = {**step, name: step[name] - 1}, {**step, name: step[name] + run - 1}
            if before in steps:
                value, is_known = registers[steps.index(before)], integer("i1", 1)
                found.append(_Neighbour(value, is_known))
            elif run and last in steps:
                value = self._ctx.shuffle("up", registers[steps.index(last)], 1)
                found.append(_Neighbour(value, self._ctx.emit.icmp("ne", self._ctx.lane, 0)))
            else:
                found.append(None)
        return found


def _elements_per_lane(layout: LinearLayout, name: str) -> int:
    """Count the consecutive elements of a lane if the next lane continues them; else 0."""
    if layout.out_dims != (name,):
        return 0
    elements = 1
    for (step,) in layout.bases(REGISTER):
        if step != elements:
            break
        elements *= 2
    wanted = [elements << bit for bit in range(len(layout.bases(LANE)))]
    held = all(step in (0, want) for (step,), want in zip(layout.bases(LANE), wanted, strict=True))
    return elements if held else 0


def _is_combining(op: Operation) -> bool:
    """Whether an op is in a region that combines or maps elements, and not in the kernel."""
    return any(
        around.name not in CONTROL_FLOW and not tt.Func.matches(around) for around in op.ancestors()
    )


def _computed(value: Value) -> Operation | None:
    """Return the op that computed a value, seen through views, moves and sign extensions."""
    while (source := source_of(value, _VIEWS)) is not None:
        value = source
    return value.defining_op


def _is_copied_out(buffer: Operation) -> bool:
    """Whether a bulk copy stores the tile that a buffer is made with."""
    return bool(buffer.operands) and any(
        user.name == ttng.AsyncTmaCopyLocalToGlobal.name for user in buffer.result.uses
    )


def _mask_and_group(ctx: Lowering, op: Operation) -> tuple[Registers | None, int]:
    """The mask of a store, and the number of registers that share one of its elements."""
    pointer, mask = PointerAccess(op).pointer, mask_of(op)
    if mask is None:
        return None, ctx.register_count(pointer)
    if not isinstance(pointer.type, TensorType):
        return ctx.values[mask], 1
    info = ctx.axis_info
    group = vector_elems(op, ctx.layout(pointer), info[pointer], info[mask])
    return ctx.values[mask], group


def symptoms_of(function: Operation, checks: KernelChecks) -> Symptoms | None:
    """The symptoms that a checked kernel looks for; None for a kernel that looks for none."""
    site = next((site for site in check_sites(function) if site.kind == SYMPTOMS), None)
    if site is None:
        return None
    kinds = tt.Func(function).check_symptoms
    return Symptoms(checks, site, kinds, unwritten_infinities(function))
