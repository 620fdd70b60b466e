"""Observers of a lowering, which may add code of their own: checks, readings of the clock.

Defines only the interface. The driver makes the observers that a kernel asks for; a bare
kernel has none, and its compile imports none. The lowering calls them in their order, and knows
nothing else of them. Each observer keeps its own reference to the `Lowering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.types import Good, Modifiers, Registers, Vector


class AccessGuard(Protocol):
    """Guard of an access: emits the test and the access in place of the lowering.

    An access that `is_short` is written by `load`, `store` or `copy`, as one piece of PTX; any
    other one by `either_way`.
    """

    @property
    def is_short(self) -> bool:
        """Whether the access can be written as one piece of PTX."""
        ...

    def either_way(
        self, usual: Callable[[], Registers], narrowed: Callable[[Good], Registers]
    ) -> Registers:
        """Write an access twice: `usual` if all is good, else `narrowed` to the good elements."""
        ...

    def load(self, modifiers: Modifiers, vector: Vector, fills: Sequence[Registers]) -> Registers:
        """Write ld.global of a tile; `fills` are the words of elements that are not loaded."""
        ...

    def store(
        self,
        modifiers: Modifiers,
        vector: Vector,
        packed: Sequence[Registers],
        owner: LLVMValue | None,
    ) -> None:
        """Write st.global of a tile whose words are `packed`, in threads where `owner` holds."""
        ...

    def copy(
        self,
        instruction: str,
        addresses: Sequence[LLVMValue],
        size_bytes: int,
        owner: LLVMValue | None,
    ) -> None:
        """Write cp.async of a tile to `addresses` in shared memory, `size_bytes` each."""
        ...


class LoweringObserver:
    """The observer of one kernel's lowering; subclasses override the methods that they need."""

    def before(self, op: Operation) -> None:
        """Callback before `op` is lowered. Code written here belongs to the op before it."""

    def after(self, op: Operation) -> None:
        """Callback after `op` was lowered: the registers of its results are there."""

    def guard(
        self, op: Operation, pointers: Registers, mask: Registers | None, group: int
    ) -> AccessGuard | None:
        """Return the test of an access, or None if it has none.

        Args:
            op: the access.
            pointers: the pointers of the tile's registers; the pointers of a group follow each
                other in memory.
            mask: i1 of each register; None if all is accessed.
            group: registers of one instruction.
        """
        return None

    def fails(self, op: Operation, condition: Value, failures: Registers) -> bool:
        """Report failures of an assertion or assumption; return whether this observer reports them.

        Args:
            op: the assertion.
            condition: the value whose layout the failures have.
            failures: i1 of each register.
        """
        return False

    def loop_begins(self, loop: Operation) -> None:
        """Callback before a loop is lowered; code written here runs before it."""

    def loop_head(self, loop: Operation, before: str) -> None:
        """Callback at a loop's head, where an iteration begins, the first after block `before`."""

    def loop_round_ends(self, loop: Operation) -> None:
        """Callback at the end of a loop's iteration, before control goes back to the head."""

    def body_ends(self) -> None:
        """Callback after all ops of the kernel were lowered but its terminator."""

    def ends(self) -> None:
        """Callback at the kernel's end, before it returns."""
