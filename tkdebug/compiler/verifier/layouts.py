"""Checks that the layouts of GPU IR obey the conventions that lowering relies on.

Passes derive layouts by `analysis.layout_inference`; this is the judge, which derives none.

Either no tile of a function has a layout (Tile IR) or every one has; each is canonical and made
for the function's warps; and what an op's operands and results have to do with each other is in
`_RULES`. Ops that are in no list work element by element: all their tiles share one layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import DotLike, PlainDot
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, junctions
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.layout_text import layout_text
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.layouts import (
    BLOCK,
    LANE,
    REGISTER,
    WARP,
    LayoutError,
    LinearLayout,
    broadcast_source,
    concatenate,
    dot_operand,
    expand_dims,
    fma_operand,
    join,
    reshape,
    slice_layout,
    transpose,
)
from tkdebug.errors import IRError

_IN_DIMS = (REGISTER, LANE, WARP, BLOCK)
# Bytes of K that one thread holds side by side, over all instructions.
_K_WIDTHS = (1, 2, 4, 8, 16)


def check_layouts(function: Operation, check: Callable[[Operation, str], IRError]) -> None:
    """Check the layouts of a `tt.func` that knows its number of warps.

    Args:
        function: the `tt.func`.
        check: makes the error for an op and a message.

    Raises:
        IRError: a convention is broken.
    """
    if tt.Func.num_warps.key not in function.attributes:
        return
    num_warps = tt.Func(function).num_warps
    if not isinstance(num_warps, int) or num_warps < 1 or num_warps & (num_warps - 1):
        raise check(function, f"num_warps is {num_warps!r}, expected a power of two")
    warp_size = tt.Func(function).threads_per_warp
    ops = list(function.walk())
    tiles = [(value, op) for op in ops for value in _defined(op) if _is_tile(value)]
    with_layout = [value for value, _ in tiles if ir.encoding_of(value.type) is not None]
    if not with_layout:
        return
    checked: set[TensorType] = set()
    for value, op in tiles:
        type_ = value.type
        assert isinstance(type_, TensorType)
        if type_.encoding is None:
            raise check(op, f"{type_} has no layout, but others of this function have")
        if type_ not in checked:
            problem = _problem(type_.encoding, type_.shape, num_warps, warp_size)
            if problem is not None:
                raise check(op, f"layout of {type_}: {problem}")
            checked.add(type_)
    for op in ops:
        problem = _broken_rule(op)
        if problem is not None:
            raise check(op, problem)


def _defined(op: Operation) -> list[Value]:
    arguments = [
        argument for region in op.regions for block in region.blocks for argument in block.arguments
    ]
    return [*op.results, *arguments]


def _is_tile(value: Value) -> bool:
    return isinstance(value.type, TensorType) and bool(value.type.shape)


def _problem(
    layout: LinearLayout, shape: tuple[int, ...], num_warps: int, warp_size: int
) -> str | None:
    """What is wrong with one layout."""
    outs = tuple((f"dim{axis}", size) for axis, size in enumerate(shape))
    if layout.in_dims != _IN_DIMS:
        return f"inputs {', '.join(layout.in_dims)}, expected {', '.join(_IN_DIMS)}"
    if layout.outs != outs:
        return f"made for {dict(layout.outs)}, expected {dict(outs)}"
    if 0 in layout.packed_bases(REGISTER):
        return "a register bit without effect; expected registers without copies"
    if layout.in_size(LANE) != warp_size or layout.in_size(WARP) != num_warps:
        got = f"{layout.in_size(LANE)} lanes and {layout.in_size(WARP)} warps"
        return f"{got}, expected {warp_size} and {num_warps}"
    if not layout.is_surjective:
        return "does not hold every element"
    return None


def _broken_rule(op: Operation) -> str | None:
    """Which convention `op` breaks, in words; None when it breaks none."""
    if OPS[op.name].takes_any_layout:
        return None
    if op.name in CONTROL_FLOW:
        return _tied(op)
    rule = _RULES.get(op.name, _same)
    try:
        return rule(op)
    except LayoutError as error:
        return str(error)


def _layouts(values: Sequence[Value]) -> list[LinearLayout]:
    encodings = (ir.encoding_of(value.type) for value in values if _is_tile(value))
    return [encoding for encoding in encodings if encoding is not None]


def _same(op: Operation) -> str | None:
    if len(set(_layouts([*op.operands, *op.results]))) > 1:
        return "its tiles have different layouts, expected one for all operands and results"
    return None


def _tied(op: Operation) -> str | None:
    """Carried values keep their type; what regions forward is checked by the verifier."""
    for junction in junctions(op):
        for tied in junction.tied():
            inner, *others = tied.values
            for outer in (*tied.entering, *others):
                if outer.type != inner.type:
                    return f"a carried value is {outer.type} outside and {inner.type} inside"
    return None


def _expect(layout: LinearLayout, wanted: LinearLayout, what: str) -> str | None:
    if layout == wanted:
        return None
    return f"{what} is laid out as {layout_text(layout)}, expected {layout_text(wanted)}"


def _only(value: Value) -> LinearLayout:
    encoding = ir.encoding_of(value.type)
    assert encoding is not None
    return encoding


def _expand(op: Operation) -> str | None:
    return _expect(
        _only(op.result),
        expand_dims(_only(tt.ExpandDims(op).source), tt.ExpandDims(op).axis),
        "the result",
    )


def _trans(op: Operation) -> str | None:
    return _expect(
        _only(op.result), transpose(_only(tt.Trans(op).source), tt.Trans(op).order), "the result"
    )


def _reshape(op: Operation) -> str | None:
    wanted = reshape(_only(tt.Reshape(op).source), ir.shape_of(op.result.type))
    return _expect(_only(op.result), wanted, "the result")


def _broadcast(op: Operation) -> str | None:
    source = tt.Broadcast(op).source
    wanted = broadcast_source(_only(op.result), ir.shape_of(source.type))
    return _expect(_only(source), wanted, "the operand")


def _reduce(op: Operation) -> str | None:
    sources = _layouts(op.operands)
    if len(set(sources)) > 1:
        return "its operands have different layouts, expected one for all"
    wanted = slice_layout(sources[0], tt.Combining(op).axis)
    return next(filter(None, (_expect(x, wanted, "a result") for x in _layouts(op.results))), None)


def _join(op: Operation) -> str | None:
    sources = _layouts(op.operands)
    if len(set(sources)) > 1:
        return "its operands have different layouts, expected one for both"
    return _expect(_only(op.result), join(sources[0]), "the result") if sources else None


def _split(op: Operation) -> str | None:
    results = _layouts(op.results)
    if len(set(results)) > 1:
        return "its results have different layouts, expected one for both"
    return _expect(_only(tt.Split(op).source), join(results[0]), "the operand") if results else None


def _cat(op: Operation) -> str | None:
    sources = _layouts(op.operands)
    if len(set(sources)) > 1:
        return "its operands have different layouts, expected one for both"
    return _expect(_only(op.result), concatenate(sources[0]), "the result")


def _dot(op: Operation) -> str | None:
    dot = DotLike(op)
    accumulator = _only(dot.accumulator)
    if accumulator != _only(op.result):
        return "the result and the accumulator have different layouts"
    for index, value in enumerate(dot.factors):
        if _is_tile(value) and not _is_operand(value, accumulator, index):
            return (
                f"operand {index} is laid out as {layout_text(_only(value))}, "
                f"expected an operand layout of the accumulator's {layout_text(accumulator)}"
            )
    return None


def _is_operand(value: Value, accumulator: LinearLayout, index: int) -> bool:
    shape = ir.shape_of(value.type)
    layout = _only(value)
    if layout == fma_operand(accumulator, index, shape):
        return True
    for k_width in _K_WIDTHS:
        try:
            wanted = dot_operand(accumulator, index, k_width, shape)
        except LayoutError:
            continue
        # Tiles smaller than the instruction have fewer registers than it.
        if layout == wanted.without_zero_bases(REGISTER):
            return True
    return False


def _histogram(op: Operation) -> str | None:
    if len(set(_layouts(op.operands))) > 1:
        return "its values and their mask have different layouts"
    return None


_RULES: dict[str, Callable[[Operation], str | None]] = {
    tt.ExpandDims.name: _expand,
    tt.Trans.name: _trans,
    tt.Reshape.name: _reshape,
    tt.Broadcast.name: _broadcast,
    tt.Reduce.name: _reduce,
    tt.Histogram.name: _histogram,
    tt.Join.name: _join,
    tt.Split.name: _split,
    tt.Cat.name: _cat,
    **dict.fromkeys(PlainDot.names, _dot),
}
