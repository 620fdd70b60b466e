"""Evaluation of Python at a stop: names of a frame, torch, and a `tl` that computes with torch.

The user's own process evaluates the user's own text: this is no sandbox.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tkdebug.debugger.values import (
    Buffer,
    Constant,
    Described,
    Pointers,
    Reading,
    Tile,
    Unavailable,
)
from tkdebug.errors import UsageError, error_text

# What Python's parser raises: null characters, too many levels, numbers of too many digits.
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
_SHOWN_CHARS = 200


class EvaluationError(UsageError):
    """An expression that raised; the message says what."""


def shown_text(text: str) -> str:
    """Return an expression as messages quote it: a long one is cut."""
    text = text.strip()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def tuple_parts(text: str) -> tuple[str, ...]:
    """The expressions of a tuple, `a, b`; () for any other expression."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except NO_PYTHON:
        return ()
    if not isinstance(node, ast.Tuple) or any(isinstance(e, ast.Starred) for e in node.elts):
        return ()
    return tuple(map(ast.unparse, node.elts))


def compile_expression(text: str) -> CodeType:
    """Compile an expression.

    Raises:
        EvaluationError: it is none.
    """
    try:
        return compile(text.strip(), "<expression>", "eval")
    except NO_PYTHON as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        if isinstance(error, RecursionError | MemoryError):
            reason = "it has too many levels"
        raise EvaluationError(f"{shown_text(text)}: no expression ({reason})") from None


class Names(dict[str, Any]):
    """The names of a frame, each read when it is first used."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._find(name)
        return value


def evaluate(code: CodeType, names: Names, text: str) -> Any:
    """The value of a compiled expression.

    The names are its globals, so that comprehensions and lambdas in it have them, too.

    Raises:
        EvaluationError: it raised.
    """
    names["__builtins__"] = builtins
    try:
        return eval(code, names)
    except EvaluationError:
        raise
    except Exception as error:
        raise EvaluationError(f"{shown_text(text)}: {error_text(error)}") from error


_AXES = 3


class ProgramPlace(tuple[int, ...]):
    """The place of a program along several axes, or the extents of a grid.

    Axes that either side leaves out are `fill`. A comparison that would never hold, with one number
    or with more axes than there are, is refused.

    Attributes:
        name: what expressions call it.
        fill: what a grid of fewer axes has along the others.
    """

    name = "pid"
    fill = 0

    @classmethod
    def named(cls, parts: Sequence[int], name: str, fill: int = 0) -> ProgramPlace:
        """Return a place that expressions call `name`."""
        place = cls(parts)
        place.name, place.fill = name, fill
        return place

    def __eq__(self, other: object) -> Any:
        if isinstance(other, int):
            raise EvaluationError(
                f"`{self.name}` is {len(self)} numbers and never equals {other}: compare "
                f"{self.name}[0], or {self.name} == ({', '.join('0' * len(self))})"
            )
        if not isinstance(other, tuple | list):
            return NotImplemented
        return self._padded(self) == self._padded(other)

    def _padded(self, parts: Sequence[Any]) -> list[Any]:
        if len(parts) > _AXES:
            raise EvaluationError(
                f"`{self.name}` never equals {len(parts)} numbers: a grid has {_AXES} axes"
            )
        return [*parts, *[self.fill] * (_AXES - len(parts))]

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = tuple.__hash__


class ProgramNumber(int):
    """The place of a program in a grid of one axis, which also equals (3,), (3, 0), (3, 0, 0)."""

    def __eq__(self, other: object) -> Any:
        if isinstance(other, tuple | list):
            return ProgramPlace((int(self),)) == other
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = int.__hash__


class Scalar(float):
    """A float of a kernel; computing with it gives Python's floats.

    Attributes:
        dtype: of which it is.
    """

    dtype: torch.dtype


def _number(element: Tensor) -> Any:
    value = element.item()
    if not isinstance(value, float):
        return value
    found = Scalar(value)
    found.dtype = element.dtype
    return found


def as_python(reading: Reading, name: str) -> Any:
    """A reading of one program as expressions get it: tiles as tensors, scalars as numbers.

    Args:
        reading: what was read.
        name: of the variable, for the message.

    Raises:
        EvaluationError: it is not available.
    """
    match reading:
        case Tile():
            return reading.data[0] if reading.is_tile else _number(reading.data[0])
        case Buffer():
            return reading.data[0]
        case Pointers():
            return reading.tensor if reading.is_whole_tensor else reading
        case Described():
            parts = {key: as_python(part, name) for key, part in reading.parts.items()}
            return SimpleNamespace(**parts, block_shape=reading.block_shape)
        case Constant():
            return reading.value
        case Unavailable():
            raise EvaluationError(f"`{name}` is not available here: {reading.reason}")
        case _:
            return tuple(as_python(item, name) for item in reading)


def truth(value: Any) -> bool:
    """Whether a condition holds; of a tensor, whether any element is true.

    Raises:
        EvaluationError: the value is neither true nor false.
    """
    try:
        return bool(value.any()) if isinstance(value, Tensor) else bool(value)
    except Exception as error:
        raise EvaluationError(error_text(error)) from error


def tl_functions() -> SimpleNamespace:
    """What of `tl` expressions may use: functions on torch tensors."""

    def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
        def reduce(x: Tensor, axis: int | None = None, keep_dims: bool = False) -> Any:
            axes = list(range(x.dim())) if axis is None else axis
            return function(x, axes, keepdim=keep_dims) if x.dim() else x

        return reduce

    same = (
        *("where", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "abs", "floor"),
        *("ceil", "maximum", "minimum", "erf", "sigmoid", "zeros_like"),
    )

    def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*operands: Any) -> Any:
            # torch's functions take no Python numbers, which scalars of one program are.
            is_number = [isinstance(x, int | float) for x in operands]
            return function(
                *(
                    torch.as_tensor(x) if one else x
                    for x, one in zip(operands, is_number, strict=True)
                )
            )

        return call

    types = {
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "float32": torch.float32,
        "float64": torch.float64,
        **{f"int{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)},
        "int1": torch.bool,
    }
    return SimpleNamespace(
        **{name: elementwise(getattr(torch, name)) for name in same},
        cat=torch.cat,
        **types,
        sum=reduced(torch.sum),
        max=reduced(torch.amax),
        min=reduced(torch.amin),
        argmax=lambda x, axis: torch.argmax(x, axis),
        argmin=lambda x, axis: torch.argmin(x, axis),
        dot=lambda a, b, acc=0: torch.matmul(a.float(), b.float()) + acc,
        trans=lambda x: x.transpose(-1, -2),
        arange=torch.arange,
        cdiv=lambda a, b: -(-a // b),
        zeros=lambda shape, dtype=torch.float32: torch.zeros(shape, dtype=dtype),
        full=lambda shape, value, dtype=torch.float32: torch.full(shape, value, dtype=dtype),
    )
