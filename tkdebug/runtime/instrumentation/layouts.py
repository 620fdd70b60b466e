"""GPU ops, with layouts, that ops of the Tile IR become: the passes run on a copy.

Nothing that instruments the kernel is in the copy, so these are the layouts of the bare kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import encoding_of
from tkdebug.compiler.layouts import LinearLayout
from tkdebug.compiler.passes.pipeline import run_pipeline
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.registered_backends import backend_of, target_of

DEFAULT_TARGET = "sm_90a"


def gpu_ops(
    module: Module, target: str, num_warps: int, divisibility: tuple[int, ...] | None
) -> Mapping[int, Operation]:
    """Return the GPU op that each op of the Tile IR becomes, by its id, if it is one op.

    Args:
        module: Tile IR, which stays as it is.
        target: architecture.
        num_warps: the warps of a block.
        divisibility: known divisors of the kernel's parameters; None if nothing is known.
    """
    copy = copy_module(module)
    _remove_watches(copy)
    function = tt.Func(copy.function)
    function.num_warps, function.target = num_warps, target
    if divisibility is not None:
        function.arg_divisibility = divisibility
    known = target_of(target)
    if known.threads_per_warp != function.threads_per_warp:
        function.threads_per_warp = known.threads_per_warp
    accesses: dict[int, int] = {}
    for op in copy.walk():
        # Passes carry the number along, as that of a check's site.
        OpView(op).site = len(accesses) if PointerAccess.matches(op) else None
        if PointerAccess.matches(op):
            accesses[len(accesses)] = op.id
    function.check_sites = ()
    options = NativeOptions(num_warps=num_warps)
    run_pipeline(copy, backend_of(known).pipeline(known, options))
    found: dict[int, Operation] = {}
    for op in copy.walk():
        number = OpView(op).site
        # The first of the copies that pipelining makes.
        found.setdefault(op.id if number is None else accesses[number], op)
    return found


def layout_of(op: Operation) -> LinearLayout | None:
    """The layout of an op's first tile."""
    for value in (*op.operands, *op.results):
        layout = encoding_of(value.type)
        if isinstance(layout, LinearLayout):
            return layout
    return None


def _remove_watches(module: Module) -> None:
    for op in list(module.walk()):
        if tt.Watch.matches(op):
            op.operands = ()
            assert op.block is not None
            op.block.operations.remove(op)
    tt.Func(module.function).watch_sites = ()
