"""A kernel in fp64: every float of its Tile IR as f64, except on one source line.

The kernel's result in fp64 shows whether its formula is right; with the ops of one line in their
own types again, it shows how much that line loses by itself. Ops stay the same: only their types
change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import stored
from tkdebug.compiler.ir import DescriptorType, Module, Operation, PointerType, TensorType, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.rewriting.rewriter import Rewriter

# Of these the result is part of an operand, or memory: nothing is rounded.
_EXACT = CONTROL_FLOW | names_of(
    *(tt.Func, tt.Return, tt.Load, tt.DescriptorLoad, tt.Rearrangement, tt.Splat, tt.Broadcast),
    *(tt.ExpandDims, tt.Trans, tt.Reshape, tt.Join, tt.Split, tt.Cat, arith.Constant),
    *(arith.Select, arith.CmpF, arith.ExtF),
)
Place = tuple[str, int]


class NotLiftableError(Exception):
    """A kernel does something with floats that means nothing in fp64."""


def lift(module: Module, line: Place | None = None) -> None:
    """Make a kernel compute in fp64.

    Args:
        module: Tile IR, of which nothing was derived; changed in place.
        line: the place whose ops keep their own types; None for no line.

    Raises:
        NotLiftableError: bits of floats are looked at, or types are narrower than f16.
    """
    ops = module.walk()
    for op in ops:
        if tt.Bitcast.matches(op) or tt.ElementwiseInlineAsm.matches(op):
            if any(_is_float(v.type) for v in (*op.operands, *op.results)):
                raise NotLiftableError(f"{op.name} looks at the bits of floats")
    kept = [op for op in ops if line is not None and _rounds(op) and _place(op) == line]
    inside = {value for op in kept for inner in op.walk()[1:] for value in inner.results}
    inside |= {
        value
        for op in kept
        for region in op.regions
        for block in region.blocks
        for value in block.arguments
    }
    own = {
        op: ([value.type for value in op.operands], [value.type for value in op.results])
        for op in kept
    }
    for value in _values(ops):
        if value not in inside:
            value.type = _lifted(value.type)
    for op in ops:
        if arith.Constant.matches(op):
            _as_written(op)
    rewriter = Rewriter(module, "fp64")
    for op in kept:
        _keep(op, *own[op], rewriter)
    rewriter.commit()


def widen_floats(module: Module) -> None:
    """Give every float of a kernel the type f64, also where ops mean nothing in it.

    Args:
        module: Tile IR, of which nothing was derived; changed in place. Callers must not run its
            ops that look at the bits of floats.
    """
    ops = module.walk()
    for value in _values(ops):
        value.type = _lifted(value.type, least_bits=0)
    for op in ops:
        if arith.Constant.matches(op):
            _as_written(op)


def rounding_lines(module: Module) -> list[Place]:
    """Return the places whose ops round floats, in program order."""
    return list(dict.fromkeys(_place(op) for op in module.walk() if _rounds(op)))


def _rounds(op: Operation) -> bool:
    if op.name in _EXACT:
        return False
    if tt.Store.matches(op) or tt.DescriptorStore.matches(op):
        return _is_float(stored(op).type)
    return any(_is_float(value.type) for value in op.results)


def _place(op: Operation) -> Place:
    frame = op.location.frames[0] if op.location.frames else None
    return ("", 0) if frame is None else (frame.file, frame.line)


def _values(ops: Iterable[Operation]) -> Iterator[Value]:
    for op in ops:
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.arguments


def _is_float(type_: ir.Type) -> bool:
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.is_float


def _lifted(type_: ir.Type, least_bits: int = 16) -> ir.Type:
    if isinstance(type_, ir.TokenType):
        return type_
    if isinstance(type_, DescriptorType):
        block = _lifted(type_.block, least_bits)
        assert isinstance(block, TensorType)
        return DescriptorType(block)
    element = ir.element_of(type_)
    lifted = _lifted_element(element, least_bits)
    return type_ if lifted is element else ir.with_element(type_, lifted)


def _lifted_element(
    element: ir.ScalarType | PointerType, least_bits: int
) -> ir.ScalarType | PointerType:
    if isinstance(element, PointerType):
        pointee = _lifted_element(element.pointee, least_bits)
        return element if pointee is element.pointee else PointerType(pointee)
    if not element.is_float:
        return element
    if element.bits < least_bits:
        raise NotLiftableError(f"{element} is narrower than f16")
    return ir.F64


def _as_written(op: Operation) -> None:
    """Set a constant of fp32 to its shortest decimal, as the source has it."""
    value = op.attributes.get("value")
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        op.attributes["value"] = shortest_decimal(value)


def shortest_decimal(value: float) -> float:
    """Return the shortest decimal that rounds to the same fp32; `value` if it is no fp32."""
    if struct.unpack("f", struct.pack("f", value))[0] != value:
        return value
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.unpack("f", struct.pack("f", short))[0] == value:
            return short
    return value


def _keep(op: Operation, given: list[ir.Type], made: list[ir.Type], rewriter: Rewriter) -> None:
    """Restore an op's own types, with conversions before its operands and after its results."""

    def converted(value: Value, type_: ir.Type, anchor: Operation) -> Value:
        narrows = ir.element_of(type_) is not ir.F64
        name = arith.TruncF if narrows else arith.ExtF
        new = rewriter.build_before(anchor, name, [value], [type_], location=op.location)
        return new.result

    def as_given(value: Value, type_: ir.Type) -> Value:
        is_lifted = _is_float(value.type) and type_ != value.type
        return converted(value, type_, op) if is_lifted else value

    op.operands = tuple(map(as_given, op.operands, given))
    if not op.results:
        # A store: what it stores is rounded, and is in fp64 in memory.
        wide = (_lifted(value.type) for value in op.operands)
        op.operands = tuple(map(as_given, op.operands, wide))
        return
    assert op.block is not None
    operations = op.block.operations
    after = operations[operations.index(op) + 1]
    for result, type_ in zip(op.results, made, strict=True):
        if _is_float(result.type) and type_ != result.type:
            lifted, users = result.type, list(result.uses)
            result.type = type_
            new = converted(result, lifted, after)
            for user in users:
                user.replace_operand(result, new)
