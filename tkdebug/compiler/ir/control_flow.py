"""Control flow of `scf.for`, `scf.while` and `scf.if`, and the values that its edges forward.

The shape of these ops is known here alone, as in MLIR's RegionBranchOpInterface. Control branches
at the op itself and at the terminator of each of its regions, and goes on at the beginning of a
region or after the op. An edge forwards the last operands of the branching op to the last arguments
of the region, or to the results; the operands before them decide where control goes.

Invariant: every branch of a junction goes to each of its targets, so that the values in one place
of it are one variable. An op that is no control flow has no edges: all its operands count as
deciding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir.core import Block, Operation, Region, Value

# The ops by name: their classes are in the dialects, which are built on this package.
FOR, WHILE, IF = "scf.for", "scf.while", "scf.if"
# A point of an op: one of its regions, or the op itself, which control enters and leaves.
_Points = tuple[int | None, ...]
_ITSELF = None
# Junctions: the points at which control branches, and those to which it goes from there.
_JUNCTIONS: Mapping[str, tuple[tuple[_Points, _Points], ...]] = {
    FOR: (((_ITSELF, 0), (0, _ITSELF)),),
    WHILE: (((_ITSELF, 1), (0,)), ((0,), (1, _ITSELF))),
    IF: (((_ITSELF,), (0, 1)), ((0, 1), (_ITSELF,))),
}
# The number of deciding operands, and of arguments that no edge forwards to: they come first.
_DECIDING = {FOR: 3, WHILE: 0, IF: 1, "scf.condition": 1, "scf.yield": 0}
_OWN_ARGUMENTS = {FOR: 1}
CONTROL_FLOW = frozenset(_JUNCTIONS)
# Ops at which control may branch: control flow, and terminators of its regions.
BRANCHES = frozenset(_DECIDING)


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of control flow, with the values that it forwards.

    Attributes:
        branch: the op at its entry, or the terminator that it leaves a region by.
        target: the region that it enters; None if it leaves the op.
        operands: the forwarded values.
        values: the values they become: arguments of the region, or results of the op.
    """

    branch: Operation
    target: Region | None
    operands: tuple[Value, ...]
    values: tuple[Value, ...]

    @property
    def is_back_edge(self) -> bool:
        """Whether control returns to a region that it left, or to one before it."""
        left = self.branch.block.region if self.branch.block is not None else None
        op = left.parent if left is not None else None
        if left is None or op is None or self.target not in op.regions:
            return False
        return op.regions.index(self.target) <= op.regions.index(left)


@dataclass(frozen=True, slots=True)
class TiedValues:
    """One variable at a junction; a phi.

    Attributes:
        values: region arguments and results that it is.
        entering: its value when the op is entered, if that is forwarded.
        yielded: the values that the regions forward to it.
    """

    values: tuple[Value, ...]
    entering: tuple[Value, ...]
    yielded: tuple[Value, ...]

    @property
    def sources(self) -> tuple[Value, ...]:
        """All values that it may come from."""
        return (*self.entering, *self.yielded)


@dataclass(frozen=True, slots=True)
class Junction:
    """Edges that forward the same variables: from each of the branches to each of the targets.

    Attributes:
        op: the op that has these edges.
        branches: the op itself or terminators of its regions.
        targets: its regions; None for its results.
    """

    op: Operation
    branches: tuple[Operation, ...]
    targets: tuple[Region | None, ...]

    def edges(self) -> Iterator[Edge]:
        """Every edge."""
        for branch in self.branches:
            yield from self.edges_of(branch)

    def edges_of(self, branch: Operation) -> Iterator[Edge]:
        """The edges from one of the branches."""
        operands = forwarded_operands(branch)
        for target in self.targets:
            yield Edge(branch, target, operands, self._values(target))

    def tied(self) -> list[TiedValues]:
        """The variables, in order."""
        values = zip(*(self._values(target) for target in self.targets), strict=True)
        return [self.tied_at(place, tied) for place, tied in enumerate(values)]

    def tied_at(self, place: int, values: Sequence[Value] | None = None) -> TiedValues:
        """The variable in one place; `values` are its values in the targets, if known."""
        if values is None:
            values = [self._values(target)[place] for target in self.targets]
        entering, yielded = list[Value](), list[Value]()
        for branch in self.branches:
            sources = entering if branch is self.op else yielded
            sources.append(forwarded_operands(branch)[place])
        return TiedValues(tuple(values), tuple(entering), tuple(yielded))

    def keep(self, places: Iterable[int]) -> None:
        """Forward only the values at these places. The op's results are left to the caller."""
        kept = list(places)
        for branch in self.branches:
            forwarded = forwarded_operands(branch)
            branch.operands = (*deciding(branch), *(forwarded[place] for place in kept))
        for target in self.targets:
            if target is not None:
                own = target.block.arguments[: _OWN_ARGUMENTS.get(self.op.name, 0)]
                values = self._values(target)
                set_arguments(target.block, [*own, *(values[place] for place in kept)])

    def _values(self, target: Region | None) -> tuple[Value, ...]:
        if target is None:
            return self.op.results
        return tuple(target.block.arguments[_OWN_ARGUMENTS.get(self.op.name, 0) :])


