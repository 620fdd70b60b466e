"""The verifier: SSA, structure, the op table, and the layouts of GPU IR.

`verify` stops at the first broken rule with an IRError that names the op, its source line and, as a
note, its printed form. The checks of one op's own meaning are on its class.

Passes derive layouts by `analysis.layout_inference`; this module judges them and derives none.
Either no tile of a function has a layout (Tile IR) or every one has; each is canonical and made for
the function's warps. `_RULES` relates an op's operands and results. Ops that are in no list work
element by element: all their tiles share one layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.dialects.interfaces import DotLike, Op, PlainDot
from tkdebug.compiler.dialects.table import ISOLATED, OPS, is_terminator
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, junctions
from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.location import FusedLocation, SourceLocation
from tkdebug.compiler.ir.op_view import Kind, OpView
from tkdebug.compiler.ir.printer import attribute_text, print_operation
from tkdebug.compiler.ir.types import TensorType, Type, layout_text
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

# The most characters of an op's printed form in an error.
_MAX_NOTE_CHARS = 4000


def verify(module: Module) -> None:
    """Check `module`.

    Raises:
        IRError: a rule is broken; the op's printed form is attached as a note.
    """
    _Verifier().module(module)


class _Verifier:
    def __init__(self) -> None:
        self.ids: dict[int, Operation] = {}
        self.visible: set[Value] = set()
        self.uses: dict[Value, dict[Operation, int]] = {}
        self.values: list[tuple[Value, Operation]] = []

    def module(self, module: Module) -> None:
        self.operations(module.body)
        for value, op in self.values:
            if value.uses != self.uses.get(value, {}):
                users = sorted({user.id for user in value.uses})
                found = sorted({user.id for user in self.uses.get(value, {})})
                raise _error(
                    op,
                    f"use list of {_shown(value)} names ops {users}, but ops {found} use it",
                )
        for op in module.body.operations:
            check_layouts(op, _error)

    def operations(self, block: Block) -> None:
        last = len(block.operations) - 1
        defined: list[Value] = []
        for index, op in enumerate(block.operations):
            if op.block is not block:
                raise _error(op, "is listed in a block that it does not belong to")
            self.operation(op)
            if index != last and is_terminator(op):
                raise _error(op, "is a terminator but not the last op of its block")
            self.visible.update(op.results)
            defined.extend(op.results)
        self.visible.difference_update(defined)

    def operation(self, op: Operation) -> None:
        self.identity(op)
        view = OPS.get(op.name)
        if view is None:
            raise _error(op, "is not in the op table")
        for index, value in enumerate(op.operands):
            if value not in self.visible:
                raise _error(op, f"operand {index} ({_shown(value)}) is not defined before this op")
            users = self.uses.setdefault(value, {})
            users[op] = users.get(op, 0) + 1
        broken = broken_declaration(op, view)
        if broken is not None:
            raise _error(op, broken)
        _check_bounds(op)
        self.own(op.results, op, op)
        self.regions(op)
        _check_meaning(op, view)

    def identity(self, op: Operation) -> None:
        if not isinstance(op.location, SourceLocation | FusedLocation):
            raise IRError(f"{op.name} #{op.id}: got location {op.location!r}, expected a place")
        if any(place.line < 1 for place in op.location.sources):
            raise _error(op, "has a location with a line below 1")
        other = self.ids.setdefault(op.id, op)
        if other is not op:
            raise _error(op, f"has the same id as {other.name} of {_where(other)}")

    def own(self, values: Sequence[Value], owner: Operation | Block, op: Operation) -> None:
        for index, value in enumerate(values):
            if value.owner is not owner or value.index != index:
                raise _error(op, f"value {index} ({_shown(value)}) has another owner or index")
            self.values.append((value, op))

    def regions(self, op: Operation) -> None:
        terminators = OPS[op.name].terminators
        if terminators is not None and len(op.regions) != len(terminators):
            raise _error(op, f"got {len(op.regions)} regions, expected {len(terminators)}")
        outside = self.visible
        if op.name in ISOLATED:
            self.visible = set()
        for index, region in enumerate(op.regions):
            self.region(op, region, terminators[index].name if terminators else None)
        self.visible = outside

    def region(self, op: Operation, region: Region, terminator: str | None) -> None:
        if region.parent is not op:
            raise _error(op, "has a region that belongs to another op")
        if len(region.blocks) != 1:
            raise _error(op, f"has a region of {len(region.blocks)} blocks, expected 1")
        block = region.blocks[0]
        if block.region is not region:
            raise _error(op, "has a block that belongs to another region")
        if not block.operations or not is_terminator(block.operations[-1]):
            raise _error(op, f"has a block that does not end in {terminator or 'a terminator'}")
        if terminator is not None and block.operations[-1].name != terminator:
            got = block.operations[-1].name
            raise _error(op, f"has a block that ends in {got}, expected {terminator}")
        self.own(block.arguments, block, op)
        self.visible.update(block.arguments)
        self.operations(block)
        self.visible.difference_update(block.arguments)
        expected = _yielded_types(op, region)
        got_types = [value.type for value in block.operations[-1].operands]
        if expected is not None and got_types != expected:
            raise _error(
                block.operations[-1],
                f"forwards {_types(got_types)}, expected {_types(expected)} of {op.name}",
            )


def _yielded_types(op: Operation, region: Region) -> list[Type] | None:
    """The types that the terminator of `region` must forward, or None if any will do."""
    results = [value.type for value in op.results]
    match op.name:
        case scf.For.name | scf.If.name:
            return results
        case scf.While.name:
            if region is op.regions[0]:
                return [scf.Condition(region.block.terminator).condition.type, *results]
            return [value.type for value in op.operands]
        case _:
            return None


def _check_bounds(op: Operation) -> None:
    """Check that the bounds and the step of a loop are of one type."""
    if not scf.For.matches(op):
        return
    bounds = [value.type for value in scf.For(op).bounds]
    if len(set(bounds)) != 1:
        raise _error(op, f"got bounds and step {_types(bounds)}, expected three of one type")


def _check_meaning(op: Operation, view: type[Op]) -> None:
    # Type rules and verifiers may assume well-formed operands; text read from a file may not be.
    malformed = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
    try:
        expected = view.infer([value.type for value in op.operands], op.attributes)
        if expected is not None and not _agree(expected, [value.type for value in op.results]):
            got = _types([value.type for value in op.results])
            raise IRError(f"got result types {got}, expected {_types(expected)}")
        view(op).verify()
    except IRError as error:
        raise _error(op, str(error).removeprefix(f"{op.name}: ")) from None
    except malformed as error:
        raise _error(op, f"operands or attributes do not fit the op: {error!r}") from error


def _agree(expected: Sequence[Type], got: Sequence[Type]) -> bool:
    """Whether the types are equal except for their layouts, which `check_layouts` checks."""
    if list(expected) == list(got):
        return True
    bare = [[ir.without_encoding(type_) for type_ in types] for types in (expected, got)]
    return bare[0] == bare[1]


def _types(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _shown(value: Value) -> str:
    return f"%{value.name or value.index}: {value.type}"


def _where(op: Operation) -> str:
    place = op.location.primary
    return f"{place.file}:{place.line}"


def _error(op: Operation, message: str) -> IRError:
    error = IRError(f"{_where(op)}: {op.name} #{op.id}: {message}")
    text = print_operation(op)
    if len(text) > _MAX_NOTE_CHARS:
        text = text[:_MAX_NOTE_CHARS] + "…"
    # add_note exists from Python 3.11 on; __notes__ is what it fills, and 3.10 ignores it.
    notes = [f"in: {text}"]
    error.__notes__ = notes
    return error


def broken_declaration(op: Operation, view: type[OpView]) -> str | None:
    """The first mismatch between `op` and the declaration of its op, or None.

    Attributes that are not declared are let through: they mean nothing to the op.
    """
    declaration = view.declaration
    for attribute in declaration.attributes:
        if attribute.key not in op.attributes:
            if attribute.is_required:
                return f"attribute {attribute.key} is missing"
            continue
        value = op.attributes[attribute.key]
        if not attribute.holds(value):
            expected = " or ".join(map(_type_text, attribute.types))
            return f"attribute {attribute.key} is {attribute_text(value)}, expected {expected}"
    if not declaration.accepts_operands(op):
        return f"got {len(op.operands)} operands, expected {declaration.operand_count(op)}"
    least = len(declaration.results)
    if len(op.results) < least or (len(op.results) > least and not declaration.variadic_results):
        expected = f"at least {least}" if declaration.variadic_results else str(least)
        return f"got {len(op.results)} results, expected {expected}"
    for name, kind, given in _named(op, view):
        if not kind.holds(given.type):
            return f"{name}: got {given.type}, expected {kind.text}"
    return None


def _named(op: Operation, view: type[OpView]) -> Iterator[tuple[str, Kind, Value]]:
    """Every operand and result with its name and the kind that it must be of."""
    seen, declaration = view(op), view.declaration
    for place in (*declaration.operands, *declaration.optional, *declaration.results):
        value = getattr(seen, place.name)
        if value is not None:
            yield place.name, place.kind, value
    for group in (*declaration.variadic, *declaration.variadic_results):
        for index, value in enumerate(getattr(seen, group.name)):
            yield f"{group.name}[{index}]", group.kind, value


def _type_text(type_: object) -> str:
    return (
        type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)
    )


_IN_DIMS = (REGISTER, LANE, WARP, BLOCK)
# Bytes of K that one thread holds side by side, over all instructions.
_K_WIDTHS = (1, 2, 4, 8, 16)


def check_layouts(function: Operation, check: Callable[[Operation, str], IRError]) -> None:
    """Check the layouts of a `tt.func` that knows its number of warps.

    Args:
        function: the `tt.func`.
        check: makes the error for an op and a message.

    Raises:
        IRError: a layout rule is broken.
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
    """The first fault of one layout, or None."""
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
    """The layout rule that `op` breaks, in words, or None if it breaks none."""
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
    """The type mismatch of a carried value inside and outside of `op`, or None.

    The types that regions forward are checked by `_Verifier.region`.
    """
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
