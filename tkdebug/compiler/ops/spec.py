"""Functions of the language, `tl.load` and its kin: they emit ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tkdebug.errors import TkError


@dataclass(frozen=True, eq=False)
class Builtin:
    """A function of the language, as `tl.load` or `tl.sum`.

    Attributes:
        emit: `(emitter, *arguments) -> value`; its signature less the first parameter is the
            public one. An argument is a run-time value, a tuple, or a plain Python object that is
            a constant: never a constexpr.
        member: whether it is also a method of tensors (`x.sum()`).
        in_math: whether `tl.math` has it, too.
    """

    name: str
    emit: Callable[..., Any]
    member: bool = False
    doc: str = field(default="")
    in_math: bool = False

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
    """A wrong use of the language; the front end turns it into a CompileError at its place."""
