"""Lowers a whole kernel: parameters, body, module text."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.compiler.analysis.tensor_maps import MAP_BYTES, kernel_made, made_maps
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import DescriptorType, Module, Value
from tkdebug.compiler.ir.types import PointerType
from tkdebug.compiler.targets import Target
from tkdebug.compiler.targets.nvptx.emitter import Emitter
from tkdebug.compiler.targets.nvptx.lowering import (
    arithmetic,
    control,
    conversions,
    debug,
    elementwise,
    math,
    shapes,
    sorting,
)
from tkdebug.compiler.targets.nvptx.lowering.context import WARP_SIZE, Lowering
from tkdebug.compiler.targets.nvptx.lowering.dots import dot, wgmma
from tkdebug.compiler.targets.nvptx.lowering.memory import atomics, loads_and_stores, tensor_maps
from tkdebug.compiler.targets.nvptx.lowering.memory.tensor_maps import map_places
from tkdebug.compiler.targets.nvptx.lowering.observers import LoweringObserver
from tkdebug.compiler.targets.nvptx.lowering.reductions import reduce, scan
from tkdebug.compiler.targets.nvptx.lowering.shared_memory import async_copies, buffers, bulk_copies
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers, llvm_type

# A CUtensorMap, by value in the kernel's parameters, where bulk copies read it (PTX ISA, "Opaque
# Types": a tensor map is in constant, parameter or global memory).
TENSOR_MAP = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'

# Memory of all programs, one after the other.
WORKSPACE = f"ptr addrspace(1) align {MAP_BYTES}"

# Hidden parameters: the address of a table, and the bounds of a tensor that accesses are tested by.
# A checked kernel gets two tables: its own, and its copy for the host.
TABLE = "ptr addrspace(1) align 64"
BOUNDS = ("i64", "i64", "i32")


def lower_module(module: Module, target: Target, symbol: str) -> str:
    """LLVM IR of the kernel in `module`.

    Args:
        module: GPU IR after all passes.
        target: the architecture.
        symbol: name of the kernel in the cubin.

    Raises:
        LoweringError: an op is not supported in native mode.
    """
    function = tt.Func(module.function)
    block = function.body
    num_warps = function.num_warps
    parameters = list(_parameters(block.arguments, function.arg_divisibility or ()))
    made = [op for op, _ in made_maps(function.op)]
    parameters += [TENSOR_MAP] * len(made)
    made_here = kernel_made(function.op)
    if made_here:
        parameters.append(WORKSPACE)
    own = len(parameters)
    parameters += _observers_parameters(function)
    fuses = function.fp_fusion
    emit = Emitter(symbol, parameters, num_warps * WARP_SIZE, contracts=fuses)
    ctx = Lowering(module, target, emit, LOWERINGS)
    emit.set_op(function.op.id)
    for index, argument in enumerate(block.arguments):
        ctx.values[argument] = [emit.parameter(index)]
    ctx.tensor_maps = {
        op: emit.parameter(len(block.arguments) + index) for index, op in enumerate(made)
    }
    if made_here:
        ctx.map_places = map_places(ctx, made_here, emit.parameter(own - 1))
    ctx.observers = _observers(ctx, [emit.parameter(at) for at in range(own, len(parameters))])
    terminator = ctx.lower_block(block)
    for observer in ctx.observers:
        observer.body_ends()
    emit.set_op(terminator.id)
    for observer in ctx.observers:
        observer.ends()
    emit.ret()
    return emit.module(file="tkdebug")


def _observers_parameters(function: tt.Func) -> list[str]:
    """List the hidden parameters of a kernel's observers."""
    if function.timeline:
        return [TABLE]
    if function.check_sites:
        return [TABLE, TABLE, *BOUNDS * len(function.check_bounds)]
    return []


def _observers(ctx: Lowering, hidden: Registers) -> list[LoweringObserver]:
    """Make a kernel's observers, with their hidden parameters; none for a bare one."""
    if not hidden:
        return []
    # Few kernels need one of these.
    if tt.Func(ctx.module.function).timeline:
        from tkdebug.compiler.targets.nvptx.lowering.timeline import Timeline

        return [Timeline(ctx, hidden[0])]
    from tkdebug.compiler.targets.nvptx.lowering.checks.observer import CheckObserver

    return [CheckObserver(ctx, hidden)]


def _parameters(arguments: list[Value], known: tuple[int, ...]) -> Iterator[str]:
    for index, argument in enumerate(arguments):
        if isinstance(argument.type, DescriptorType):
            yield TENSOR_MAP
            continue
        type_ = llvm_type(argument.type)
        if isinstance(argument.type, PointerType):
            align = known[index] if index < len(known) else 1
            type_ += f" align {align}" if isinstance(align, int) and align > 1 else ""
        yield type_


# The lowering of every op, one table for each family.
_FAMILIES = (
    control,
    shapes,
    conversions,
    arithmetic,
    reduce,
    scan,
    loads_and_stores,
    wgmma,
    math,
    elementwise,
    atomics,
    debug,
    buffers,
    async_copies,
    bulk_copies,
    tensor_maps,
    dot,
    sorting,
)
LOWERINGS: dict[str, Lower] = {
    name: rule for family in _FAMILIES for name, rule in family.LOWERINGS.items()
}
