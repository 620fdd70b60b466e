"""What checked kernels test of floats that they store: NaNs, and what is not finite.

One comparison tests two elements. A thread that stores a bad one reports it, with its address; all
others only branch on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.analysis.vectorization import mask_of, vector_elems
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probe_reports import report_elements
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

# The bits of the exponent, which are all set in what is not finite.
_EXPONENTS = {"half": 0x7C00, "bfloat": 0x7F80, "float": 0x7F800000, "double": 0x7FF << 52}


def look_at_stored(
    ctx: Lowering, op: Operation, pointers: Registers, values: Registers, mask: Registers | None
) -> None:
    """Report the bad elements of a store that is a site."""
    site = None if ctx.probes is None else ctx.probes.value_site_of(op)
    if site is None:
        return
    emit = ctx.emit
    group = _group(ctx, op)
    found = integer("i1", 0)
    for first in range(0, len(values), group):
        here = _any_bad(ctx, site.kind, values[first : first + group])
        if mask is not None:
            here = emit.bit_and(here, mask[first])
        found = emit.binary("or", found, here)
    far, after = emit.new_block("probe.value"), emit.new_block("probe.stored")
    emit.branch_rarely(found, far, after)
    emit.start(far)
    bad = [_any_bad(ctx, site.kind, [value]) for value in values]
    if mask is not None:
        bad = list(map(emit.bit_and, bad, mask))
    report_elements(ctx, op, tt.Store(op).pointer, bad, site=site, at=pointers)
    emit.branch(after)
    emit.start(after)


def _any_bad(ctx: Lowering, kind: str, registers: Sequence[LLVMValue]) -> LLVMValue:
    """i1: whether one of them is NaN, or of kind "inf" not finite."""
    emit, found = ctx.emit, integer("i1", 0)
    if kind == "nan":
        for first in range(0, len(registers), 2):
            one, other = registers[first], registers[min(first + 1, len(registers) - 1)]
            found = emit.binary("or", found, emit.fcmp("uno", one, other))
        return found
    for register in registers:
        bits = ctx.to_bits(register)
        exponent = integer(bits.type, _EXPONENTS[register.type])
        is_bad = emit.icmp("eq", emit.binary("and", bits, exponent), exponent)
        found = emit.binary("or", found, is_bad)
    return found


def _group(ctx: Lowering, op: Operation) -> int:
    """Registers that share a mask."""
    pointer, mask = tt.Store(op).pointer, mask_of(op)
    if mask is None:
        return ctx.register_count(pointer)
    if not isinstance(pointer.type, TensorType):
        return 1
    info = ctx.axis_info
    return vector_elems(op, ctx.layout(pointer), info[pointer], info[mask])
