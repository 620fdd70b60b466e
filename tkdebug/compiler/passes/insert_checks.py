"""The passes that a checked kernel has before all GPU passes.

`InsertChecks`: numbers the accesses and other ops that a checked kernel tests as it runs. Because
it comes first, one source access is one site: GPU passes copy, peel and mask accesses, and each
copy keeps its number. The place where a descriptor's block begins passes through a hint that no
pass uses. Nothing else of the kernel changes, and the tests themselves are written by lowering, so
that no pass has to look through them.

`LogAccesses`: has a checked kernel log the accesses of its programs, to find races. It adds watches
(`ExpandWatches`), so pipelining, layouts and barriers need no rules for it. Loads of parameters
through which the kernel writes nothing are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.checks import RACE
from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.global_memory import Origin, may_meet, pointer_origin
from tkdebug.compiler.analysis.launch_slice import decided_values, is_decided
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import (
    MaskedAccess,
    MemoryAccess,
    PointerAccess,
    Writing,
    stored,
)
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value, written_infs
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of
from tkdebug.compiler.passes.pass_run import PassRun, RunCallback
from tkdebug.compiler.passes.pipeline import SnapshotCallback, run_pipeline
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.sites.checks import (
    BOUNDS_KINDS,
    UNWRITTEN,
    CheckOptions,
    CheckPlan,
    CheckSite,
    check_bounds,
    check_sites,
)
from tkdebug.compiler.sites.live_memory import MARKS
from tkdebug.compiler.sites.table import HINT, SYMPTOM_KINDS, SYMPTOMS
from tkdebug.compiler.sites.texts import site_text
from tkdebug.compiler.sites.watches import (
    ADDRESS_BITS,
    AFTER,
    BEFORE,
    HASH_BITS,
    LOGGED,
    WatchSite,
    watch_sites,
)

_FLOATS = ("f16", "bf16", "f32", "f64")
_PARTIAL = names_of(arith.Shift, arith.IntegerDivision)


class LogAccesses:
    """Adds watches to each access that may be in a race."""

    name: ClassVar[str] = "log-accesses"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Log the accesses of a kernel whose programs may write memory that others access."""
        wanted = _wanted(module)
        if not wanted or cannot_be_logged(module):
            return
        sites = list(watch_sites(module.function))
        looks = any(tt.Atomic.matches(op) and bool(tt.Atomic(op).result.uses) for op in wanted)
        for op in wanted:
            for when in _moments(op, looks):
                anchor = op if when == BEFORE else _next(op)
                build = OpBuilder(rewriter, anchor, self.name, op.location)
                word = _word(build, op, when)
                build.effect(tt.Watch, (word,), watch=len(sites))
                sites.append(_logged_site(len(sites), op, when, ir.shape_of(word.type)))
        sites.append(_logged_site(len(sites), None, BEFORE, ()))
        tt.Func(module.function).watch_sites = tuple(map(site_text, sites))
        rewriter.record_change(module.function, self.name)
        rewriter.commit()


def cannot_be_logged(module: Module) -> bool:
    """Whether threads may leave a loop with accesses at different times, by plain loads."""
    from tkdebug.compiler.passes.expand_watches import waits_for_memory

    return any(waits_for_memory(op) for op in _wanted(module))


def _wanted(module: Module) -> list[Operation]:
    accesses = [op for op in module.walk() if PointerAccess.matches(op)]
    written = {_origin(op) for op in accesses if not tt.Load.matches(op)}
    return [op for op in accesses if any(may_meet(_origin(op), one) for one in written)]


def _origin(op: Operation) -> Value | Origin:
    origin = pointer_origin(PointerAccess(op).pointer)
    # A loaded pointer may be a parameter's address.
    return Origin.UNKNOWN if isinstance(origin, Origin) else origin


def _moments(op: Operation, looks: bool) -> Iterator[int]:
    """Yield when an access is logged; `looks`: whether any result of an atomic is used."""
    if tt.Store.matches(op) or (tt.Atomic.matches(op) and looks):
        yield BEFORE
    if not tt.Store.matches(op):
        yield AFTER


def _next(op: Operation) -> Operation:
    block = op.block
    assert block is not None
    return block.operations[block.operations.index(op) + 1]


def _word(build: OpBuilder, op: Operation, when: int) -> Value:
    pointer, masked = PointerAccess(op).pointer, MaskedAccess.cast(op)
    wide = ir.with_element(pointer.type, ir.I64)
    address = build.op(tt.PtrToInt, (pointer,), wide)
    word = build.binary(arith.AndI, address, (1 << ADDRESS_BITS) - 1)
    value = stored(op) if tt.Store.matches(op) else None
    if tt.Load.matches(op) and when == AFTER:
        value = op.result
    if value is not None:
        bits = build.binary(arith.ShLI, _hash(build, value), ADDRESS_BITS)
        word = build.binary(arith.OrI, word, bits)
    if masked is not None and masked.mask is not None:
        word = build.op(arith.Select, (masked.mask, word, build.constant(wide, 0)), wide)
    return word


