"""`AssignLayouts`: turns tiles without layouts into GPU IR, with as few conversions as possible.

Layouts come from anchors: accesses and dots have the layouts that earlier passes chose, reductions
the layouts of their operands. Everything computed from them follows (`layout_assignment.py`).
Values made of constants and ranges alone (the flexible ops), and small vectors loaded from such
addresses, are assigned no layout: they are made again in each layout that is wanted, which costs
less than moving them. A conversion is placed right after its operand, so outside of loops where it
can.

A dot gets its operands in registers in the unit's layout, or in buffers that wgmma reads. An
operand that must move between threads goes through a swizzled buffer of its own
(`ttg.local_alloc`), which software pipelining can later fill straight from memory.

Invariant: afterwards every tile has a layout and every op's layouts pass the verifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis import layout_inference
from tkdebug.compiler.analysis.tensor_maps import landing_layout
from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import MemDescType, TensorType, element_of, shape_of, with_encoding
from tkdebug.compiler.layouts import (
    LANE,
    REGISTER,
    Conversion,
    LinearLayout,
    NoConversion,
    RegisterMoves,
    SharedTrip,
    classify_conversion,
    dot_operand,
    fma_operand,
    nvmma_shared,
    transpose,
    turning,
)
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.passes.gpu.layout_assignment import LayoutAssignment
from tkdebug.compiler.passes.gpu.select_tensor_cores import fastest_dim
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import Target

# A small vector of which each thread needs more registers is converted, not loaded again.
_MOST_REGISTERS_OF_A_LOAD = 32


class Placement:
    """Returns values in the layouts that ops need: converted, made again, or in buffers.

    Args:
        module: the rewritten module.
        rewriter: the rewriter.
        layouts: the layout of each value that has one.
        target: the architecture.

    Attributes:
        banks: the banks of the target's shared memory.
        buffers: the shared-memory buffers made so far, by their contents.
    """

    def __init__(
        self, module: Module, rewriter: Rewriter, layouts: LayoutAssignment, target: Target
    ) -> None:
        self.rewriter = rewriter
        self.banks = target.banks
        self.layouts = layouts
        self.buffers: dict[tuple[Value, LinearLayout | None, tuple[int, ...] | None], Value] = {}
        self._made: dict[tuple[Value, LinearLayout], Value] = {}
        # The flexible ops that already have a layout, with their operands from before.
        self._placed: dict[Operation, tuple[Value, ...]] = {}
        self._following: dict[Operation, Operation] = {}
        for op in module.walk():
            for region in op.regions:
                for block in region.blocks:
                    pairs = zip(block.operations, block.operations[1:], strict=False)
                    self._following.update(pairs)

    def wanted(self, value: Value, layout: LinearLayout) -> Value:
        """`value` in `layout`; scalars as they are."""
        if not isinstance(value.type, TensorType):
            return value
        key = (value, layout)
        known = self._made.get(key)
        if known is None:
            flexible = value.defining_op is not None and self.layouts.is_flexible_op(
                value.defining_op
            )
            known = self._remake(value, layout) if flexible else self._convert(value, layout)
            self._made[key] = known
        return known

    def settle(self, value: Value) -> None:
        """Give `value` its assigned layout."""
        if isinstance(value.type, TensorType):
            value.type = with_encoding(value.type, self.layouts.of_value(value))

    def settle_unused(self, op: Operation) -> None:
        """Give an unused flexible op the default layout, so that the module stays valid."""
        if op in self._placed:
            return
        for result in op.results:
            shape = shape_of(result.type)
            self.wanted(result, self.layouts.default_layout(shape))

    def after(self, value: Value) -> Operation:
        """The first op before which code that uses `value` may be put."""
        owner = value.owner
        if isinstance(owner, Operation):
            return self._following[owner]
        return owner.operations[0]

    def _convert(self, value: Value, layout: LinearLayout) -> Value:
        assigned = self.layouts.of_value(value)
        if assigned == layout:
            return value
        anchor = self.after(value)
        owner = value.defining_op
        made = self.rewriter.build_before(
            anchor,
            ttg.ConvertLayout,
            [value],
            [with_encoding(value.type, layout)],
            location=owner.location if owner is not None else anchor.location,
        )
        self.rewriter.record_new(made, "convert-layout")
        return made.result

    def _remake(self, value: Value, layout: LinearLayout) -> Value:
        op = value.defining_op
        assert op is not None
        source: LinearLayout | None = layout
        if op.name not in layout_inference.SOURCES and not tt.Load.matches(op):
            source = layout_inference.operand_layout(op, layout)
        crowded = tt.Load.matches(op) and layout.in_size(REGISTER) > _MOST_REGISTERS_OF_A_LOAD
        own = self.layouts.default_layout(layout.shape)
        if crowded and layout != own:
            return self._convert_after(op, self.wanted(value, own), layout)
        if source is None:
            return self._convert_remade(value, layout)
        sources = self._placed.get(op, op.operands)
        operands = [self.wanted(operand, source) for operand in sources]
        type_ = with_encoding(value.type, layout)
        if op not in self._placed:
            self._placed[op] = sources
            op.operands = tuple(operands)
            # The attribute holds only for loads that are not made again.
            del OpView(op).layout
            value.type = type_
            self.rewriter.record_change(op, "assign-layout")
            return value
        clone = self.rewriter.build_before(
            op, op.name, operands, [type_], op.attributes, location=op.location
        )
        clone.result.name = value.name
        self.rewriter.record_new(clone, "remake-in-layout")
        return clone.result

    def _convert_remade(self, value: Value, layout: LinearLayout) -> Value:
        """Convert the result of a view to `layout`, which no layout of its operand gives it."""
        op = value.defining_op
        assert op is not None
        (source, *_) = op.operands
        own = self.layouts.default_layout(shape_of(source.type))
        given = layout_inference.result_layout(op, own)
        assert given is not None, f"{op.name} has no layout rule"
        return self._convert_after(op, self.wanted(value, given), layout)

    def _convert_after(self, op: Operation, made: Value, layout: LinearLayout) -> Value:
        converted = self.rewriter.build_before(
            self._following[op],
            ttg.ConvertLayout,
            [made],
            [with_encoding(made.type, layout)],
            location=op.location,
        )
        self.rewriter.record_new(converted, "convert-layout")
        return converted.result


# Buffers that wgmma reads start where their swizzle pattern does (PTX ISA, "Swizzling Modes").
WGMMA_ALIGNMENT = 1024
_SEGMENT_BYTES = 128
_CHUNK_BYTES = 16


def place_dot(placement: Placement, op: Operation) -> None:
    """Put the operands of dot `op` into the registers or buffers that its unit reads."""
    dot = tt.Dot(op)
    acc = dot.layout
    assert isinstance(acc, LinearLayout)
    a, b, total = op.operands
    match dot.unit:
        case "wgmma":
            first = _register_operand(placement, a, acc) or _wgmma_buffer(placement, a, 0)
            operands = [first, _wgmma_buffer(placement, b, 1)]
            op.name = ttng.WarpGroupDot.name
            fence = placement.rewriter.build_before(
                op, ttng.FenceAsyncShared, [], [], location=op.location
            )
            placement.rewriter.record_new(fence, "order-proxies")
        case "mma":
            width = dot.k_width
            operands = [
                _mma_operand(
                    placement, value, _canonical(dot_operand(acc, i, width, shape_of(value.type)))
                )
                for i, value in enumerate((a, b))
            ]
        case _ if dot.reads_shared:
            del dot.reads_shared
            operands = [_fma_buffer(placement, a, 0, acc), _fma_buffer(placement, b, 1, acc)]
            op.name = ttg.LocalDot.name
        case _:
            operands = [
                placement.wanted(value, _canonical(fma_operand(acc, i, shape_of(value.type))))
                for i, value in enumerate((a, b))
            ]
    op.operands = (*operands, placement.wanted(total, acc))
    op.result.type = with_encoding(op.result.type, acc)
    del OpView(op).layout
    placement.rewriter.record_change(op, "place-operands")


def _canonical(layout: LinearLayout) -> LinearLayout:
    return layout.without_zero_bases(REGISTER)


def _register_operand(placement: Placement, a: Value, acc: LinearLayout) -> Value | None:
    """Operand A in registers if the threads that need it hold it (a dot feeds a dot), else None."""
    width = max(1, 32 // element_of(a.type).bits)
    wanted = _canonical(dot_operand(acc, 0, width, shape_of(a.type)))
    assigned = placement.layouts.find(a)
    if assigned is None or element_of(a.type).bits != 16:
        return None
    stays = _conversion(placement, assigned, wanted, 2)
    return placement.wanted(a, wanted) if isinstance(stays, NoConversion | RegisterMoves) else None


def _conversion(
    placement: Placement, source: LinearLayout, target: LinearLayout, element_bytes: int
) -> Conversion:
    return classify_conversion(source, target, element_bytes, placement.banks)


def _mma_operand(placement: Placement, value: Value, wanted: LinearLayout) -> Value:
    assigned = placement.layouts.find(value)
    element_bytes = max(1, element_of(value.type).bits // 8)
    if assigned is None or not isinstance(
        _conversion(placement, assigned, wanted, element_bytes), SharedTrip
    ):
        return placement.wanted(value, wanted)
    source, order = _peeled(value)
    shape = shape_of(source.type)
    assigned = placement.layouts.find(source)
    assert assigned is not None
    inner = fastest_dim(assigned)
    dims = [d for d in reversed(range(len(shape))) if d != inner]
    fastest_first = tuple(dims if inner is None else (inner, *dims))
    row_bytes = shape[fastest_first[0]] * element_bytes
    per_phase = max(1, _SEGMENT_BYTES // row_bytes)
    phases = max(1, min(8 // per_phase, row_bytes // _CHUNK_BYTES))
    vector = min(max(1, _CHUNK_BYTES // element_bytes), shape[fastest_first[0]])
    layout = shared(shape, vector, min(per_phase, 8), phases, fastest_first)
    buffer = _buffer(placement, source, _landed(source) or layout, _CHUNK_BYTES, order)
    load = placement.rewriter.build_before(
        placement.after(value),
        ttg.LocalLoad,
        [buffer],
        [with_encoding(value.type, wanted)],
        location=_location(placement, value),
    )
    placement.rewriter.record_new(load, "load-operand")
    return load.result


def _wgmma_buffer(placement: Placement, value: Value, index: int) -> Value:
    """The operand in shared memory as wgmma's matrix descriptors read it."""
    source, order = _peeled(value)
    bits = element_of(source.type).bits
    assigned = placement.layouts.find(source)
    inner = None if assigned is None else fastest_dim(assigned)
    k_dim = (1 if index == 0 else 0) if order is None else (0 if index == 0 else 1)
    if bits != 16 and inner == 1 - k_dim:
        return _turned_buffer(placement, source, order, k_dim)
    if inner is None:
        inner = k_dim
    return _matrix_buffer(placement, source, inner, order)


