"""Patterns: rules that look at one op each, applied to a module until none matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.errors import IRError

# A pattern set that rewrites one op this often on average does not converge.
_MAX_REWRITES_PER_OP = 20


@dataclass(frozen=True, slots=True)
class Pattern:
    """One peephole rule: `apply` rewrites an op and answers True, or leaves it and answers False.

    Attributes:
        rule: name of the rule, as records show it.
        roots: names of the ops it looks at.
    """

    rule: str
    roots: tuple[str, ...]
    apply: Callable[[Operation, Rewriter], bool]


def by_root(patterns: Iterable[Pattern]) -> dict[str, list[Pattern]]:
    """The patterns that look at each op, in order."""
    table: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        for root in pattern.roots:
            table.setdefault(root, []).append(pattern)
    return table


def apply_patterns(
    module: Module, rewriter: Rewriter, patterns: Mapping[str, Sequence[Pattern]]
) -> None:
    """Apply `patterns`, by the names of the ops they look at, until none matches.

    Raises:
        IRError: the patterns do not converge.
    """
    # Worked from the end, so that ops are looked at in program order.
    worklist = [op for op in module.walk() if op.name in patterns]
    worklist.reverse()
    waiting = set(worklist)
    budget = _MAX_REWRITES_PER_OP * (len(worklist) + 50)
    while worklist:
        op = worklist.pop()
        waiting.discard(op)
        if op.block is None:
            continue
        affected = [user for result in op.results for user in result.uses]
        for pattern in patterns[op.name]:
            first_new = len(rewriter.records)
            if not pattern.apply(op, rewriter):
                continue
            budget -= 1
            if budget < 0:
                place = op.location.primary
                raise IRError(
                    f"{place.file}:{place.line}: {rewriter.pass_name}: rule {pattern.rule} on "
                    f"{op.name} #{op.id}: patterns do not converge"
                )
            assert len(rewriter.records) > first_new, f"{pattern.rule} left no record"
            affected.append(op)
            affected += rewriter.take_built()
            for user in reversed(affected):
                if user.block is not None and user.name in patterns and user not in waiting:
                    waiting.add(user)
                    worklist.append(user)
            break
    rewriter.commit()
