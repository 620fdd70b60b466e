"""The view class of every op: it names what the op has, and the verifier refuses anything else."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import pytest

from tkdebug.compiler.dialects import arith, scf, tt, ttg
from tkdebug.compiler.dialects.interfaces import DotLike, MaskedAccess
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Operation, SourceLocation, Type, Value
from tkdebug.compiler.ir import op_view as views
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import Kind, OpView
from tkdebug.compiler.layouts import LinearLayout
from tkdebug.compiler.verifier import broken_declaration

BUFFER_LAYOUT = LinearLayout.of({"offset": [[1], [2], [4]]}, {"dim0": 8})
TYPES: tuple[Type, ...] = (
    ir.I1,
    ir.I32,
    ir.F32,
    ir.PointerType(ir.F32),
    ir.TensorType((8,), ir.I32),
    ir.DescriptorType(ir.TensorType((8,), ir.F32)),
    ir.MemDescType((8,), ir.F32, BUFFER_LAYOUT, mutable=True),
    ir.TOKEN,
)
ATTRIBUTES: tuple[Attribute, ...] = (True, 1, 1.5, "text", (1,), (True,), ("text",), BUFFER_LAYOUT)
VIEWS = pytest.mark.parametrize("view", list(OPS.values()), ids=list(OPS))


def type_of(kind: Kind) -> Type:
    return next(type_ for type_ in TYPES if kind.holds(type_))


def made(
    view: type[OpView],
    operands: Sequence[Type],
    results: Sequence[Type],
    attributes: dict[str, Attribute],
) -> Operation:
    values = [Value(type_, Block(), 0) for type_ in operands]
    return Operation(view.name, values, results, attributes, (), SourceLocation("k", 1, 0, "k"), 1)


def shapes_of(view: type[OpView]) -> tuple[list[Type], list[Type], dict[str, Attribute]]:
    """Operand types, result types and attributes of the smallest op that fits."""
    declared = view.declaration
    attributes = {
        attribute.key: next(value for value in ATTRIBUTES if attribute.holds(value))
        for attribute in declared.attributes
        if attribute.is_required
    }
    operands = [type_of(operand.kind) for operand in declared.operands]
    return operands, [type_of(result.kind) for result in declared.results], attributes


@VIEWS
def test_op_that_fits_its_declaration_is_taken(view: type[OpView]) -> None:
    assert broken_declaration(made(view, *shapes_of(view)), view) is None


@VIEWS
def test_wrong_counts_are_refused(view: type[OpView]) -> None:
    operands, results, attributes = shapes_of(view)
    declared = view.declaration
    too_many = len(declared.optional) + 1
    if operands:
        fewer = broken_declaration(made(view, operands[:-1], results, attributes), view)
        assert f"got {len(operands) - 1} operands" in str(fewer)
    if not declared.variadic:
        more = broken_declaration(
            made(view, [*operands, *[ir.I32] * too_many], results, attributes), view
        )
        assert f"got {len(operands) + too_many} operands" in str(more)
    elif len(declared.variadic) > 1:
        uneven = made(view, [*operands, ir.I32], results, attributes)
        assert "equal groups" in str(broken_declaration(uneven, view))
    if not declared.variadic_results:
        second = broken_declaration(made(view, operands, [*results, ir.I32], attributes), view)
        assert f"got {len(results) + 1} results" in str(second)


@VIEWS
def test_wrong_types_are_refused_by_name(view: type[OpView]) -> None:
    operands, results, attributes = shapes_of(view)
    for index, operand in enumerate(view.declaration.operands):
        for wrong in (type_ for type_ in TYPES if not operand.kind.holds(type_)):
            given = [*operands[:index], wrong, *operands[index + 1 :]]
            message = broken_declaration(made(view, given, results, attributes), view)
            assert message == f"{operand.name}: got {wrong}, expected {operand.kind.text}"
    for group in view.declaration.variadic:
        groups = len(view.declaration.variadic)
        for wrong in (type_ for type_ in TYPES if not group.kind.holds(type_)):
            given = [*operands, *[wrong] * groups]
            message = broken_declaration(made(view, given, results, attributes), view)
            assert f"[0]: got {wrong}, expected {group.kind.text}" in str(message)


@VIEWS
def test_wrong_attributes_are_refused_by_name(view: type[OpView]) -> None:
    operands, results, attributes = shapes_of(view)
    for attribute in view.declaration.attributes:
        for wrong in (value for value in ATTRIBUTES if not attribute.holds(value)):
            given = {**attributes, attribute.key: wrong}
            message = str(broken_declaration(made(view, operands, results, given), view))
            assert message.startswith(f"attribute {attribute.key} is ")
        if attribute.is_required:
            rest = {key: value for key, value in attributes.items() if key != attribute.key}
            message = str(broken_declaration(made(view, operands, results, rest), view))
            assert message == f"attribute {attribute.key} is missing"


@VIEWS
def test_declared_names_are_unique(view: type[OpView]) -> None:
    declared = view.declaration
    places = (
        *declared.operands,
        *declared.optional,
        *declared.variadic,
        *declared.results,
        *declared.variadic_results,
    )
    names = [place.name for place in places]
    keys = [attribute.key for attribute in declared.attributes]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)


@VIEWS
def test_class_is_found_by_the_name_of_its_dialect(view: type[OpView]) -> None:
    dialect = importlib.import_module(f"tkdebug.compiler.dialects.{view.name.split('.')[0]}")
    assert getattr(dialect, view.__name__) is view
    assert view.names == {view.name}


def test_every_view_class_is_in_the_op_table() -> None:
    assert OpView.names == set(OPS)


def test_optional_operands_are_there_from_the_left() -> None:
    pointer, mask, other = ir.PointerType(ir.F32), ir.I1, ir.F32
    bare = tt.Load(made(tt.Load, [pointer], [other], {}))
    masked = tt.Load(made(tt.Load, [pointer, mask], [other], {}))
    filled = tt.Load(made(tt.Load, [pointer, mask, other], [other], {}))
    assert bare.mask is None
    assert masked.mask is masked.op.operands[1]
    assert masked.other is None
    assert filled.other is filled.op.operands[2]


def test_optional_operand_is_there_where_its_attribute_holds() -> None:
    tile = ir.TensorType((8,), ir.I32)
    formats: dict[str, Attribute] = {"lhs_format": "e4m3", "rhs_format": "e4m3"}
    op = made(tt.DotScaled, [tile] * 4, [tile], {**formats, "rhs_scaled": True})
    assert tt.DotScaled(op).lhs_scale is None
    assert tt.DotScaled(op).rhs_scale is op.operands[3]
    both = made(
        tt.DotScaled, [tile] * 5, [tile], {**formats, "lhs_scaled": True, "rhs_scaled": True}
    )
    assert tt.DotScaled(both).lhs_scale is both.operands[3]
    assert tt.DotScaled(both).rhs_scale is both.operands[4]
    assert broken_declaration(op, tt.DotScaled) is None
    del op.attributes["rhs_scaled"]
    assert broken_declaration(op, tt.DotScaled) == "got 4 operands, expected 3"


def test_variadic_groups_are_of_equal_length() -> None:
    types: list[Type] = [ir.PointerType(ir.F32), ir.I32, ir.I32, ir.I64, ir.I64]
    view = tt.MakeTensorDescriptor(
        made(tt.MakeTensorDescriptor, types, [TYPES[5]], {"padding": "nan"})
    )
    assert view.shape == view.op.operands[1:3]
    assert view.strides == view.op.operands[3:]
    assert view.padding == "nan"


def test_shared_class_finds_the_mask_of_any_access() -> None:
    pointer, mask, value = ir.PointerType(ir.F32), ir.I1, ir.F32
    store = made(tt.Store, [pointer, value, mask], [], {})
    load = made(tt.Load, [pointer, mask], [value], {})
    found = [MaskedAccess(op).mask for op in (store, load)]
    assert found == [store.operands[2], load.operands[1]]
    assert MaskedAccess.cast(made(ttg.LocalLoad, [TYPES[6]], [value], {})) is None
    assert DotLike.names == {"tt.dot", "tt.dot_scaled", "ttg.local_dot", "ttng.warp_group_dot"}


def test_names_can_be_assigned_to() -> None:
    op = made(arith.AddI, [ir.I32, ir.I32], [ir.I32], {})
    other = Value(ir.I32, Block(), 0)
    arith.AddI(op).rhs = other
    assert op.operands[1] is other
    assert other.uses == {op: 1}
    loop = made(scf.For, [ir.I32] * 3, [], {})
    view = scf.For(loop)
    view.inits = (other,)
    view.pipelined = 2
    assert loop.operands[3:] == (other,)
    assert loop.attributes == {"pipelined": 2}
    view.pipelined = None
    assert loop.attributes == {}
    with pytest.raises(AttributeError):
        view.initial = ()  # type: ignore[attr-defined]


def test_view_of_another_op_is_refused() -> None:
    op = made(arith.AddI, [ir.I32, ir.I32], [ir.I32], {})
    with pytest.raises(AssertionError, match=r"got arith\.addi"):
        tt.Load(op)
    assert tt.Load.defining(op.result) is None
    assert arith.AddI.defining(op.result) is not None
    assert views.op_name(arith.AddI) == views.op_name("arith.addi")
