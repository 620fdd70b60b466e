"""Bindings of a kernel's names after compiler passes, as far as they can be known.

Passes report what becomes of values (`ir.core.Follower`) and of ops (their records). An op has the
names of the statement that it comes from: its own values, or, for a copy, those that the copy was
made with. A name whose value was dropped, changed into something else, or belongs to another
iteration of a loop has none, and the reason names the pass. A wrong value would be worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import StatementRegions
from tkdebug.compiler.frontend.values import flatten, rebuild
from tkdebug.compiler.frontend.variables import Mark, MarkKind, Variables
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.passes.pass_run import PassRun
from tkdebug.errors import Frame


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """A copy of an op by a pass.

    Attributes:
        block: the block of the original.
        known: the copy's values, by the original's.
    """

    block: Block | None
    known: Mapping[Value, Value]


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """The origin of an op.

    Attributes:
        mark: the mark of its statement, as the front end has it.
        copies: the copies that led to it, in order.
        ahead: the pass that made it for another iteration of the loop around it; "" for none.
    """

    mark: Mark
    copies: tuple[_Copy, ...] = ()
    ahead: str = ""


class Bindings:
    """Follows a module through its passes; a `Follower`.

    Args:
        context: the mark to which each op belongs, before any pass.
        variables: the front end's marks.
    """

    def __init__(self, context: Mapping[Operation, Mark], variables: Variables) -> None:
        self._front = variables
        self._origins = {op.id: _Origin(mark) for op, mark in context.items()}
        self._front_ids = frozenset(self._origins)
        # Marks by place, for ops that passes have built; marks that ops belong to come first.
        self._by_place: dict[tuple[Frame, ...], list[Mark]] = {}
        for op, mark in context.items():
            for place in op.location.sources:
                self._by_place.setdefault(place.frames, []).append(mark)
        for mark in variables.marks:
            self._by_place.setdefault(mark.location.frames, []).append(mark)
        self._types = {
            leaf: (ir.shape_of(leaf.type), ir.element_of(leaf.type))
            for leaf in variables.values(variables.marks)
            if not isinstance(leaf.type, ir.DescriptorType)
        }
        self._descriptors = {
            leaf for leaf in variables.values(variables.marks) if leaf not in self._types
        }
        self._replaced: dict[Value, Value] = {}
        self._lost: dict[Value, str] = {}
        self._ahead: dict[int, str] = {}
        self._made: dict[tuple[object, ...], Mark] = {}
        self._began: dict[Mark, Mark] = {}
        self._stage = ""

    # As a follower

    def replaced(self, old: Value, new: Value) -> None:
        """Hear that a pass has replaced `old` by `new`."""
        self._replaced[old] = new

    def copied(self, op: Operation, copy: Operation, known: Mapping[Value, Value]) -> None:
        """Hear that an op was copied."""
        origin = self._origin(op)
        if origin is not None:
            made = _Copy(op.block, known)
            self._origins[copy.id] = replace(origin, copies=(*origin.copies, made))

    # After each pass

    def passed(self, run: PassRun, other_rounds: frozenset[str]) -> None:
        """Take over a pass's record of its changes.

        Args:
            run: the run of the pass.
            other_rounds: its rules whose ops belong to other iterations of a loop.
        """
        for record in run.records:
            ahead = run.name if record.rule in other_rounds else ""
            sources = (self._origins.get(id_) for id_ in record.old_op_ids)
            source = next((one for one in sources if one is not None), None)
            for id_ in record.new_op_ids:
                if ahead:
                    self._ahead[id_] = ahead
                if source is not None and id_ not in self._origins:
                    self._origins[id_] = replace(source, ahead=ahead or source.ahead)
        for leaf in (*self._types, *self._descriptors):
            if leaf not in self._lost:
                why = self._loss(leaf)
                if why:
                    self._lost[leaf] = f"{run.name} {why}"

    def _loss(self, leaf: Value) -> str:
        """Say what has become of a value, "" if it has not changed."""
        now = self._now(leaf)
        if not _is_attached(now):
            return "dropped it, or computes something else in its place"
        if leaf in self._types and (
            (ir.shape_of(now.type), ir.element_of(now.type)) != self._types[leaf]
        ):
            return f"computes {ir.type_text(now.type, _without_layout)} in its place"
        if leaf in self._descriptors and not isinstance(now.type, ir.DescriptorType):
            return "made pointers and masks of the descriptor"
        return ""

    def _now(self, value: Value) -> Value:
        *_, last = self._chain(value)
        return last

    def _chain(self, value: Value) -> Iterator[Value]:
        """A value and its replacements, in order."""
        seen: set[Value] = set()
        at: Value | None = value
        while at is not None and at not in seen:
            seen.add(at)
            yield at
            at = self._replaced.get(at)

    # Questions after the passes

    def settled(self, module: Module, stage: str) -> Variables:
        """The marks of the module as it is now.

        Args:
            module: the kernel after its passes.
            stage: the name of the stage, for reasons.
        """
        self._stage = stage
        before: dict[Operation, tuple[Mark, ...]] = {}
        self._walk(module.function.regions[0].block, before)
        return Variables.placed([mark for found in before.values() for mark in found], before)

    def is_ahead(self, op: Operation) -> bool:
        """Whether an op is for another iteration of the loop around it, or after it."""
        origin = self._origins.get(op.id)
        return op.id in self._ahead or (origin is not None and bool(origin.ahead))

    def _walk(self, block: Block, before: dict[Operation, tuple[Mark, ...]]) -> None:
        last: Mark | None = None
        for op in block.operations:
            origin = self._origin(op)
            if origin is not None and not arith.Constant.matches(op):
                mark = self._mark(origin, block)
                breaks = [
                    replace(mark, kind=MarkKind.BREAK, location=each.location)
                    for each in self._front.before.get(op, ())
                    if each.kind is MarkKind.BREAK
                ]
                if last is None or _statement(last) != _statement(mark):
                    before[op] = (*breaks, *_calls(mark, last), mark)
                elif mark is not last or breaks:
                    before[op] = (*breaks, replace(mark, kind=MarkKind.SCOPE))
                last = mark
            if StatementRegions.matches(op):
                for region in op.regions:
                    self._walk(region.block, before)

    def _origin(self, op: Operation) -> _Origin | None:
        found = self._origins.get(op.id)
        if found is None:
            marks = [
                mark
                for place in op.location.sources
                for mark in self._by_place.get(place.frames, ())
            ]
            if not marks:
                return None
            inside = [one for one in marks if one.block is op.block]
            mark = marks[0]
            if inside and self._is_behind(op):
                mark = max(inside, key=lambda one: one.index)
            elif inside:
                mark = self._round_began(inside)
            found = _Origin(mark, ahead=self._ahead.get(op.id, ""))
        return found

    def _is_behind(self, op: Operation) -> bool:
        """Whether an op comes after all statements of its block."""
        ops = [] if op.block is None else op.block.operations
        if op not in ops:
            return False  # a pass is about to put it there
        return not any(one.id in self._front_ids for one in ops[ops.index(op) + 1 : -1])

    def _round_began(self, marks: Sequence[Mark]) -> Mark:
        """The first of some marks at one place of a block; in a loop, with its counter bound."""
        first = min(marks, key=lambda one: one.index)
        found = self._began.get(first)
        if found is None:
            counters = {
                name: value
                for mark in marks
                for name, value in mark.names.items()
                if flatten(value) and all(leaf.owner is first.block for leaf in flatten(value))
            }
            found = first
            if not counters.keys() <= first.names.keys():
                found = replace(first, names={**counters, **first.names})
            self._began[first] = found
        return found

    def _mark(self, origin: _Origin, block: Block) -> Mark:
        key = (origin.mark, origin.ahead, block, *(id(copy.known) for copy in origin.copies))
        known = self._made.get(key)
        if known is not None:
            return known
        front = origin.mark
        names, missing = {}, dict(front.missing)
        for name, value in front.names.items():
            found: list[Value] = []
            for leaf in flatten(value):
                present = self._value(leaf, origin, block)
                if isinstance(present, str):
                    missing[name] = present
                    break
                found.append(present)
            else:
                names[name] = rebuild(value, iter(found))
        around = None
        if front.around is not None:
            around = self._mark(replace(origin, mark=front.around), block)
        made = Mark(
            MarkKind.LINE, front.location, front.activation, names, missing, None, around, block, 0
        )
        self._made[key] = made
        return made

    def _value(self, leaf: Value, origin: _Origin, block: Block) -> Value | str:
        """Return the value of `leaf` at an op, or why there is none."""
        another = (
            f"at {self._stage} this op is for another round of the loop, in which it is not "
            "computed yet"
        )
        chain = list(self._chain(leaf))
        is_copy = False
        for copy in origin.copies:
            inside = next((copy.known[one] for one in reversed(chain) if one in copy.known), None)
            if inside is not None:
                chain, is_copy = list(self._chain(inside)), True
            elif _is_loop(copy.block) and _is_inside(chain[-1], copy.block):
                return another
        if not is_copy and leaf in self._lost:
            return f"at {self._stage} it is gone: {self._lost[leaf]}"
        now = chain[-1]
        if is_copy and (not _is_attached(now) or self._is_other(leaf, now)):
            return f"at {self._stage} it is gone: a pass changed the copy of the loop's body"
        if origin.ahead and not is_copy and _is_loop(block) and _is_inside(now, block):
            return another
        if not _is_visible(now, block):
            return f"at {self._stage} it is computed elsewhere: a pass has moved this op"
        return now

    def _is_other(self, leaf: Value, now: Value) -> bool:
        kind = self._types.get(leaf)
        return kind is not None and kind != (ir.shape_of(now.type), ir.element_of(now.type))


def _statement(mark: Mark) -> tuple[object, tuple[Frame, ...]]:
    return mark.activation, mark.location.frames


def _calls(mark: Mark, last: Mark | None) -> list[Mark]:
    """The calls between an op and the one before it, outermost first: lines of the callers."""
    passed = set()
    while last is not None:
        passed.add(_statement(last))
        last = last.around
    found = []
    at = mark.around
    while at is not None and _statement(at) not in passed:
        found.append(at)
        at = at.around
    return found[::-1]


def _without_layout(layout: object) -> str:
    return "…"


def _is_loop(block: Block | None) -> bool:
    return block is not None and block.parent_op is not None and scf.Loop.matches(block.parent_op)


def _is_attached(value: Value) -> bool:
    """Whether a value is defined in a module."""
    owner = value.owner
    if isinstance(owner, Operation):
        if value not in owner.results:
            return False
        op: Operation | None = owner
    else:
        if value not in owner.arguments:
            return False
        op = owner.parent_op
    while op is not None:
        if op.block is None:
            return False
        if tt.Func.matches(op):
            return True
        op = op.block.parent_op
    return False


def _is_inside(value: Value, block: Block | None) -> bool:
    """Whether a value is defined in a block, or in one inside of it."""
    at = value.parent_block
    while at is not None and at is not block:
        at = None if at.parent_op is None else at.parent_op.block
    return at is not None


def _is_visible(value: Value, block: Block) -> bool:
    """Whether a value is defined in a block, or around it."""
    home = value.parent_block
    at: Block | None = block
    while at is not None and at is not home:
        at = None if at.parent_op is None else at.parent_op.block
    return at is not None
