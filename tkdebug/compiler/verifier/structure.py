"""Checks that a module obeys SSA, its structure and the op table.

Stops at the first broken rule with an IRError that names the op, its source line and, as a note,
its printed form. The checks of one op's own meaning are on its class.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dialects.op import Op
from tkdebug.compiler.dialects.table import ISOLATED, OPS, is_terminator
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.location import FusedLocation, SourceLocation
from tkdebug.compiler.ir.printer import print_operation
from tkdebug.compiler.ir.types import Type
from tkdebug.compiler.verifier.declarations import broken_declaration
from tkdebug.compiler.verifier.layouts import check_layouts
from tkdebug.errors import IRError

# How much of an op's printed form an error carries.
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
    """The types that the terminator of `region` must have, None where any will do."""
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
    """The bounds and the step of a loop are of one type."""
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
    """Whether the types are the same; where their elements lie is checked by `layouts`."""
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
