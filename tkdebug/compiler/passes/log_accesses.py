"""`LogAccesses`: has a checked kernel log the accesses of its programs, to find races.

It comes before all GPU passes and adds watches (`ExpandWatches`), so pipelining, layouts and
barriers need no rules for it. Loads of parameters through which the kernel writes nothing are left
out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tkdebug.compiler.analysis.global_memory import Origin, may_meet, pointer_origin
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, stored
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.passes.expand_watches import waits_for_memory
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
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


class LogAccesses:
    """Puts a watch at each access that may be in a race."""

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
                sites.append(_site(len(sites), op, when, ir.shape_of(word.type)))
        sites.append(_site(len(sites), None, BEFORE, ()))
        tt.Func(module.function).watch_sites = tuple(map(site_text, sites))
        rewriter.record_change(module.function, self.name)
        rewriter.commit()


def cannot_be_logged(module: Module) -> bool:
    """Whether threads may leave a loop with accesses at different times, by plain loads."""
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
    """Yield the moments at which an access is logged; `looks`: programs read others' atomics."""
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


def _site(number: int, op: Operation | None, when: int, shape: tuple[int, ...]) -> WatchSite:
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