def _hash(build: OpBuilder, value: Value) -> Value:
    """A few bits of each element, equal for equal elements; int64."""
    element, wide = ir.element_of(value.type), ir.with_element(value.type, ir.I64)
    if isinstance(element, ir.PointerType):
        value = build.op(tt.PtrToInt, (value,), wide)
    elif not element.is_integer:
        whole = ir.with_element(value.type, ir.ScalarType(f"i{element.bits}"))
        value = build.op(tt.Bitcast, (value,), whole)
    bits = ir.element_of(value.type).bits
    if bits < ir.I64.bits:
        value = build.op(arith.ExtUI, (value,), wide)
    while bits > HASH_BITS:
        bits //= 2
        value = build.binary(arith.XOrI, value, build.binary(arith.ShRUI, value, bits))
    return build.binary(arith.AndI, value, (1 << HASH_BITS) - 1)


def _logged_site(number: int, op: Operation | None, when: int, shape: tuple[int, ...]) -> WatchSite:
    return WatchSite(
        number=number,
        watch=f"{LOGGED}: {'clock' if op is None else op.id}",
        name="",
        frames=() if op is None else op.location.frames,
        type="",
        dtype="int64",
        element="i64",
        is_unsigned=False,
        shape=shape,
        programs=(),
        condition="",
        is_whole=True,
        plugin=LOGGED,
        op_id=0 if op is None else op.id,
        operand=when,
    )


