"""What a loop computes from its counter and carried values, computed for later iterations.

A `Slice` is the effect-free part of a loop's body that some values need. Its clones stand before
the loop (for the first iterations) and in the body (for the iteration that runs ahead).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.rewriter import Rewriter
from tkdebug.compiler.ir.structure import is_effect_free


@dataclass(frozen=True)
class Slice:
    """What is needed to run ahead of a loop.

    Attributes:
        loop: an `scf.for`.
        ops: ops of its body, in order.
        carried: those of its carried values that the ops depend on, in order.
    """

    loop: Operation
    ops: tuple[Operation, ...]
    carried: tuple[Value, ...]

    @staticmethod
    def of(loop: Operation, values: Iterable[Value]) -> Slice | None:
        """The slice of `values` and of the carried values they depend on, from one iteration on.

        None when something with effects is in it, such as a load.
        """
        body = loop.regions[0].block
        ops: set[Operation] = set()
        carried: set[Value] = set()
        worklist = list(values)
        while worklist:
            value = worklist.pop()
            owner = value.owner
            if owner is body and value.index and value not in carried:
                carried.add(value)
                worklist.append(body.terminator.operands[value.index - 1])
            elif isinstance(owner, Operation) and owner.block is body and owner not in ops:
                if owner.regions or not is_effect_free(owner):
                    return None
                ops.add(owner)
                worklist += owner.operands
        return Slice(
            loop,
            tuple(op for op in body.operations if op in ops),
            tuple(value for value in body.arguments if value in carried),
        )

    def first(self) -> dict[Value, Value]:
        """What stands for the carried values in the first iteration."""
        return {value: self.loop.operands[2 + value.index] for value in self.carried}

    def clone(
        self, known: Mapping[Value, Value], rewriter: Rewriter, anchor: Operation, rule: str
    ) -> dict[Value, Value]:
        """Clone the ops before `anchor`.

        Args:
            known: what stands for the loop's counter and the carried values.
            rewriter: builds the clones.
            anchor: where to.
            rule: under which they are recorded.

        Returns:
            What stands for each value of the body; values from outside stand for themselves.
        """
        clones = dict(known)
        for op in self.ops:
            clone = rewriter.build_before(
                anchor,
                op.name,
                [clones.get(value, value) for value in op.operands],
                [result.type for result in op.results],
                op.attributes,
                location=op.location,
            )
            rewriter.record_new(clone, rule)
            for old, new in zip(op.results, clone.results, strict=True):
                new.name = old.name
                clones[old] = new
        return clones

    def next(self, clones: Mapping[Value, Value]) -> dict[Value, Value]:
        """What stands for the carried values one iteration after that of `clones`."""
        yielded = self.loop.regions[0].block.terminator.operands
        sources = {value: yielded[value.index - 1] for value in self.carried}
        return {value: clones.get(source, source) for value, source in sources.items()}
