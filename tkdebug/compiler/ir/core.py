"""Operations, values, blocks and regions in SSA form.

Invariants: every operation has an id unique in its module and a location; every value knows its
owner and its uses; an operation is in at most one block. The meaning of ops is in their classes
(`tkdebug.compiler.dialects`), not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, Union

from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.types import PointerType, ScalarType, Type
from tkdebug.compiler.layouts.linear import LinearLayout

Attribute = Union[
    None, bool, int, float, str, ScalarType, PointerType, LinearLayout, "tuple[Attribute, ...]"
]
_T = TypeVar("_T")


class Value:
    """An SSA value: the result of an operation or the argument of a block.

    Attributes:
        name: the Python variable it was bound to, if any.
        uses: the operations that use it, with how many operands each.
    """

    __slots__ = ("index", "name", "owner", "type", "uses")

    def __init__(self, type_: Type, owner: Operation | Block, index: int) -> None:
        self.type = type_
        self.owner = owner
        self.index = index
        self.name: str | None = None
        self.uses: dict[Operation, int] = {}

    @property
    def defining_op(self) -> Operation | None:
        """The operation whose result this is; None for a block argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    @property
    def parent_block(self) -> Block | None:
        """The block in which this is defined; None if its operation is in none."""
        return self.owner.block if isinstance(self.owner, Operation) else self.owner

    def replace_all_uses_with(self, other: Value) -> None:
        """Make every user use `other`; the variable name moves along if `other` has none."""
        for user in list(self.uses):
            user.replace_operand(self, other)
        if other.name is None:
            other.name = self.name

    def __repr__(self) -> str:
        return f"<Value {self.name or '?'}: {self.type}>"


class Operation:
    """One operation: name, operands, attributes, regions, results, id and location."""

    __slots__ = ("_operands", "attributes", "block", "id", "location", "name", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        attributes: Mapping[str, Attribute],
        regions: Sequence[Region],
        location: Location,
        id_: int,
    ) -> None:
        self.name = name
        self.id = id_
        self.location = location
        self.attributes = dict(attributes)
        self.block: Block | None = None
        self._operands = tuple(operands)
        for value in self._operands:
            value.uses[self] = value.uses.get(self, 0) + 1
        self.results = tuple([Value(type_, self, i) for i, type_ in enumerate(result_types)])
        self.regions = tuple(regions)
        for region in self.regions:
            region.parent = self

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values used, in order; assigning keeps the use lists true."""
        return self._operands

    @operands.setter
    def operands(self, operands: Sequence[Value]) -> None:
        for value in self._operands:
            count = value.uses[self] - 1
            if count:
                value.uses[self] = count
            else:
                del value.uses[self]
        self._operands = tuple(operands)
        for value in self._operands:
            value.uses[self] = value.uses.get(self, 0) + 1

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.name} has {len(self.results)} results"
        return self.results[0]

    def replace_operand(self, old: Value, new: Value) -> None:
        """Use `new` wherever `old` was an operand of this operation."""
        self.operands = tuple(new if value is old else value for value in self._operands)

    def walk(self) -> Sequence[Operation]:
        """This operation and every one inside its regions, in program order, as they are now."""
        if not self.regions:
            return (self,)
        found = [self]
        for region in self.regions:
            for block in region.blocks:
                for op in block.operations:
                    if op.regions:
                        found += op.walk()
                    else:
                        found.append(op)
        return found

    def ancestors(self) -> Iterator[Operation]:
        """Yield the operations whose regions hold this one, the innermost first."""
        return iter(()) if self.block is None else self.block.ancestors()

    def erase(self) -> None:
        """Take the operation out of its block and drop its uses; its results must be unused."""
        assert not any(result.uses for result in self.results), f"{self.name} still used"
        if self.block is not None:
            self.block.operations.remove(self)
            self.block = None
        for inner in list(self.walk()):
            inner.operands = ()

    def __repr__(self) -> str:
        return f"<{self.name} #{self.id}>"


class Block:
    """A list of operations with arguments; the last operation may be a terminator."""

    __slots__ = ("arguments", "operations", "region")

    def __init__(self, argument_types: Sequence[Type] = ()) -> None:
        self.arguments = [Value(type_, self, i) for i, type_ in enumerate(argument_types)]
        self.operations: list[Operation] = []
        self.region: Region | None = None

    def add_argument(self, type_: Type) -> Value:
        """Append an argument."""
        value = Value(type_, self, len(self.arguments))
        self.arguments.append(value)
        return value

    def append(self, op: Operation) -> None:
        """Put `op` at the end."""
        self.insert(len(self.operations), op)

    def insert(self, index: int, op: Operation) -> None:
        """Put `op` before the operation now at `index`."""
        assert op.block is None, f"{op.name} is already in a block"
        op.block = self
        self.operations.insert(index, op)

    @property
    def terminator(self) -> Operation:
        """The last operation."""
        return self.operations[-1]

    @property
    def parent_op(self) -> Operation | None:
        """The operation whose region holds this block; None for a block in no region."""
        return self.region.parent if self.region is not None else None

    def ancestors(self) -> Iterator[Operation]:
        """Yield the operations whose regions hold this block, the innermost first."""
        block: Block | None = self
        while block is not None and (parent := block.parent_op) is not None:
            yield parent
            block = parent.block


class Region:
    """A list of blocks; structured control flow uses exactly one."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks = list(blocks)
        self.parent: Operation | None = None
        for block in self.blocks:
            block.region = self

    @property
    def block(self) -> Block:
        """The only block."""
        assert len(self.blocks) == 1, f"region has {len(self.blocks)} blocks"
        return self.blocks[0]


class Follower(Protocol):
    """Notified of replaced values while passes change a module; `Module.follower`."""

    def replaced(self, old: Value, new: Value) -> None:
        """Note that `new` replaces `old`."""
        ...

    def copied(self, op: Operation, copy: Operation, known: Mapping[Value, Value]) -> None:
        """Note that `copy` is a clone of `op`, with its operands replaced as `known` maps them.

        The cloning goes on and adds to `known`.
        """
        ...


class Module:
    """A compiled unit: one `tt.func` whose block arguments are the kernel's parameters.

    Attributes:
        name: the kernel's name.
        body: the block that holds the `tt.func`.
        derived: results computed from a module that no longer changes, each under a key of
            its own. They are kept here so that they die together with the module.
        follower: notified of replaced values while passes run; None for nobody.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.body = Block()
        self.derived: dict[object, object] = {}
        self.follower: Follower | None = None
        self._next_id = 1

    def new_id(self) -> int:
        """An operation id never given out before in this module."""
        id_ = self._next_id
        self._next_id += 1
        return id_

    @property
    def next_id(self) -> int:
        """The id that `new_id` gives out next."""
        return self._next_id

    def reserve_ids(self, above: int) -> None:
        """Give out only ids greater than `above` from now on (used by the parser)."""
        self._next_id = max(self._next_id, above + 1)

    @property
    def function(self) -> Operation:
        """The `tt.func`."""
        return self.body.operations[0]

    def walk(self) -> Sequence[Operation]:
        """Every operation, in program order, as they are now."""
        return [inner for op in self.body.operations for inner in op.walk()]


def fact_of(module: Module, kind: type[_T], make: Callable[[Module], _T]) -> _T:
    """Return the fact of class `kind` about a module; `make` computes it on the first request."""
    found = module.derived.get(kind)
    if found is None:
        found = module.derived[kind] = make(module)
    assert isinstance(found, kind)
    return found
