"""What one op of the IR is, and what one function of the language is.

An `OpSpec` holds what the compiler knows about an op; a `Builtin` is a function of `tl.*` that
emits ops. Both stand together in one file per family. How an op runs is a rule of a target:
`interpreter/rules` and `targets/nvptx/lowering`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import TkError


class Effects(Flag):
    """What an op does besides computing its results."""

    PURE = 0
    # Global memory; what is written is behind the first operand.
    READ = auto()
    WRITE = auto()
    # Buffers in shared memory.
    READ_SHARED = auto()
    WRITE_SHARED = auto()
    # Ends its block (scf.yield, tt.return).
    TERMINATOR = auto()
    # Observable otherwise: prints, asserts, barriers.
    OTHER = auto()


TypeRule = Callable[[Sequence[Type], Mapping[str, Attribute]], Sequence[Type]]
Verifier = Callable[[Operation], None]
Fold = Callable[[Operation, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op of the IR.

    Attributes:
        view: what it is called and made of.
        infer: result types from operand types and attributes; None when the builder is given
            them (constants, control flow).
        verify: raises IRError when the op breaks its rules.
        effects: what else it does.
        fold: the constant result for constant operands, or None when it does not fold.
    """

    view: type[OpView]
    infer: TypeRule | None
    verify: Verifier | None = None
    effects: Effects = Effects.PURE
    fold: Fold | None = None

    @property
    def name(self) -> str:
        """Dialect and op, as in MLIR (`arith.addf`)."""
        return self.view.name

    @property
    def doc(self) -> str:
        """One line on what it computes."""
        return inspect.cleandoc(self.view.__doc__ or "").splitlines()[0]

    @property
    def is_pure(self) -> bool:
        """Whether the op may be erased, merged or moved freely."""
        return self.effects == Effects.PURE


@dataclass(frozen=True, eq=False)
class Builtin:
    """A function of the language, as `tl.load` or `tl.sum`.

    Attributes:
        emit: `(emitter, *arguments) -> value`; its signature less the first parameter is the
            public one. An argument is a run-time value, a tuple, or a plain Python object that is
            a constant: never a constexpr.
        member: whether it is also a method of tensors (`x.sum()`).
    """

    name: str
    emit: Callable[..., Any]
    member: bool = False
    doc: str = field(default="")

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.doc or self.emit.__doc__ or ""

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self.emit)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, *arguments: object, **keywords: object) -> object:
        """Refuse: outside a kernel there is nothing to emit into."""
        raise TkError(
            f"tl.{self.name} was called outside a kernel; "
            "it has a meaning only inside a function decorated with @triton.jit"
        )

    def __repr__(self) -> str:
        return f"<tl.{self.name}>"


class SemanticError(Exception):
    """A use of the language that is wrong; the front end turns it into a CompileError there."""


def same_as_first(operands: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    """Type rule: one result of the first operand's type."""
    return (operands[0],)


def no_results(operands: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    """Type rule: no result."""
    return ()
