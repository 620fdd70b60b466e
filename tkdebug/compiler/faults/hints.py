"""Hints for accesses that left their tensor: what to change in the source, never failing.

Reads the kernel's source lines, and says less where they cannot be had. Strides are named where the
kernel multiplies by them, as in `b + k * sbk + n * sbn`, and not in the tensor's own order.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, scf, tt, ttng
from tkdebug.compiler.dialects.interfaces import PointerAccess, accessed
from tkdebug.compiler.faults.facts import AccessedTensor, Offender
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.errors import Frame
from tkdebug.process.named_files import source_line, source_lines

# Ops that make pointers of their first operand's pointers.
_POINTER_STEPS = names_of(tt.AddPtr, tt.Rearrangement)
# The number of ops that a mask or a pointer is followed back.
_SEARCH_DEPTH = 100


def access_hint(
    op: Operation,
    tensor: AccessedTensor,
    mask: Value | None,
    offender: Offender,
    grid: tuple[int, int, int],
) -> str:
    """The hint on access `op`, whose first bad element, `offender`, is no element of `tensor`."""
    index = offender.index
    assert index is not None
    elements = f"`{tensor.name or 'the tensor'}` has {counted(tensor.hull_elems)}"
    if tensor.itemsize != tensor.element_bytes:
        elements += f" of {tensor.itemsize} bytes, as which it is accessed ({tensor.element_type})"
    if tensor.is_expanded:
        return (
            f"{elements} in memory for a shape of {list(tensor.shape)}: it was expanded (strides "
            "of 0), as gradients often are; pass it as .contiguous(), or use its strides"
        )
    if 0 <= index < tensor.hull_elems:
        strides = ", ".join(map(str, tensor.strides))
        return (
            f"`{tensor.name or 'the tensor'}` has strides ({strides}): multiply its indices by "
            "them, or pass it as .contiguous()"
        )
    loop = ", the loop's bounds" if any(scf.loops_around(op)) else ""
    elsewhere = f"the index arithmetic{loop} and the grid, {grid}"
    shape = _accessed_shape(op)
    checked = _boundary_check(op)
    is_descriptor = tt.DescriptorAccess.matches(op)
    if is_descriptor or checked is not None:
        if checked is not None and len(checked) < len(shape):
            return _unchecked_axes(checked, len(shape))
        made = "the tensor descriptor" if is_descriptor else "make_block_ptr"
        if offender.is_whole_tile:
            given = f"the pointer, the shape and the strides given to {made}"
            return f"the whole block lies outside: check {given}, {elsewhere}"
        return f"the shape or the strides given to {made} do not fit: {elements}"
    if mask is None:
        return _unmasked(op, tensor, offender, elements, elsewhere)
    text = mask_text(op, mask)
    shown = f"mask is `{text}`" if text else "the mask allows it"
    if index < 0:
        return f"{shown}: it does not exclude negative offsets"
    if not shape:
        return f"{shown} but {elements}: check {elsewhere}"
    is_constant = not _varies_by_program(mask)
    true = ""
    if offender.is_unmasked:
        true = ", which is always true," if is_constant else ", true in all of this tile,"
    if offender.is_whole_tile:
        none = f"{elements}, and this program's tile has none of them"
        return f"{shown}{true} but {none}: check {elsewhere}"
    free = _free_axis(op, mask, offender.lane)
    if free is not None:
        return f"{shown}, which says nothing of axis {free} of the tile: is a bound missing there?"
    if any(offender.program_id) and is_constant and not offender.is_unmasked:
        return f"{shown}, the same in every program, but {elements}: check {elsewhere}"
    return f"{shown}{true} but {elements}"


def loaded_offset(op: Operation) -> tuple[Operation, str] | None:
    """The load that gives the offset of access `op`, and the argument it reads; None for none."""
    seen, pending = {accessed(op)}, [accessed(op)]
    while pending and len(seen) <= _SEARCH_DEPTH:
        made_by = pending.pop().defining_op
        if made_by is None or made_by.regions:
            continue
        load = tt.Load.cast(made_by)
        if load is not None:
            name = argument_name(load.pointer)
            if name is not None:
                return made_by, name
            continue
        pending += [operand for operand in made_by.operands if operand not in seen]
        seen.update(made_by.operands)
    return None


def argument_name(pointer: Value) -> str | None:
    """The parameter that a pointer is made of by offsets and rearrangements alone, or None."""
    pointer = traced(pointer, _POINTER_STEPS)
    block = pointer.owner
    if not isinstance(block, Block) or not _is_parameter(pointer) or block.parent_op is None:
        return None
    names = tt.Func(block.parent_op).arg_names
    place = block.arguments.index(pointer)
    return names[place] if place < len(names) else None


def counted(elements: int) -> str:
    """A number of elements, in words."""
    return f"{elements} element{'s' * (elements != 1)}"


def _unmasked(
    op: Operation, tensor: AccessedTensor, offender: Offender, elements: str, elsewhere: str
) -> str:
    call = call_name(op)
    assert offender.index is not None
    if offender.index < 0:
        before = f"check the index arithmetic before this {call}"
        return f"the offset is negative; {before}"
    given = mask_argument(op)
    if given is not None:
        return f"mask is `{given}`, which is None or true everywhere here, but {elements}"
    if not _accessed_shape(op):
        return (
            f"this {call} touches one element a program: check {elsewhere}, or guard it "
            "with an `if`"
        )
    if offender.is_whole_tile:
        return f"this program's tile has no element of `{tensor.name}`: check {elsewhere}"
    # A tile of rows ends with its row, which only the shape shows.
    rows = sum(size > 1 for size in tensor.shape) > 1
    return (
        f"this {call} has no mask: pass mask=offsets < n, with n at most "
        f"{tensor.hull_elems} for `{tensor.name or 'the tensor'}`"
        + (f", or that of an axis of its shape, {list(tensor.shape)}" if rows else "")
    )


def _accessed_shape(op: Operation) -> tuple[int, ...]:
    """The shape of the pointers of an access, or of the blocks of its descriptor."""
    access = PointerAccess.cast(op)
    if access is not None:
        return ir.shape_of(access.pointer.type)
    through = tt.DescriptorAccess.cast(op) or ttng.BulkCopy(op)
    return ir.shape_of(through.descriptor.type)


def _boundary_check(op: Operation) -> tuple[int, ...] | None:
    """The axes that an access through a block pointer checks; None for other accesses."""
    access = tt.Load.cast(op) or tt.Store.cast(op)
    return None if access is None else access.boundary_check


def _unchecked_axes(checked: tuple[int, ...], rank: int) -> str:
    missing = [axis for axis in range(rank) if axis not in checked]
    everything = ", ".join(str(axis) for axis in range(rank))
    comma = "," if rank == 1 else ""
    return (
        f"boundary_check leaves out {'axis' if len(missing) == 1 else 'axes'} "
        f"{', '.join(map(str, missing))}: pass boundary_check=({everything}{comma})"
    )


def _free_axis(op: Operation, mask: Value, lane: tuple[int, ...]) -> int | None:
    """The axis that the access leaves its tensor along and its mask ignores; None for none."""
    bounded = _varying_axes(mask, {})
    access = PointerAccess.cast(op)
    if access is None:
        return None
    moving = _varying_axes(access.pointer, {})
    # `lane` is the first bad element in row-major order. So elements before it along an axis were
    # good, if there are any: if its position along that axis is not 0.
    for axis, position in enumerate(lane):
        if position and moving[axis] and not bounded[axis]:
            return axis
    return None


def mask_axes(mask: Value) -> tuple[int, ...]:
    """Return the axes of the tile along which a mask may differ, as far as broadcasts tell."""
    return tuple(axis for axis, varies in enumerate(_varying_axes(mask, {})) if varies)


def _varies_by_program(mask: Value) -> bool:
    """Whether a mask may differ between programs or iterations of a loop."""
    seen, pending = {mask}, [mask]
    while pending:
        value = pending.pop()
        op = value.defining_op
        if op is None:
            if not _is_parameter(value):
                return True
        elif op.regions or tt.GetProgramId.matches(op) or len(seen) > _SEARCH_DEPTH:
            return True
        else:
            pending += [operand for operand in op.operands if operand not in seen]
            seen.update(op.operands)
    return False


def _is_parameter(value: Value) -> bool:
    block = value.owner
    outer = block.parent_op if isinstance(block, Block) else None
    return outer is not None and tt.Func.matches(outer)


def _varying_axes(value: Value, known: dict[Value, list[bool]], depth: int = 0) -> list[bool]:
    """Return for each axis whether a tile may vary along it, as far as broadcasts tell."""
    found = known.get(value)
    if found is None:
        found = known[value] = _find_varying_axes(value, known, depth)
    return found


def _find_varying_axes(value: Value, known: dict[Value, list[bool]], depth: int) -> list[bool]:
    shape = ir.shape_of(value.type)
    op = value.defining_op
    if tt.Splat.matches(op) or arith.Constant.matches(op):
        return [False] * len(shape)
    unknown = [extent > 1 for extent in shape]
    if op is None or op.regions or depth > _SEARCH_DEPTH:
        return unknown
    sources = [v for v in op.operands if ir.shape_of(v.type)]
    if not sources or len(ir.shape_of(sources[0].type)) != len(shape):
        return unknown
    if tt.Broadcast.matches(op):
        inner = _varying_axes(sources[0], known, depth + 1)
        narrow = ir.shape_of(sources[0].type)
        return [v and n == e for v, n, e in zip(inner, narrow, shape, strict=True)]
    if tt.Load.matches(op) or any(ir.shape_of(v.type) != shape for v in sources):
        return unknown
    each = [_varying_axes(source, known, depth + 1) for source in sources]
    return [any(axis) for axis in zip(*each, strict=True)]


def stride_hint(
    op: Operation, accessed: AccessedTensor, arguments: Mapping[str, object]
) -> str | None:
    """The hint on strides, such as "sbk=1 is b.stride(1), sbn=48 is b.stride(0)", or None.

    Args:
        op: the access.
        accessed: the tensor that it left.
        arguments: the arguments of the launch, by name.
    """
    if accessed.name is None or len(accessed.shape) < 2:
        return None
    kernel = _kernel(op.location.frames[0])
    if kernel is None:
        return None
    strides = accessed.strides
    axes: list[int] = []
    facts: list[str] = []
    is_odd = False
    line = op.location.frames[0].line
    factors = list(_factors(kernel, accessed.name, line)) or _factors(kernel, accessed.name)
    for factor in dict.fromkeys(factors):
        value = arguments.get(factor)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value in strides:
            axes.append(strides.index(value))
            facts.append(f"{factor}={value} is {accessed.name}.stride({axes[-1]})")
        elif "stride" in factor.lower():
            is_odd = True
            facts.append(f"{factor}={value} is none of {accessed.name}'s strides {strides}")
    return ", ".join(facts) if is_odd or axes != sorted(axes) else None


def _kernel(place: Frame) -> ast.FunctionDef | None:
    """The definition of a frame's function: the innermost of its name around the line, or None."""
    found = None
    for node in _functions("".join(source_lines(place.file))):
        if node.name == place.function:
            if node.lineno <= place.line <= (node.end_lineno or node.lineno):
                found = node
    return found


