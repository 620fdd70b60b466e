"""How a dot gets its operands: registers in the unit's layout, or buffers that wgmma reads.

Part of `AssignLayouts`. An operand that must move between threads goes through a swizzled buffer
of its own (`ttg.local_alloc`), which software pipelining can later fill straight from memory.
"""

from __future__ import annotations

from tkdebug.compiler.analysis.tensor_maps import landing_layout
from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.ir import Operation, Value
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
from tkdebug.compiler.passes.gpu.placement import Placement
from tkdebug.compiler.passes.gpu.select_tensor_cores import fastest_dim

# Buffers that wgmma reads start where their swizzle pattern does (PTX ISA, "Swizzling Modes").
WGMMA_ALIGNMENT = 1024
_SEGMENT_BYTES = 128
_CHUNK_BYTES = 16


def place_dot(placement: Placement, op: Operation) -> None:
    """Give the dot `op` its operands where its unit wants them."""
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
    """A in registers, where the threads that need it hold it already (a dot fed by a dot)."""
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
    """Narrow and wide types are read along K only: what lies otherwise goes through registers.

    Threads read words along the other dimension and store 16 bytes along K. The first buffer's
    swizzle and the order of lanes are such that neither meets a bank twice.
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
    """A buffer that matrix descriptors can name, `inner` contiguous."""
    shape, bits = shape_of(source.type), element_of(source.type).bits
    row_bytes = shape[inner] * bits // 8
    swizzle = next(width for width in (128, 64, 32, 0) if row_bytes >= max(width, _CHUNK_BYTES))
    layout = nvmma_shared(shape, swizzle, bits, transposed=inner == 0)
    return _buffer(placement, source, layout, WGMMA_ALIGNMENT, order, contents)


def _fma_buffer(placement: Placement, value: Value, index: int, acc: LinearLayout) -> Value:
    """The operand in shared memory as it lies in global memory; threads read rows of 16 bytes.

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
    """How a block lies in shared memory that a tensor map brings there; None for other values."""
    op, type_ = value.defining_op, value.type
    if op is None or not tt.DescriptorLoad.matches(op) or not isinstance(type_, TensorType):
        return None
    return landing_layout(type_)


def _peeled(value: Value) -> tuple[Value, tuple[int, ...] | None]:
    """What a transposed operand was transposed from, and the order; a view costs nothing."""
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

    `contents` is what holds them where that is not `value` itself.
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
