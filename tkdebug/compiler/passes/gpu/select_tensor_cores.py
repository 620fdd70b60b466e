"""`SelectTensorCores`: which unit computes each dot, and how its accumulators lie.

Sets `unit` ("wgmma", "mma" or "fma"), `layout` (of the accumulators) and, for mma, `k_width` on
every tt.dot. The unit is warpgroup instructions if the target has them and the tile fills them,
mma.sync for other types and tiles that tensor cores have, FMA units for the rest.

Source: PTX ISA, "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async" and
"Multiply-and-Accumulate Instruction: mma".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis import layout_inference as rules
from tkdebug.compiler.analysis.dot_use import comes_from_dot, feeds_dot
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import iter_args
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import element_of, shape_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout, blocked, fma_operand, mma_v2, wgmma
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import FP8_MMA, MMA_SM80, TCGEN05, WGMMA, Target

_FP8 = ("f8E4M3FN", "f8E5M2")
_WGMMA_MAX_N = 256
_WGMMA_K_BYTES = 32
# 32-bit registers of a thread that operands and accumulators of an FMA dot may take together.
_FMA_WORDS = 128
# Shared memory left for other ops around an FMA dot, and the bytes of the widest access.
_OTHER_SHARED_BYTES = 8192
_ACCESS_BYTES = 16


@dataclass(frozen=True, slots=True)
class SelectTensorCores:
    """Chooses the unit of each dot.

    Attributes:
        target: the architecture.
    """

    target: Target
    name: ClassVar[str] = "select-tensor-cores"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Annotate every dot."""
        num_warps = tt.Func(module.function).num_warps
        for op in module.walk():
            if tt.Dot.matches(op) and rewriter.begins(op, "select-unit"):
                self._annotate(op, num_warps, rewriter)
                for access in self._accesses(op):
                    OpView(access).layout = tt.Dot(op).layout
                    rewriter.record_change(access, "lie-as-sums")
                rewriter.record_change(op, "select-unit")
        rewriter.commit()

    def _accesses(self, op: Operation) -> list[Operation]:
        """The loads and stores that get the layout of the sums of `op`."""
        if tt.Dot(op).unit == "fma":
            return _accesses_of_sums(op)
        # Tensor cores' sums are stored in rows of 8 bytes a thread, 32 bytes together. Wider rows
        # cost a trip through shared memory, for which these have no room.
        size_bytes = math.prod(shape_of(op.result.type)) * element_of(op.result.type).bits // 8
        return _stores_of(op) if size_bytes > self.target.shared_bytes_per_block else []

    def _annotate(self, op: Operation, num_warps: int, rewriter: Rewriter) -> None:
        dot, shape = tt.Dot(op), shape_of(op.result.type)
        no_wgmma = self._wgmma_obstacle(op, num_warps)
        no_mma = self._mma_obstacle(op)
        if no_wgmma and no_mma:
            rewriter.remark(op, "tensor-cores", no_mma)
        elif no_wgmma and self.target.has(WGMMA):
            rewriter.remark(op, "wgmma", no_wgmma)
        elif self.target.has(TCGEN05):
            rewriter.remark(op, "tcgen05", "this version of tkdebug does not use it")
        if not no_wgmma:
            dot.unit = "wgmma"
            dot.layout = _wgmma_layout(shape, num_warps)
        elif not no_mma:
            dot.unit = "mma"
            dot.layout = _mma_layout(op, shape, num_warps)
            dot.k_width = max(1, 32 // element_of(dot.a.type).bits)
        else:
            layout = _fma_layout(
                shape, num_warps, self.target.threads_per_warp, element_of(op.result.type).bits
            )
            dot.unit = "fma"
            dot.layout = layout
            if self._reads_memory(op, layout):
                dot.reads_shared = True

    def _reads_memory(self, op: Operation, acc: LinearLayout) -> bool:
        """Whether operands of an FMA dot take too many registers, but fit into shared memory."""
        registers, size_bytes = acc.in_size(REGISTER), 0
        for index, value in enumerate(tt.Dot(op).factors):
            shape, bits = shape_of(value.type), element_of(value.type).bits
            operand = fma_operand(acc, index, shape).without_zero_bases(REGISTER)
            registers += operand.in_size(REGISTER)
            size_bytes += math.prod(shape) * bits // 8
        # Accumulators that come from elsewhere may go through shared memory while operands wait.
        maker = tt.Dot(op).accumulator.defining_op
        if maker is not None and maker.name not in rules.SOURCES and not _is_loaded(op):
            shape, bits = shape_of(op.result.type), element_of(op.result.type).bits
            size_bytes += math.prod(shape) * bits // 8
        words = registers * max(1, element_of(op.result.type).bits // 32)
        room = self.target.shared_bytes_per_block - _OTHER_SHARED_BYTES
        return words > _FMA_WORDS and size_bytes <= room

    def _wgmma_obstacle(self, op: Operation, num_warps: int) -> str:
        """Return why warpgroup instructions do not compute a dot, "" if they do."""
        dot = tt.Dot(op)
        a, b = (element_of(value.type).name for value in (dot.a, dot.b))  # type: ignore[union-attr]
        acc = str(element_of(op.result.type))
        shape = shape_of(op.result.type)
        if not self.target.has(WGMMA):
            return f"{self.target} has none"
        if len(shape) != 2:
            return f"the product has {len(shape)} dimensions, expected 2"
        if num_warps % 4:
            return f"num_warps is {num_warps}, and a warpgroup has 4"
        k = shape_of(dot.a.type)[1]
        k_bytes = k * element_of(dot.a.type).bits // 8
        if shape[0] < 64 or shape[1] < 16 or k_bytes < _WGMMA_K_BYTES:
            return f"the tile is {shape[0]}x{shape[1]}x{k}, expected 64 rows, 16 columns at least"
        if _wgmma_n(shape, num_warps) < 8:
            return f"{num_warps} warps leave each warpgroup fewer than 8 columns"
        halves = a == b and a in ("f16", "bf16")
        fp8 = a in _FP8 and b in _FP8
        tf32 = a == b == "f32" and dot.input_precision == "tf32"
        if halves or fp8 or tf32:
            return "" if acc == "f32" else f"sums are {acc}, expected f32"
        if a == b == "i8" and acc == "i32":
            return ""
        return _types_text(dot)

    def _mma_obstacle(self, op: Operation) -> str:
        """Return why tensor cores do not compute a dot by mma.sync, "" if they do."""
        dot = tt.Dot(op)
        a, b = (str(element_of(value.type)) for value in (dot.a, dot.b))
        acc = str(element_of(op.result.type))
        # Rows and columns that a small tile lacks repeat its own, computed again.
        k, least = shape_of(dot.a.type)[-1], 256 // element_of(dot.a.type).bits
        if k < least:
            return f"the tile is {k} long along k, expected {least} at least"
        fits = False
        if a == b == "f16":
            fits = acc in ("f16", "f32")
        elif not self.target.has(MMA_SM80):
            return f"it multiplies {a} by {b}, and tensor cores of {self.target} are used for f16"
        elif a == b == "bf16":
            fits = acc == "f32"
        elif a == b == "f32":
            fits = acc == "f32" and dot.input_precision in ("tf32", "tf32x3")
        elif a in _FP8 and b in _FP8:
            fits = acc == "f32" and self.target.has(FP8_MMA)
        elif a == b == "i8":
            fits = acc == "i32"
        return "" if fits else _types_text(dot)


def _types_text(dot: tt.Dot) -> str:
    """Return the reason that the unit does not multiply these types."""
    a, b = (str(element_of(value.type)) for value in (dot.a, dot.b))
    acc = str(element_of(dot.result.type))
    precision = f' with input_precision="{dot.input_precision}"' if a == b == "f32" else ""
    return f"it multiplies {a} by {b} into {acc}{precision}, which they do not take"


def _wgmma_warps(shape: tuple[int, ...], num_warps: int) -> tuple[int, int]:
    along_m = min(num_warps, shape[0] // 16)
    return along_m, num_warps // along_m


def _wgmma_n(shape: tuple[int, ...], num_warps: int) -> int:
    return min(_WGMMA_MAX_N, shape[1] // _wgmma_warps(shape, num_warps)[1])


def _wgmma_layout(shape: tuple[int, ...], num_warps: int) -> LinearLayout:
    warps = _wgmma_warps(shape, num_warps)
    made = wgmma((shape[0], shape[1]), warps, _wgmma_n(shape, num_warps))
    return made.without_zero_bases(REGISTER)


def _mma_layout(op: Operation, shape: tuple[int, ...], num_warps: int) -> LinearLayout:
    rank = len(shape)
    warps = [1] * rank
    if rank == 3:
        warps[0] = min(num_warps, shape[0])
    elif feeds_dot(op.result) or comes_from_dot(tt.Dot(op).a):
        # Rows stay in the warps that computed them: as A they need no shared memory.
        warps[0] = min(num_warps, max(1, shape[0] // 16))
    while math.prod(warps) < num_warps:
        rows, cols = shape[-2] // 16 // warps[-2], shape[-1] // 8 // warps[-1]
        if rows >= cols // 2 and rows > 1:
            warps[-2] *= 2
        else:
            warps[-1] *= 2
    return mma_v2(shape, tuple(warps)).without_zero_bases(REGISTER)


def _fma_layout(shape: tuple[int, ...], num_warps: int, warp_size: int, bits: int) -> LinearLayout:
    """The layout with square boxes per thread, so that each operand read serves many products.

    Boxes are no wider than one access, so that neighbouring threads meet no bank twice.
    """
    rank = len(shape)
    threads = warp_size * num_warps
    elements = math.prod(shape)
    box = [1] * rank
    widest = min(4, _ACCESS_BYTES * 8 // bits)
    for d, most in ((rank - 1, widest), (rank - 2, 4)):
        while box[d] < most:
            if box[d] * 2 > shape[d] or elements // math.prod(box) <= threads:
                break
            box[d] *= 2
    lanes, left = [1] * rank, warp_size
    for d in (rank - 1, rank - 2):
        wanted = 8 if d == rank - 1 else left
        lanes[d] = min(max(1, shape[d] // box[d]), wanted, left)
        left //= lanes[d]
    lanes[-1] *= left
    warps, left = [1] * rank, num_warps
    for d in range(rank):
        warps[d] = min(max(1, shape[d] // (box[d] * lanes[d])), left)
        left //= warps[d]
    warps[-1] *= left
    order = tuple(reversed(range(rank)))
    made = blocked(tuple(box), tuple(lanes), tuple(warps), order, shape)
    return made.without_zero_bases(REGISTER)


def _is_loaded(dot: Operation) -> bool:
    """Whether the accumulators are loaded for the dot alone, by rows."""
    load = tt.Dot(dot).accumulator.defining_op
    return (
        load is not None
        and tt.Load.matches(load)
        and list(load.result.uses) == [dot]
        and load.result not in (tt.Dot(dot).a, tt.Dot(dot).b)
        and _runs_by_rows(load)
    )


def _accesses_of_sums(dot: Operation) -> list[Operation]:
    """The loads and stores of an FMA dot's sums that can have the layout of the sums.

    The boxes of neighbouring threads are next to each other: 128 bytes of a row, by 16 a thread.
    """
    load = tt.Dot(dot).accumulator.defining_op
    found = [load] if load is not None and _is_loaded(dot) else []
    total = dot.result
    for user in total.uses:
        results = _loop_results(user, total)
        if results:
            total = results[0]
            break
    for value in dict.fromkeys((dot.result, total)):
        stores = [user for user in value.uses if tt.Store.matches(user)]
        found += [s for s in stores if tt.Store(s).value is value and _runs_by_rows(s)]
    return found


def _stores_of(dot: Operation) -> list[Operation]:
    """The stores of a dot's sums, or of values computed from them element by element."""
    shape, bits = shape_of(dot.result.type), element_of(dot.result.type).bits
    seen, pending = {dot.result}, [dot.result]
    stores: list[Operation] = []
    while pending:
        value = pending.pop()
        for user in value.uses:
            found = _loop_results(user, value)
            if tt.Store.matches(user) and tt.Store(user).value is value:
                stores.append(user)
            elif rules.is_elementwise(user):
                found = [
                    x
                    for x in user.results
                    if shape_of(x.type) == shape and element_of(x.type).bits == bits
                ]
            pending += [x for x in found if x not in seen]
            seen.update(found)
    return stores


def _loop_results(user: Operation, value: Value) -> list[Value]:
    """The results of an `scf.for` for which its terminator `user` yields `value`; else []."""
    loop = None if user.block is None else user.block.parent_op
    if loop is None or not scf.For.matches(loop) or user is not loop.regions[0].block.terminator:
        return []
    return [each.result for each in iter_args(loop) if each.yielded is value]


def _runs_by_rows(access: Operation) -> bool:
    layout = OpView(access).layout
    return layout is not None and fastest_dim(layout) == len(layout.out_dims) - 1


def fastest_dim(layout: LinearLayout) -> int | None:
    """The dimension along which registers, or else lanes, run first; None if nothing varies."""
    for bases in (layout.bases(d) for d, _ in layout.ins):
        for vector in bases:
            for d, index in enumerate(vector):
                if index:
                    return d
    return None
