"""The rule of every op: the function that runs it on tile values, in a table per family of ops.

Integers go through the index algebra, which keeps affine tiles affine. Float ops that one function
of torch computes name it on their class (`FloatOp.torch`), and have no line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, gpu, math, nvvm, scf, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import FloatOp
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter import asynchronous, blending, control_flow
from tkdebug.interpreter.evaluator import Evaluator, Rule
from tkdebug.interpreter.memory import (
    atomics,
    descriptors,
    loads_and_stores,
    pointers,
    shared_buffers,
)
from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.numerics.libdevice import MEANINGS
from tkdebug.interpreter.tile_ops import (
    dots,
    elementwise,
    reductions,
    shapes,
)
from tkdebug.interpreter.tiles.index import IndexAlgebra
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.interpreter.watching.prints import device_print

Rules = dict[type[OpView], Rule]


def one(rule: Callable[..., TileValue]) -> Rule:
    """Return the rule of an op with one result, from a function that computes its value."""

    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return (rule(run, view, *operands),)

    return apply


def nothing(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
    """The rule of an op that only matters on a GPU, and has no results."""
    return ()


def unchanged(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
    """The rule of an op that returns its operands: a terminator, a hint, a layout conversion."""
    return operands


_COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "oeq": torch.eq,
    "olt": torch.lt,
    "ole": torch.le,
    "ogt": torch.gt,
    "oge": torch.ge,
    "une": torch.ne,
    "one": lambda x, y: torch.lt(x, y) | torch.gt(x, y),
    "ord": lambda x, y: torch.eq(x, x) & torch.eq(y, y),
    "uno": lambda x, y: torch.ne(x, x) | torch.ne(y, y),
}


def _integer(
    method: Callable[[IndexAlgebra, Operation, TileValue, TileValue], TileValue],
) -> Rule:
    def apply(run: Evaluator, view: OpView, a: TileValue, b: TileValue) -> Sequence[TileValue]:
        return (method(run.index, view.op, a, b),)

    return apply


def _by(function: Callable[..., Tensor]) -> Rule:
    """Return the rule of a float op that `function` computes; it takes torch's `out=`."""

    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return (run.map_floats(view.op, function, *operands),)

    return apply


