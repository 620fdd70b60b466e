"""`Canonicalize`: hints reach later uses; constant folding and peephole rules to a fixed point."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Block, Module, Operation
from tkdebug.compiler.passes.peephole import PATTERNS
from tkdebug.compiler.rewriting.patterns import apply_patterns, by_root
from tkdebug.compiler.rewriting.rewriter import Rewriter

_PATTERNS = by_root(PATTERNS)


@dataclass(frozen=True, slots=True)
class Canonicalize:
    """Rewrites ops to their simplest form; the rules are in `peephole`."""

    name: ClassVar[str] = "canonicalize"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply every rule until none matches."""
        for op in list(module.walk()):
            if tt.Hint.matches(op):
                _use_from_here(op, rewriter)
        apply_patterns(module, rewriter, _PATTERNS)


def _use_from_here(hint: Operation, rewriter: Rewriter) -> None:
    """What a hint says is about its operand: users of that after the hint use the hint.

    So `tl.multiple_of(x, 16)` holds without an assignment, as upstream has it.
    """
    (value,) = hint.operands
    block = hint.block
    assert block is not None
    if len(value.uses) == 1:
        return
    later = set(block.operations[block.operations.index(hint) + 1 :])
    for user in list(value.uses):
        if _is_within(user, block, later):
            user.replace_operand(value, hint.result)
            rewriter.record_change(user, "use-hint")


def _is_within(op: Operation | None, block: Block, ops: Collection[Operation]) -> bool:
    """Whether `op` is one of `ops` of `block`, or in one of their regions."""
    while op is not None and op.block is not block:
        op = None if op.block is None else op.block.parent_op
    return op in ops