def junctions(op: Operation) -> tuple[Junction, ...]:
    """The junctions of an op, outermost first; none if it is no control flow."""
    return tuple(_junction(op, *points) for points in _JUNCTIONS.get(op.name, ()))


def edges(op: Operation) -> list[Edge]:
    """All edges of an op."""
    return [edge for junction in junctions(op) for edge in junction.edges()]


def edges_from(branch: Operation) -> list[Edge]:
    """The edges that control may take at an op: into it, or from a terminator."""
    if branch.name not in _DECIDING:
        return []
    op, point = branch, _ITSELF
    if op.name not in _JUNCTIONS:
        parent = branch.block.parent_op if branch.block is not None else None
        if parent is None or parent.name not in _JUNCTIONS:
            return []
        op, point = parent, _index(parent, branch.block)
    return [
        edge
        for branches, targets in _JUNCTIONS[op.name]
        if point in branches
        for edge in _junction(op, branches, targets).edges_of(branch)
    ]


def forwarded(branch: Operation) -> Iterator[tuple[Value, Value]]:
    """(operand, the value it becomes) for all that may be forwarded at an op."""
    for edge in edges_from(branch):
        yield from zip(edge.operands, edge.values, strict=True)


def tied_values(value: Value) -> TiedValues | None:
    """The variable whose argument or result this is, or None if nothing is forwarded to it."""
    owner = value.owner
    if isinstance(owner, Operation):
        op, point, place = owner, _ITSELF, value.index
    else:
        parent = owner.parent_op
        if parent is None or parent.name not in _JUNCTIONS:
            return None
        op, point = parent, _index(parent, owner)
        place = value.index - _OWN_ARGUMENTS.get(op.name, 0)
    if place < 0:
        return None
    for branches, targets in _JUNCTIONS.get(op.name, ()):
        if point in targets:
            return _junction(op, branches, targets).tied_at(place)
    return None


def incoming(value: Value) -> tuple[Value, ...]:
    """The values that may be forwarded to a region argument or a result."""
    tied = tied_values(value)
    return () if tied is None else tied.sources


def forwarded_operands(branch: Operation) -> tuple[Value, ...]:
    """The operands that are forwarded at an op with edges."""
    return branch.operands[_DECIDING[branch.name] :]


def deciding(op: Operation) -> tuple[Value, ...]:
    """The operands that no edge forwards: bounds and conditions; all operands of other ops."""
    return op.operands[: _DECIDING.get(op.name)]


@dataclass(frozen=True, slots=True)
class IterArg:
    """A value that an `scf.for` carries from one iteration to the next.

    Attributes:
        loop: the `scf.for`.
        index: its number among the carried values; its result has the same number.
    """

    loop: Operation
    index: int

    @property
    def initial(self) -> Value:
        """The value before the first iteration."""
        return forwarded_operands(self.loop)[self.index]

    @property
    def argument(self) -> Value:
        """The value at the beginning of an iteration."""
        return self.loop.regions[0].block.arguments[_OWN_ARGUMENTS[FOR] + self.index]

    @property
    def yielded(self) -> Value:
        """The value that an iteration hands to the next one."""
        return self.loop.regions[0].block.terminator.operands[self.index]

    @property
    def result(self) -> Value:
        """The value after the last iteration."""
        return self.loop.results[self.index]

    def begin_with(self, initial: Value) -> None:
        """Let the loop begin with another value."""
        place = _DECIDING[self.loop.name] + self.index
        operands = self.loop.operands
        self.loop.operands = (*operands[:place], initial, *operands[place + 1 :])


def iter_args(loop: Operation) -> list[IterArg]:
    """All values that an `scf.for` carries."""
    return [IterArg(loop, index) for index in range(len(loop.results))]


def carry(loop: Operation, initial: Value) -> Value:
    """Have an `scf.for` carry one more value, whose yielded value the caller appends.

    Returns:
        The new argument of the body.
    """
    loop.operands = (*loop.operands, initial)
    loop.results = (*loop.results, Value(initial.type, loop, len(loop.results)))
    return loop.regions[0].block.add_argument(initial.type)


def iter_arg(argument: Value) -> IterArg | None:
    """The carried value of an `scf.for` that a block argument is, or None for all others."""
    loop = None if isinstance(argument.owner, Operation) else argument.owner.parent_op
    if loop is None or loop.name != FOR or argument.index == 0:
        return None
    return IterArg(loop, argument.index - _OWN_ARGUMENTS[loop.name])


def set_arguments(block: Block, values: Sequence[Value]) -> None:
    """Let `values` be the arguments of a block, and renumber them."""
    block.arguments = list(values)
    for index, value in enumerate(block.arguments):
        value.index = index


def _junction(op: Operation, branches: _Points, targets: _Points) -> Junction:
    regions = op.regions
    return Junction(
        op,
        tuple(op if point is None else regions[point].block.terminator for point in branches),
        tuple(None if point is None else regions[point] for point in targets),
    )


def _index(op: Operation, block: Block | None) -> int:
    return next(i for i, region in enumerate(op.regions) if block in region.blocks)