def _with_out(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `function` with torch's `out=`, to which its result is copied if given."""

    def apply(*operands: Tensor, out: Tensor | None = None) -> Tensor:
        result = function(*operands)
        return result if out is None else out.copy_(result)

    return apply


def constant(run: Evaluator, view: arith.Constant) -> TileValue:
    """arith.constant."""
    return run.constant(view.result.type, view.value)


def compare_floats(run: Evaluator, view: arith.CmpF, a: TileValue, b: TileValue) -> TileValue:
    """arith.cmpf."""
    return run.map_floats(view.op, _COMPARISONS[view.predicate], a, b)


@_with_out
def _remainder(x: Tensor, y: Tensor) -> Tensor:
    rest: Tensor = rounding.fmod(torch, x, y)
    return rest


@_with_out
def _fused(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    product: Tensor = rounding.fma(torch, "rn", x, y, z)
    return product


@_with_out
def _without_sign(value: Tensor) -> Tensor:
    return (value.view(torch.uint8) & 0x7F).view(value.dtype)


@_with_out
def _precise_root(value: Tensor) -> Tensor:
    # torch's own may be off by the last bit (MKL).
    root: Tensor = rounding.sqrt(torch, "rn", value)
    return root


def absolute_float(run: Evaluator, view: math.AbsF, x: TileValue) -> TileValue:
    """math.absf; torch has none for fp8."""
    is_byte = ir.element_of(view.source.type).bits == 8
    return run.map(view.op, _without_sign if is_byte else torch.abs, x)


def absolute_integer(run: Evaluator, view: math.AbsI, x: TileValue) -> TileValue:
    """math.absi."""
    return run.map(view.op, torch.abs, x)


def sqrt(run: Evaluator, view: math.Sqrt, x: TileValue) -> TileValue:
    """math.sqrt: the GPU approximates it for fp32, and rounds to nearest for fp64."""
    is_double = ir.element_of(view.source.type) == ir.F64
    return run.map(view.op, _precise_root if is_double else torch.sqrt, x)


def libdevice(run: Evaluator, view: tt.ExternElementwise, *operands: TileValue) -> TileValue:
    """tt.extern_elementwise."""
    meaning = MEANINGS.get(view.function)
    if meaning is None:
        where = view.op.location.primary
        raise UnsupportedError(
            f"{where.file}:{where.line}: libdevice.{view.function} is not available under "
            "interpret; it needs a GPU (its numbers have no closed form here)"
        )
    dtype = run.dtype_of(view.result.type)
    unsigned = view.unsigned

    def compute(*tensors: Tensor) -> Tensor:
        result: Tensor = meaning(torch, unsigned, *tensors).to(dtype)
        return result

    return run.map(view.op, compute, *operands)


_ARITHMETIC: Rules = {
    **{
        view: _by(getattr(torch, view.torch))
        for view in OPS.values()
        if issubclass(view, FloatOp) and view.torch
    },
    arith.Constant: one(constant),
    arith.AddI: _integer(IndexAlgebra.add),
    arith.SubI: _integer(IndexAlgebra.sub),
    arith.MulI: _integer(IndexAlgebra.mul),
    arith.DivSI: _integer(IndexAlgebra.divsi),
    arith.DivUI: _integer(IndexAlgebra.divui),
    arith.RemSI: _integer(IndexAlgebra.remsi),
    arith.RemUI: _integer(IndexAlgebra.remui),
    arith.AndI: _integer(IndexAlgebra.and_),
    arith.OrI: _integer(IndexAlgebra.or_),
    arith.XOrI: _integer(IndexAlgebra.xor),
    arith.ShLI: _integer(IndexAlgebra.shli),
    arith.ShRSI: _integer(IndexAlgebra.shrsi),
    arith.ShRUI: _integer(IndexAlgebra.shrui),
    arith.MinSI: _integer(IndexAlgebra.minsi),
    arith.MaxSI: _integer(IndexAlgebra.maxsi),
    arith.MinUI: _integer(IndexAlgebra.minui),
    arith.MaxUI: _integer(IndexAlgebra.maxui),
    arith.MulHiUI: _integer(IndexAlgebra.mulhiui),
    arith.CmpI: _integer(IndexAlgebra.compare),
    arith.CmpF: one(compare_floats),
    arith.Select: one(blending.select),
    arith.RemF: _by(_remainder),
    math.Sqrt: one(sqrt),
    math.AbsF: one(absolute_float),
    math.AbsI: one(absolute_integer),
    math.Fma: _by(_fused),
    tt.PreciseSqrt: _by(_precise_root),
    tt.ExternElementwise: one(libdevice),
    arith.ExtSI: one(elementwise.extend_signed),
    arith.ExtUI: one(elementwise.extend_unsigned),
    arith.TruncI: one(elementwise.truncate),
    arith.SIToFP: one(elementwise.integer_to_float),
    arith.UIToFP: one(elementwise.unsigned_to_float),
    arith.FPToSI: one(elementwise.float_to_integer),
    arith.FPToUI: one(elementwise.float_to_integer),
    arith.ExtF: one(elementwise.convert_float),
    arith.TruncF: one(elementwise.convert_float),
    tt.FpToFp: one(elementwise.fp_to_fp),
    tt.Bitcast: one(elementwise.bitcast),
    tt.PtrToInt: one(elementwise.pointer_to_integer),
    tt.IntToPtr: one(elementwise.integer_to_pointer),
}


# Control flow, and ops that run a region of their own.
_CONTROL: Rules = {
    tt.Return: nothing,
    scf.If: control_flow.run_if,
    scf.For: control_flow.run_for,
    scf.While: control_flow.run_while,
    scf.Yield: unchanged,
    scf.Condition: unchanged,
    tt.Reduce: reductions.reduce,
    tt.Scan: reductions.scan,
    tt.ReduceReturn: unchanged,
    tt.MapElementwise: elementwise.map_elementwise,
    tt.MapElementwiseReturn: unchanged,
}


# Matrix products.
_DOTS: Rules = {
    tt.Dot: one(dots.dot),
    tt.DotScaled: one(dots.dot_scaled),
}


# Global memory: pointers, descriptors, atomics.
_MEMORY: Rules = {
    tt.AddPtr: one(pointers.add_pointer),
    tt.Load: one(loads_and_stores.load),
    tt.Store: loads_and_stores.store,
    tt.MakeTensorDescriptor: one(descriptors.make_descriptor),
    tt.DescriptorLoad: one(descriptors.descriptor_load),
    tt.DescriptorStore: descriptors.descriptor_store,
    tt.DescriptorGather: one(descriptors.descriptor_gather),
    tt.DescriptorScatter: descriptors.descriptor_scatter,
    tt.DescriptorReduce: descriptors.descriptor_reduce,
    tt.AtomicLoad: one(atomics.atomic_load),
    tt.AtomicRmw: one(atomics.atomic_rmw),
    tt.AtomicCas: one(atomics.atomic_cas),
}


def program_id(run: Evaluator, view: tt.GetProgramId) -> TileValue:
    """tt.get_program_id."""
    return run.program_id(view.axis)


def num_programs(run: Evaluator, view: tt.GetNumPrograms) -> TileValue:
    """tt.get_num_programs."""
    return run.num_programs(view.axis)


def visit(run: Evaluator, view: tt.Visit) -> TileValue:
    """tt.visit."""
    return run.visit(view.watch)


# The program itself: ids, special registers, inline assembly, prints and assertions.
_PROGRAM: Rules = {
    tt.GetProgramId: one(program_id),
    tt.GetNumPrograms: one(num_programs),
    tt.ElementwiseInlineAsm: elementwise.inline_asm,
    nvvm.MultiprocessorId: one(elementwise.multiprocessor_id),
    nvvm.GlobalTimer: one(elementwise.global_timer),
    nvvm.GridDependencyControl: nothing,
    tt.Barrier: nothing,
    tt.Assert: elementwise.device_assert,
    tt.Print: device_print,
    # `checks.assumptions` checks what they assume.
    tt.Assume: nothing,
    tt.Hint: unchanged,
    # Watches are observers (`watching.launch_watcher`).
    tt.Watch: nothing,
    tt.Visit: one(visit),
}


# Ops that make tiles, move their elements or pick some of them.
_SHAPES: Rules = {
    tt.MakeRange: one(shapes.make_range),
    tt.Splat: one(shapes.splat),
    tt.Unsplat: one(shapes.reshape),
    tt.ExpandDims: one(shapes.expand_dims),
    tt.Broadcast: one(shapes.broadcast),
    tt.Reshape: one(shapes.reshape),
    tt.Trans: one(shapes.transpose),
    tt.Join: one(shapes.join),
    tt.Split: shapes.split,
    tt.Cat: one(shapes.cat),
    tt.Gather: one(shapes.gather),
    tt.Histogram: one(shapes.histogram),
    tt.Flip: one(shapes.flip),
    tt.Sort: one(shapes.sort),
    tt.TopK: one(shapes.topk),
    tt.BitonicMerge: one(shapes.bitonic_merge),
}


# Shared memory: buffers, views, copies in flight, mbarriers, asynchronous products.
_SHARED: Rules = {
    ttg.ConvertLayout: unchanged,
    ttg.LocalAlloc: one(shared_buffers.local_alloc),
    ttg.LocalDealloc: shared_buffers.local_dealloc,
    ttg.LocalLoad: one(shared_buffers.local_load),
    ttg.LocalStore: shared_buffers.local_store,
    ttg.MemDescIndex: one(shared_buffers.memdesc_index),
    ttg.MemDescTrans: one(shared_buffers.memdesc_trans),
    ttg.MemDescSubslice: one(shared_buffers.memdesc_subslice),
    ttg.AsyncCopyGlobalToLocal: one(asynchronous.async_copy),
    ttg.AsyncCommitGroup: one(asynchronous.async_commit_group),
    ttg.AsyncWait: one(asynchronous.async_wait),
    ttg.LocalDot: one(asynchronous.local_dot),
    ttng.WarpGroupDot: one(asynchronous.warp_group_dot),
    ttng.WarpGroupDotWait: asynchronous.warp_group_dot_wait,
    ttng.FenceAsyncShared: nothing,
    gpu.Barrier: nothing,
    ttng.InitBarrier: asynchronous.init_barrier,
    ttng.InvalBarrier: asynchronous.inval_barrier,
    ttng.BarrierExpect: asynchronous.barrier_expect,
    ttng.WaitBarrier: asynchronous.wait_barrier,
    ttng.AsyncTmaCopyGlobalToLocal: asynchronous.bulk_load,
    ttng.AsyncTmaCopyLocalToGlobal: asynchronous.bulk_store,
    ttng.AsyncTmaStoreWait: asynchronous.bulk_store_wait,
}


FAMILIES = (_ARITHMETIC, _CONTROL, _DOTS, _MEMORY, _PROGRAM, _SHAPES, _SHARED)
RULES: dict[str, Rule] = {view.name: rule for family in FAMILIES for view, rule in family.items()}


def run_alone(run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> Sequence[TileValue]:
    """Run `op` on `operands` without observers; return its results."""
    return RULES[op.name](run, OpView(op), *operands)
