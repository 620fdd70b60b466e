"""The binding of each Python name at each line of a kernel, noted beside the module.

Made for debuggers, when one asks for it: the marks are no ops, and a compile without a recorder
notes nothing. A mark is a place between two ops of a block. There can be several marks before one
op, as a line may need no op at all.

Invariant: when the marks are handed out, each is in a block of the module, and each value it names
is defined there or around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.dialects.interfaces import StatementRegions
from tkdebug.compiler.frontend.scope import stored_names
from tkdebug.compiler.frontend.values import flatten, rebuild
from tkdebug.compiler.ir import Block, Module, Operation, SourceLocation, Value
from tkdebug.compiler.tensor import tensor

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.scope import Binding
    from tkdebug.compiler.frontend.visitor import Visitor


class MarkKind(Enum):
    """The event at a mark."""

    # A statement begins, or a loop's header is met again.
    LINE = auto()
    # A function has computed its result.
    RETURN = auto()
    # `breakpoint()` was called.
    BREAK = auto()
    # Control is back in a statement that has begun, or in a loop's header: no line begins.
    SCOPE = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """A function in a kernel: the kernel itself, or one call of a function that was inlined.

    Attributes:
        function: the function's name.
        caller: the activation that contains the call; None for the kernel.
        call: the place of the call; None for the kernel.
        depth: 0 for the kernel.
    """

    function: str
    file: str
    first_line: int
    caller: Activation | None
    call: SourceLocation | None
    depth: int

    @property
    def chain(self) -> tuple[Activation, ...]:
        """The functions that are active, this one first and the kernel last."""
        return (self,) if self.caller is None else (self, *self.caller.chain)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A place between ops, with the bindings of its function's names.

    Attributes:
        location: the location of the statement.
        names: a front end's value for each name: `tensor`, `tensor_descriptor`, `block_pointer`,
            a tuple of such, or a plain Python object, which is a constant.
        missing: why a name has no value here, as the end of "`x` is not defined here: …".
        value: the returned value of a RETURN.
        around: the mark in the caller at which the function was called; None in the kernel.
        block: the block that it is in, before the op at `index`.
    """

    kind: MarkKind
    location: SourceLocation
    activation: Activation
    names: Mapping[str, Any]
    missing: Mapping[str, str]
    value: Any
    around: Mark | None
    block: Block
    index: int


class _NoValue:
    """Stands for a variable that is not carried through a loop, and has no value in its body."""


@dataclass(slots=True)
class _Call:
    visitor: Visitor
    activation: Activation
    last: Mark | None = None
    # Names that a loop's body binds, and why they have no value before it does.
    later: dict[str, str] = field(default_factory=dict)