def _turned_buffer(
    placement: Placement, value: Value, order: tuple[int, ...] | None, k_dim: int
) -> Value:
    """A buffer contiguous along K for an operand that is contiguous along the other dimension.

    Wgmma reads all types but those of 16 bits along K only, so such an operand goes through a first
    buffer and registers. Threads read words along the other dimension and store 16 bytes along K.
    The first buffer's swizzle and the order of lanes are such that neither meets a bank twice.
    """
    key = (value, None, order)
    known = placement.buffers.get(key)
    if known is not None:
        return known
    shape = shape_of(value.type)
    size_bytes = element_of(value.type).bits // 8
    together = _CHUNK_BYTES // size_bytes
    fastest_first = (1 - k_dim, k_dim)
    phases = min(4, shape[k_dim] // together, max(1, shape[1 - k_dim] // (2 * together)))
    layout = shared(shape, min(2 * together, shape[1 - k_dim]), together, phases, fastest_first)
    first = _buffer(placement, value, _landed(value) or layout, _CHUNK_BYTES, None)
    wanted = turning((shape[0], shape[1]), k_dim, together, placement.layouts.num_warps)
    load = placement.rewriter.build_before(
        placement.after(value),
        ttg.LocalLoad,
        [first],
        [with_encoding(value.type, _canonical(wanted))],
        location=_location(placement, value),
    )
    placement.rewriter.record_new(load, "turn-operand")
    made = _matrix_buffer(placement, value, k_dim, order, load.result)
    placement.buffers[key] = made
    return made


def _matrix_buffer(
    placement: Placement,
    source: Value,
    inner: int,
    order: tuple[int, ...] | None,
    contents: Value | None = None,
) -> Value:
    """A buffer that matrix descriptors can describe, contiguous along dimension `inner`."""
    shape, bits = shape_of(source.type), element_of(source.type).bits
    row_bytes = shape[inner] * bits // 8
    swizzle = next(width for width in (128, 64, 32, 0) if row_bytes >= max(width, _CHUNK_BYTES))
    layout = nvmma_shared(shape, swizzle, bits, transposed=inner == 0)
    return _buffer(placement, source, layout, WGMMA_ALIGNMENT, order, contents)


def _fma_buffer(placement: Placement, value: Value, index: int, acc: LinearLayout) -> Value:
    """A buffer with the operand in the order of global memory; threads read rows of 16 bytes.

    Where K is contiguous, the lanes of a warp read the same columns of different rows: these are
    swizzled by the rows of one thread. Else neighbouring lanes read neighbouring columns.
    """
    source, order = _peeled(value)
    shape = shape_of(source.type)
    rank, element_bytes = len(shape), max(1, element_of(source.type).bits // 8)
    assigned = placement.layouts.find(source)
    k_dim = rank - (1 if index == 0 else 2)
    if order is not None:
        k_dim = order[k_dim]
    inner = None if assigned is None else fastest_dim(assigned)
    if inner is None or inner < rank - 2:
        inner = rank - 1
    outer = 2 * rank - 3 - inner
    fastest_first = (inner, outer, *reversed(range(rank - 2)))
    vector = min(max(1, _CHUNK_BYTES // element_bytes), shape[inner])
    per_phase, phases = 1, 1
    if inner == k_dim:
        kept = acc.out_dims[rank - 2 if index == 0 else rank - 1]
        steps = [acc.unpack_out(v)[kept] for v in acc.packed_bases(LANE)]
        lanes = [step for step in steps if step]
        per_phase = min(lanes, default=1)
        phases = min(1 << len(lanes), shape[inner] // vector, _SEGMENT_BYTES // _CHUNK_BYTES)
    layout = shared(shape, vector, per_phase, phases, fastest_first)
    return _buffer(placement, source, _landed(source) or layout, _CHUNK_BYTES, order)


def _landed(value: Value) -> LinearLayout | None:
    """The shared-memory layout of a block that a tensor map brings; None for other values."""
    op, type_ = value.defining_op, value.type
    if op is None or not tt.DescriptorLoad.matches(op) or not isinstance(type_, TensorType):
        return None
    return landing_layout(type_)


def _peeled(value: Value) -> tuple[Value, tuple[int, ...] | None]:
    """The source and the order of a transpose of two axes, else `value` and None.

    A buffer is transposed by a view, which costs nothing.
    """
    op = value.defining_op
    if op is not None and tt.Trans.matches(op) and len(shape_of(value.type)) == 2:
        return tt.Trans(op).source, (1, 0)
    return value, None


def _buffer(
    placement: Placement,
    value: Value,
    layout: LinearLayout,
    alignment: int,
    order: tuple[int, ...] | None,
    contents: Value | None = None,
) -> Value:
    """A buffer with the contents of `value`, transposed by `order`.

    `contents` is the value that holds them, if it is not `value` itself.
    """
    key = (value, layout, order)
    known = placement.buffers.get(key)
    if known is not None:
        return known
    assigned = placement.layouts.find(value)
    if assigned is None:
        assigned = placement.layouts.default_layout(shape_of(value.type))
    contents = contents or placement.wanted(value, assigned)
    element = element_of(value.type)
    rewriter, anchor = placement.rewriter, placement.after(value)
    location = _location(placement, value)
    alloc = rewriter.build_before(
        anchor,
        ttg.LocalAlloc,
        [contents],
        [MemDescType(shape_of(value.type), element, layout, False)],
        {"alignment": alignment},
        location=location,
    )
    rewriter.record_new(alloc, "buffer-operand")
    made = alloc.result
    if order is not None:
        type_ = MemDescType(
            tuple(shape_of(value.type)[d] for d in order),
            element,
            transpose(layout, order),
            False,
        )
        view = rewriter.build_before(
            anchor, ttg.MemDescTrans, [made], [type_], {"order": order}, location=location
        )
        rewriter.record_new(view, "transpose-buffer")
        made = view.result
    placement.buffers[key] = made
    return made


def _location(placement: Placement, value: Value) -> Location:
    owner = value.defining_op
    return owner.location if owner is not None else placement.after(value).location


@dataclass(frozen=True, slots=True)
class AssignLayouts:
    """Gives every tile its layout.

    Args:
        target: the architecture.
    """

    target: Target
    name: ClassVar[str] = "assign-layouts"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Assign layouts, then rewrite in program order."""
        placement = Placement(module, rewriter, LayoutAssignment.of(module), self.target)
        _place_block(placement, module.function.regions[0].block)
        rewriter.commit()


def _place_block(placement: Placement, block: Block) -> None:
    """Rewrite all ops of `block`, and the ops inside them."""
    layouts = placement.layouts
    for argument in block.arguments:
        placement.settle(argument)
    for op in list(block.operations):
        if not layouts.is_flexible_op(op):
            _place_op(placement, op)
    for op in block.operations:
        if layouts.is_flexible_op(op):
            placement.settle_unused(op)


def _place_op(placement: Placement, op: Operation) -> None:
    if tt.Dot.matches(op):
        place_dot(placement, op)
        return
    before, types = op.operands, [result.type for result in op.results]
    op.operands = tuple(
        placement.wanted(operand, layout) if layout is not None else operand
        for operand, layout in zip(before, placement.layouts.operand_layouts(op), strict=True)
    )
    for result in op.results:
        placement.settle(result)
    for region in op.regions:
        if op.name.startswith("scf.") or tt.Func.matches(op):
            _place_block(placement, region.block)
    if op.operands != before or [result.type for result in op.results] != types:
        placement.rewriter.record_change(op, "assign-layout")
