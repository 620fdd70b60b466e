"""What lowerings ask of probes: nothing in a bare kernel, whose compile does not import them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Good, Registers

if TYPE_CHECKING:
    from tkdebug.compiler.targets.nvptx.lowering.probes.access import TestedAccess
    from tkdebug.compiler.targets.nvptx.lowering.probes.loops import CarriedReaches

# Parameters of checked kernels: the table's address, that of what the host sees of it, and what is
# passed of a tensor.
TABLE_PARAMETER = "ptr addrspace(1) align 64"
TABLE_PARAMETERS = (TABLE_PARAMETER, TABLE_PARAMETER)
BOUND_PARAMETERS = ("i64", "i64", "i32")


def begin(ctx: Lowering, function: Operation, hidden: Registers) -> None:
    """Give a checked kernel its probes, which its hidden parameters are for."""
    from tkdebug.compiler.targets.nvptx.lowering.probes.kernel_probes import Probes
    from tkdebug.compiler.targets.nvptx.lowering.probes.symptoms import symptoms_of

    ctx.probes = Probes(function, ctx, hidden)
    ctx.symptoms = symptoms_of(function, ctx)


def lower_body(ctx: Lowering, block: Block) -> Operation:
    """Lower all ops of a kernel's block but its terminator, which is returned."""
    if ctx.probes is None:
        return ctx.lower_block(block)
    from tkdebug.compiler.targets.nvptx.lowering.probes.early_tests import lower_tested_block

    return lower_tested_block(ctx, ctx.probes, block)


def tested_access(
    ctx: Lowering, op: Operation, pointers: Registers, mask: Registers | None, group: int
) -> TestedAccess | None:
    """How access `op` is tested; None where it is not."""
    if ctx.probes is None:
        return None
    from tkdebug.compiler.targets.nvptx.lowering.probes import access

    return access.tested_access(ctx, op, pointers, mask, group)


def either_way(
    ctx: Lowering,
    access: TestedAccess,
    usual: Callable[[], Registers],
    astray: Callable[[Good], Registers],
) -> Registers:
    """What `usual` gives, or where elements of a tested access may be bad, what `astray` does."""
    from tkdebug.compiler.targets.nvptx.lowering.probes import access as accesses

    return accesses.either_way(ctx, access, usual, astray)


def masked_on(ctx: Lowering, good: Good, group: int) -> Registers:
    """i1 of each register: whether its element is masked on and good."""
    return [ctx.emit.icmp("ugt", count, place) for count in good for place in range(group)]


def report_elements(ctx: Lowering, op: Operation, value: Value, bad: Registers) -> bool:
    """Report the elements of a tile, or the scalar, that are bad; whether `op` is a site."""
    if ctx.probes is None:
        return False
    from tkdebug.compiler.targets.nvptx.lowering.probes import reports

    return reports.report_elements(ctx, op, value, bad)


def look_at_loaded(ctx: Lowering, op: Operation, pointers: Registers, values: Registers) -> None:
    """Report what a load that is a site gives, where nothing has written it."""
    if ctx.probes is not None:
        from tkdebug.compiler.targets.nvptx.lowering.probes import loaded_values

        loaded_values.look_at_loaded(ctx, op, pointers, values)


def carried_reaches(ctx: Lowering, loop: Operation) -> CarriedReaches | None:
    """The offsets that a checked loop carries."""
    if ctx.probes is None:
        return None
    from tkdebug.compiler.targets.nvptx.lowering.probes.loops import CarriedReaches

    return CarriedReaches(ctx, loop)