@lru_cache(maxsize=4)
def _functions(source: str) -> tuple[ast.FunctionDef, ...]:
    # A launch may have many faults in one file.
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _factors(kernel: ast.FunctionDef, tensor: str, line: int | None = None) -> Iterator[str]:
    """The names that indices are multiplied by in sums that begin with `tensor`, in order.

    Only the statement at `line` counts, if one is given.
    """
    pointers = {tensor}
    places = [
        node for node in ast.walk(kernel) if isinstance(node, ast.Assign | ast.AugAssign | ast.Call)
    ]
    places.sort(key=lambda node: (node.lineno, node.col_offset))
    for node in places:
        if line is not None and not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        for value in node.args if isinstance(node, ast.Call) else [node.value]:
            terms = list(_terms(value))
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign):
                terms.append(node.target)
            if not any(isinstance(term, ast.Name) and term.id in pointers for term in terms):
                continue
            pointers.update(target.id for target in targets if isinstance(target, ast.Name))
            for term in terms:
                yield from _names_of_product(term)
                if isinstance(term, ast.Name) and term.id not in pointers:
                    for part in _offset(places, term.id, node.lineno):
                        yield from _names_of_product(part)


def _offset(places: Sequence[ast.stmt | ast.expr], name: str, line: int) -> Iterator[ast.expr]:
    """Yield the terms of the last sum assigned to a name before `line`; none for other values."""
    given = [
        node.value
        for node in places
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    if given and isinstance(given[-1], ast.BinOp) and isinstance(given[-1].op, ast.Add):
        yield from _terms(given[-1])


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        yield from _terms(value.left)
        yield from _terms(value.right)
    else:
        yield value


def _names_of_product(term: ast.expr) -> Iterator[str]:
    if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
        for factor in (term.left, term.right):
            if isinstance(factor, ast.Name):
                yield factor.id
            else:
                yield from _names_of_product(factor)


# The distance around an op's line in which its statement is looked for.
_STATEMENT_LINES = 12
# Positions of masks that are passed without their name, by the last name of the call.
_MASK_POSITIONS = {"load": 1, "store": 2}
_ATOMIC_MASK_POSITION = 2
_BROADCASTS = names_of(tt.Broadcast, tt.ExpandDims, tt.Splat)


def call_name(op: Operation) -> str:
    """The name of `op` in the source: "tl.atomic_add" rather than "tt.atomic_rmw"."""
    found = _call(op)
    if found is not None:
        return ast.unparse(found[0].func)
    return op.name.replace("tt.", "tl.")


def mask_argument(op: Operation) -> str | None:
    """The text of the mask in the call of `op`, or None if the call has none."""
    found = _call(op)
    if found is None:
        return None
    call, text = found
    for keyword in call.keywords:
        if keyword.arg == "mask":
            return ast.get_source_segment(text, keyword.value)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    place = _ATOMIC_MASK_POSITION if name.startswith("atomic_") else _MASK_POSITIONS.get(name)
    if place is None or name == "atomic_cas" or len(call.args) <= place:
        return None
    return ast.get_source_segment(text, call.args[place])


def mask_text(op: Operation, mask: Value) -> str | None:
    """The text of a mask: the argument's, or that of the value assigned to its name; or None."""
    found = mask_argument(op)
    if found is not None and not found.isidentifier():
        return found
    defined = traced(mask, _BROADCASTS).defining_op
    if defined is not None:
        place = defined.location.primary
        for statement, text, _, _ in _statements(place.file, place.line):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                if found is None or statement.targets[0].id == found:
                    return ast.get_source_segment(text, statement.value)
    return found or mask.name


def _call(op: Operation) -> tuple[ast.Call, str] | None:
    """The call at an op's line and column, with the text it was parsed from; None if not found."""
    place = op.location.primary
    for statement, text, first, indent in _statements(place.file, place.line):
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or first + node.lineno - 1 != place.line:
                continue
            # The outer call of `tl.load(…).to(…)` begins at the same place as the inner one.
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
                continue
            row = text.splitlines()[node.lineno - 1].encode()
            if len(row[: node.col_offset].decode()) + indent + 1 == place.column:
                return node, text
    return None


def _statements(file: str, line: int) -> Iterator[tuple[ast.stmt, str, int, int]]:
    """Yield the statement that covers a line, if it parses: with text, first line and indent."""
    for first in range(line, max(0, line - _STATEMENT_LINES), -1):
        text = ""
        for last in range(first, first + _STATEMENT_LINES):
            text += source_line(file, last)
            if last < line:
                continue
            dedented = textwrap.dedent(text)
            try:
                parsed = ast.parse(dedented)
            except SyntaxError:
                continue
            if parsed.body:
                begin = source_line(file, first)
                yield parsed.body[-1], dedented, first, len(begin) - len(begin.lstrip())
                return
