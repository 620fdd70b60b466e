"""Values that a loop computes from its counter and carried values, computed for later iterations.

A `BackwardSlice` is the effect-free part of a loop's body that some values need. Its clones are put
before the loop (for the first iterations) and in the body (for the iteration that runs ahead).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.table import is_effect_free
from tkdebug.compiler.ir.control_flow import IterArg, iter_arg, iter_args
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import I1, TensorType
from tkdebug.compiler.rewriting.copies import clone_before
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True)
class BackwardSlice:
    """The part of a loop's body that runs ahead.

    Attributes:
        loop: an `scf.for`.
        ops: ops of its body, in order.
        carried: its iter args that the ops depend on, in order.
    """

    loop: Operation
    ops: tuple[Operation, ...]
    carried: tuple[IterArg, ...]

    @staticmethod
    def of(
        loop: Operation, values: Iterable[Value], given: Collection[Value] = ()
    ) -> BackwardSlice | None:
        """The slice that computes `values`, and their carried values for the next iteration.

        None if an op with effects or regions is in it, such as a load whose result is not `given`.
        """
        body = loop.regions[0].block
        ops: set[Operation] = set()
        carried: set[Value] = set()
        worklist = list(values)
        while worklist:
            value = worklist.pop()
            owner = value.owner
            if value in given:
                continue
            argument = iter_arg(value) if owner is body else None
            if argument is not None and value not in carried:
                carried.add(value)
                worklist.append(argument.yielded)
            elif isinstance(owner, Operation) and owner.block is body and owner not in ops:
                if owner.regions or not is_effect_free(owner):
                    return None
                ops.add(owner)
                worklist += owner.operands
        return BackwardSlice(
            loop,
            tuple(op for op in body.operations if op in ops),
            tuple(each for each in iter_args(loop) if each.argument in carried),
        )

    def first(self) -> dict[Value, Value]:
        """The carried values of the first iteration, by argument."""
        return {each.argument: each.initial for each in self.carried}

    def clone(
        self, known: Mapping[Value, Value], rewriter: Rewriter, anchor: Operation, rule: str
    ) -> dict[Value, Value]:
        """Clone the ops before `anchor`.

        Args:
            known: the values of the loop's counter and the carried values.
            rewriter: builds the clones.
            anchor: the op before which the clones are put.
            rule: the rule under which they are recorded.

        Returns:
            The clone of each value of the body; values from outside are used as they are.
        """
        clones = dict(known)
        clone_before(anchor, self.ops, clones, rewriter, rule)
        return clones

    def next(self, clones: Mapping[Value, Value]) -> dict[Value, Value]:
        """The carried values one iteration after `clones`, by argument."""
        return {each.argument: clones.get(each.yielded, each.yielded) for each in self.carried}


def loads_before(loop: Operation, values: Iterable[Value]) -> list[Operation] | None:
    """The loads of the body that `values` are computed from, in order.

    Loads of earlier iterations count if the loop carries their results. None if a load's operands
    depend on another load, or on any op with effects or regions.
    """
    body = loop.regions[0].block
    found: set[Operation] = set()
    seen: set[Value] = set()
    worklist = list(values)
    while worklist:
        value = worklist.pop()
        owner = value.owner
        if value in seen:
            continue
        seen.add(value)
        if owner is body and (argument := iter_arg(value)) is not None:
            worklist.append(argument.yielded)
        if not isinstance(owner, Operation) or owner.block is not body:
            continue
        if tt.Load.matches(owner):
            found.add(owner)
        else:
            worklist += owner.operands
    loads = [op for op in body.operations if op in found]
    if any(BackwardSlice.of(loop, op.operands) is None for op in loads):
        return None
    return loads


@dataclass(frozen=True)
class Prologue:
    """The values that replace a body's values in iterations that run ahead.

    Attributes:
        values: the carried values in the iteration whose copies come next.
        found: the results of lookups for that iteration.
        scouted: the carried values in the iteration whose lookups come next.
    """

    values: Mapping[Value, Value]
    found: Mapping[Value, Value]
    scouted: Mapping[Value, Value]

    def all(self) -> tuple[Value, ...]:
        """All values, in an order that depends on the loop alone."""
        return (*self.values.values(), *self.found.values(), *self.scouted.values())

    def map(self, change: Callable[[Value], Value]) -> Prologue:
        """A copy with `change` applied to each value, in the order of `all`."""
        parts = (self.values, self.found, self.scouted)
        return Prologue(*({key: change(value) for key, value in part.items()} for part in parts))


@dataclass(frozen=True)
class Lookups:
    """Loads of values that copies' addresses need, made one iteration ahead of the copies.

    Attributes:
        ops: the loads.
        slice: the slice that computes their operands.
        made: the loads that replace `ops`.
    """

    ops: tuple[Operation, ...]
    slice: BackwardSlice
    made: list[Operation]

    @staticmethod
    def of(loop: Operation, ops: tuple[Operation, ...]) -> Lookups:
        """The lookups of the loads `ops`, none of which depends on another."""
        slice_ = BackwardSlice.of(loop, [value for op in ops for value in op.operands])
        assert slice_ is not None
        return Lookups(ops, slice_, [])

    def look_up(
        self, known: Mapping[Value, Value], comes: Value, rewriter: Rewriter, anchor: Operation
    ) -> tuple[dict[Value, Value], dict[Value, Value]]:
        """Load for one iteration if `comes`; return the results, and the next carried values."""
        clones = self.slice.clone(known, rewriter, anchor, "look-up-ahead")
        found: dict[Value, Value] = {}
        for op in self.ops:
            build = OpBuilder(rewriter, anchor, "look-up-ahead", op.location)
            pointer, *rest = (clones.get(value, value) for value in op.operands)
            mask = masked(build, pointer, rest[0] if rest else None, comes)
            value = build.op(tt.Load, (pointer, mask, *rest[1:]), op.result.type, **op.attributes)
            assert value.defining_op is not None
            self.made.append(value.defining_op)
            value.name = op.result.name
            found[op.result] = value
        return found, self.slice.next(clones)

    def erase_unused(self, served: BackwardSlice, rewriter: Rewriter) -> None:
        """Erase the unused ops of `served`, which now runs ahead, and the unused loads."""
        for op in reversed(served.ops):
            if not any(result.uses for result in op.results):
                rewriter.erase(op, "erase-dead")
        for op in self.ops:
            if not op.result.uses:
                rewriter.replace_with_ops(op, "look-up-ahead", self.made)


def masked(build: OpBuilder, pointer: Value, mask: Value | None, comes: Value) -> Value:
    """The mask of an access that is made only if the scalar `comes` is true."""
    everywhere = comes
    if isinstance(pointer.type, TensorType):
        type_ = TensorType(pointer.type.shape, I1, pointer.type.encoding)
        everywhere = build.op(tt.Splat, (comes,), type_)
    return everywhere if mask is None else build.op(arith.AndI, (mask, everywhere))