@dataclass(frozen=True, slots=True)
class InsertChecks:
    """Numbers the sites of a kernel, and lists them in it.

    Args:
        options: the faults that are looked for.
    """

    options: CheckOptions
    name: ClassVar[str] = "insert-checks"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Number the sites."""
        sites = tuple(self._sites(module, rewriter))
        function = tt.Func(module.function)
        named = {site.bound: None for site in sites if site.bound is not None}
        function.check_sites = tuple(map(site_text, sites))
        function.check_bounds = tuple(named)
        aligned = (name for name in named if name in self.options.aligned_ends)
        function.check_aligned_ends = tuple(aligned)
        if sites:
            rewriter.record_change(module.function, "list-sites")
        rewriter.commit()

    def _sites(self, module: Module, rewriter: Rewriter) -> Iterator[CheckSite]:
        number, function, kinds = 0, module.function, self.options.kinds
        decided = decided_values(module)
        for op in module.walk():
            kind = _site_kind(op)
            if kind in kinds:
                assert kind is not None
                yield _site(function, op, number, kind, decided)
                OpView(op).site = number
                number += 1
                rewriter.record_change(op, "number-site")
            if UNWRITTEN in kinds and _loads_marked(op):
                yield _site(function, op, number, UNWRITTEN, frozenset())
                OpView(op).value_site = number
                number += 1
                rewriter.record_change(op, "number-value-site")
        symptoms = tuple(kind for kind in SYMPTOM_KINDS if kind in kinds)
        if HINT in symptoms:
            _mark_starts(module, rewriter)
        if any(_may_show(op) for op in module.walk()) and symptoms:
            tt.Func(function).check_symptoms = symptoms
            if "inf" in symptoms:
                tt.Func(function).check_written_infs = tuple(map(str, sorted(written_infs(module))))
            yield CheckSite(number, SYMPTOMS, function.id, None, (), 0, False)


def _mark_starts(module: Module, rewriter: Rewriter) -> None:
    """Mark the starts of blocks of one axis by hints, unless they are aligned constants."""
    for op in module.walk():
        access = tt.DescriptorBlockAccess.cast(op)
        if access is None or len(access.offsets) != 1:
            continue
        (start,) = access.offsets
        element = element_of(op.results[0].type if op.results else stored(op).type)
        unit, number = tt.DESCRIPTOR_ALIGNMENT_BYTES * 8 // element.bits, constant_value(start)
        if unit <= 1 or (isinstance(number, int) and number % unit == 0):
            continue
        hint = rewriter.build_before(
            op,
            tt.Hint,
            (start,),
            (start.type,),
            {"kind": tt.BLOCK_START, "values": (unit,)},
            location=op.location,
        )
        rewriter.record_new(hint, "mark-start")
        op.replace_operand(start, hint.result)
        rewriter.record_change(op, "mark-start")


def _site_kind(op: Operation) -> str | None:
    """The kind of fault that `op` is tested for, or None if it is not tested."""
    access = MemoryAccess.cast(op)
    if access is not None:
        return f"oob-{access.access}"
    return "assert" if tt.Assert.matches(op) else "assumption" if tt.Assume.matches(op) else None


def stores_floats(op: Operation) -> bool:
    """Whether an op stores floats whose NaNs can be seen."""
    if not Writing.matches(op):
        return False
    element = element_of(stored(op).type)
    return isinstance(element, ScalarType) and element.name in _FLOATS


def _loads_marked(op: Operation) -> bool:
    """Whether an op loads elements of a type that `MARKS` has a mark for."""
    access = MemoryAccess.cast(op)
    if access is None or access.access != "load":
        return False
    element = element_of(op.result.type)
    return isinstance(element, ScalarType) and element.name in MARKS


def _may_show(op: Operation) -> bool:
    """Whether a fault may show at an op: an undefined result, a wrong offset or hint, a NaN."""
    shown = (tt.Hint, tt.AddPtr, tt.Gather, tt.MakeTensorDescriptor)
    if any(view.matches(op) for view in shown) or stores_floats(op):
        return True
    if op.name not in _PARTIAL:
        return False
    _, right = op.operands
    number = constant_value(right)
    bits = element_of(op.results[0].type).bits
    return not isinstance(number, int) or not 0 < number < (
        bits if arith.Shift.matches(op) else 1 << 64
    )


def add_checks(
    module: Module,
    options: CheckOptions,
    snapshot: SnapshotCallback | None = None,
    on_run: RunCallback | None = None,
) -> tuple[tuple[PassRun, ...], CheckPlan | None]:
    """Run the passes that make a kernel a checked one; return their runs and the check plan.

    Args:
        module: Tile IR, changed in place.
        options: the faults that are looked for.
        snapshot: called after each pass that changed something.
        on_run: called after each pass, also one that failed.
    """
    runs = run_pipeline(module, (InsertChecks(options),), snapshot=snapshot, on_run=on_run)
    # Reports are read with the kernel as it is before accesses are logged: a closer look at a
    # fault cannot run the logging again.
    read_by = copy_module(module)
    if RACE in options.kinds:
        logged = run_pipeline(module, (LogAccesses(),), snapshot=snapshot, on_run=on_run)
        runs = (*runs, *logged)
    plan = _plan(module, options.watch_bytes, read_by)
    if plan is not None and plan.watches:
        # Imported here as most kernels have no watches.
        from tkdebug.compiler.passes.expand_watches import ExpandWatches

        expand = (ExpandWatches(plan.watch_bytes),)
        runs = (*runs, *run_pipeline(module, expand, snapshot=snapshot, on_run=on_run))
    return runs, plan


def check_plan(module: Module, watch_bytes: int = 0) -> CheckPlan | None:
    """The plan for reading the reports of a kernel, or None if it has no sites and no watches.

    The plan has a copy of the module as it is now.

    Args:
        module: Tile IR whose sites are numbered.
        watch_bytes: memory for the records of watched values in one launch.
    """
    return _plan(module, watch_bytes, copy_module(module))


def _plan(module: Module, watch_bytes: int, read_by: Module) -> CheckPlan | None:
    sites, watches = check_sites(module.function), watch_sites(module.function)
    if not sites and not watches:
        return None
    return CheckPlan(sites, check_bounds(module.function), read_by, watches, watch_bytes)


def _site(
    function: Operation, op: Operation, number: int, kind: str, decided: frozenset[Value]
) -> CheckSite:
    """The check site of `op`."""
    if PointerAccess.matches(op):
        pointer, masked = PointerAccess(op).pointer, MaskedAccess.cast(op)
        mask = None if masked is None else masked.mask
        shape, size = shape_of(pointer.type), unit_of(pointer.type)
        tensor = _tensor(function, pointer)
        needed = (pointer,) if mask is None else (pointer, mask)
        is_recomputed = tensor is not None and is_decided(op, needed, decided)
        return CheckSite(
            number,
            kind,
            op.id,
            tensor,
            shape,
            size,
            mask is not None,
            is_recomputed,
            is_loaded=tensor is None and kind in BOUNDS_KINDS,
        )
    if tt.DescriptorAccess.matches(op):
        descriptor = tt.DescriptorAccess(op).descriptor
        tile = op.result.type if op.results else stored(op).type
        size = element_of(tile).bits // 8
        name = _described(function, descriptor)
        is_loaded = name is None and kind in BOUNDS_KINDS
        return CheckSite(number, kind, op.id, name, shape_of(tile), size, True, is_loaded=is_loaded)
    condition = tt.Assume(op).condition if tt.Assume.matches(op) else tt.Assert(op).condition
    return CheckSite(number, kind, op.id, None, shape_of(condition.type), 0, False)


def _described(function: Operation, descriptor: Value) -> str | None:
    """Return the name of the parameter that is the descriptor or gives its base, or None."""
    made = tt.MakeTensorDescriptor.defining(descriptor)
    if made is not None:
        return _tensor(function, made.base)
    arguments = tt.Func(function).body.arguments
    if descriptor not in arguments:
        return None
    return tt.Func(function).arg_names[arguments.index(descriptor)]


def _tensor(function: Operation, pointer: Value) -> str | None:
    """The name of the parameter that a pointer is an offset from, or None if it is unknown."""
    origin = pointer_origin(pointer)
    if isinstance(origin, Origin):
        return None
    view = tt.Func(function)
    return view.arg_names[view.body.arguments.index(origin)]