@dataclass
class VariableRecorder:
    """Notes marks while a kernel is compiled; `finished` returns those in the module."""

    _marks: list[Mark] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _replaced: dict[Value, Value | None] = field(default_factory=dict)
    _expressions: dict[Value, ast.expr] = field(default_factory=dict)

    def enter(self, visitor: Visitor) -> None:
        """Begin the activation of a function, as its body begins."""
        caller = self._calls[-1].activation if self._calls else None
        source = visitor.source
        self._calls.append(
            _Call(
                visitor,
                Activation(
                    source.name,
                    source.file,
                    source.definition.lineno,
                    caller,
                    visitor.caller,
                    len(self._calls),
                ),
            )
        )

    def leave(self) -> None:
        """End the function that was entered last; its caller's statement goes on."""
        self._calls.pop()
        if self._calls:
            call = self._calls[-1]
            if call.last is not None:
                self._add(MarkKind.SCOPE, call.visitor, call.last.location)

    def statement(self, visitor: Visitor, node: ast.stmt) -> None:
        """Mark the beginning of a statement, unless Python runs nothing for it, as a docstring."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
                return
        self._add(MarkKind.LINE, visitor, visitor.locate(node))

    def expression(self, node: ast.expr, value: Any) -> None:
        """Note the value of an expression; of several with one value the innermost is kept."""
        if isinstance(value, tensor) and not isinstance(node, ast.Name):
            self._expressions.setdefault(value.value, node)

    def next_round(self, visitor: Visitor, node: ast.stmt) -> None:
        """Mark that control is at a loop's header again, after its body."""
        self._add(MarkKind.LINE, visitor, visitor.locate(node))

    def round_begins(self, visitor: Visitor, node: ast.For | ast.While) -> None:
        """Mark that the next ops belong to a loop's header, before any statement of its body."""
        for name in stored_names(node.body):
            self._calls[-1].later[name] = (
                f"the loop at line {visitor.locate(node).line} binds it, later in its body"
            )
        self._add(MarkKind.SCOPE, visitor, visitor.locate(node))

    def branch_ends(self, visitor: Visitor, node: ast.stmt) -> None:
        """Mark that a branch of a run-time `if` has ended with the statement `node`."""
        self._add(MarkKind.SCOPE, visitor, visitor.locate(node))

    def returns(self, visitor: Visitor, node: ast.stmt, value: Any) -> None:
        """Mark that a function returns `value`."""
        self._add(MarkKind.RETURN, visitor, visitor.locate(node), value)

    def breaks(self, visitor: Visitor) -> None:
        """Mark a call of `breakpoint()`."""
        location = visitor.builder.location
        assert location is not None, "a call needs a location"
        self._add(MarkKind.BREAK, visitor, location.primary)

    def replaced(self, argument: Value, value: Value | None) -> None:
        """Note that `value` replaces a removed region argument; None if no value does."""
        self._replaced[argument] = value

    def _add(
        self, kind: MarkKind, visitor: Visitor, location: SourceLocation, value: Any = None
    ) -> None:
        call = self._calls[-1]
        around = self._calls[-2].last if len(self._calls) > 1 else None
        scope, block = visitor.scope, visitor.builder.block
        missing = {name: why for name, why in call.later.items() if name not in scope.names}
        call.last = Mark(
            kind,
            location,
            call.activation,
            dict(scope.names),
            {**missing, **scope.missing},
            value,
            around,
            block,
            len(block.operations),
        )
        self._marks.append(call.last)

    def finished(self, module: Module) -> Variables:
        """The marks that are in `module`, with their names' values.

        Loops and branches are compiled several times; a discarded compile has no marks.
        """
        blocks = set(_statement_blocks(module.function))
        known: dict[Mark, Mark] = {}
        for mark in self._marks:
            if mark.block in blocks:
                known[mark] = self._settled(mark, known)
        return Variables(list(known.values()), self._expressions)

    def _settled(self, mark: Mark, known: Mapping[Mark, Mark]) -> Mark:
        bindings: Mapping[str, Binding] = mark.names
        names, missing = {}, dict(mark.missing)
        for name, binding in bindings.items():
            value = self._present(binding.value)
            if value is _NoValue:
                missing[name] = (
                    f"it is bound at line {binding.line}, and has no value at the end of the "
                    "loop's body that every path gives it"
                )
            else:
                names[name] = value
        value = self._present(mark.value)
        around = mark.around
        return Mark(
            mark.kind,
            mark.location,
            mark.activation,
            names,
            missing,
            None if value is _NoValue else value,
            None if around is None else known.get(around),
            mark.block,
            mark.index,
        )

    def _present(self, value: Any) -> Any:
        """`value` with the replacements of removed region arguments."""
        leaves = flatten(value)
        if not any(leaf in self._replaced for leaf in leaves):
            return value
        found: list[Value] = []
        for leaf in leaves:
            present: Value | None = leaf
            while present is not None and present in self._replaced:
                present = self._replaced[present]
            if present is None:
                return _NoValue
            found.append(present)
        return rebuild(value, iter(found))


def _statement_blocks(op: Operation) -> Iterator[Block]:
    # Ops of other regions combine elements, and do not run once for each program as statements do.
    if not StatementRegions.matches(op):
        return
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.operations:
                if inner.regions:
                    yield from _statement_blocks(inner)


class Variables:
    """The marks of a module, by the op that they come before.

    Attributes:
        marks: all, in the order in which they were compiled.
        before: the marks before each op, in order.
        expressions: the expression that has each value, the innermost one.
    """

    def __init__(
        self, marks: Sequence[Mark], expressions: Mapping[Value, ast.expr] | None = None
    ) -> None:
        self.marks = tuple(marks)
        self.expressions = expressions or {}
        before: dict[Operation, list[Mark]] = {}
        for mark in marks:
            before.setdefault(mark.block.operations[mark.index], []).append(mark)
        self.before: dict[Operation, tuple[Mark, ...]] = {
            op: tuple(found) for op, found in before.items()
        }

    @classmethod
    def placed(
        cls, marks: Sequence[Mark], before: Mapping[Operation, tuple[Mark, ...]]
    ) -> Variables:
        """Make a `Variables` of marks whose places among the ops are already known."""
        made = cls(())
        made.marks, made.before = tuple(marks), dict(before)
        return made

    def at(self, op: Operation) -> Mark | None:
        """The last mark before `op`, in its block or those around it; None if there is none."""
        place: Operation | None = op
        while place is not None and place.block is not None:
            operations = place.block.operations
            for index in range(operations.index(place), -1, -1):
                found = self.before.get(operations[index])
                if found:
                    return found[-1]
            place = place.block.parent_op
        return None

    def values(self, marks: Iterable[Mark]) -> set[Value]:
        """The IR values that the names of `marks`, and of their callers, are bound to."""
        found: set[Value] = set()
        for mark in marks:
            at: Mark | None = mark
            while at is not None:
                for value in (*at.names.values(), at.value):
                    found.update(flatten(value))
                at = at.around
        return found
