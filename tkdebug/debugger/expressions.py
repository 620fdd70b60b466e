"""Evaluation of Python at a stop: names of a frame, torch, and a `tl` that computes with torch.

An expression is evaluated for each program by itself, as conditions of breakpoints are. A tile has
its shape in the kernel, and a scalar is a number, however many programs are selected. An expression
that reads no variable and has the same value in all programs is one value.

The user's own process evaluates the user's own text: this is no sandbox.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Value
from tkdebug.debugger.programs import program_id, program_text
from tkdebug.debugger.values import (
    Buffer,
    Constant,
    Described,
    PerProgram,
    Pointers,
    Reading,
    Tile,
    Unavailable,
    of_program,
    read_ir_value,
)
from tkdebug.errors import UsageError, error_text

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection

# Errors of Python's parser: null characters, too many levels, numbers of too many digits.
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
        EvaluationError: the text is no expression.
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
        EvaluationError: the expression raised.
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
        name: the name in expressions.
        fill: the value of axes that a grid of fewer axes lacks.
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
        dtype: the dtype of the float.
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
        reading: the reading.
        name: the name of the variable, for the message.

    Raises:
        EvaluationError: the variable is not available.
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
    """Return the functions of `tl` that expressions may use, on torch tensors."""

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


_MISSING = object()

_TL = tl_functions()


class Scope:
    """Names of a frame for expressions, for some programs.

    Args:
        inspection: the inspection of the stop.
        frame: 0 for the innermost.
        positions: the positions of the programs in the batch; None if the launch has ended.
        of_ir: values of the IR, by their names in expressions.
        asks_alone: whether a variable that has no value for all programs together is looked for
            program by program, which may execute the launch again for each.
    """

    def __init__(
        self,
        inspection: Inspection,
        frame: int,
        positions: Tensor | None,
        of_ir: Mapping[str, Value] | None = None,
        *,
        asks_alone: bool = False,
    ) -> None:
        self._inspection = inspection
        self._frame = frame
        self._positions = positions
        self._count = 1 if positions is None else positions.numel()
        self._of_ir = of_ir or {}
        self._readings: dict[str, Reading] = {}
        self._asks_alone = asks_alone
        self._differs = False

    def evaluate(self, code: CodeType, text: str) -> Any:
        """The value; a `PerProgram` if several programs read a variable.

        Raises:
            EvaluationError: the expression raised.
        """
        if self._count < 2:
            return _plain(evaluate(code, self.names(0), text))
        name = text.strip()
        if name.isidentifier() and isinstance(found := self._found(name), Tile):
            return PerProgram.of_rows(found.data, found.is_tile)
        values = []
        for index in range(self._count):
            try:
                values.append(_plain(evaluate(code, self.names(index), text)))
            except EvaluationError as error:
                where = f" (in program {self._program_text(index)})" if index else ""
                raise EvaluationError(f"{error}{where}") from error.__cause__
            if not self._differs:
                return values[0]
        return PerProgram.of(values)

    def names(self, index: int) -> Names:
        """Return the names that the `index`-th program may use."""
        launch = self._inspection.launch
        names = Names(lambda name: self._value(name, index))
        names.update(torch=torch, tl=_TL, grid=ProgramPlace.named(launch.grid, "grid", fill=1))
        names.update(launch=launch.number, kernel=launch.kernel)
        return names

    def _value(self, name: str, index: int) -> Any:
        if name in ("pid", "program") and self._positions is not None:
            special = self._place(name, index)
            if special is not _MISSING:
                return special
        reading = self._found(name)
        if reading is None:
            return self._outside(name)
        if self._count > 1:
            reading = self._of_program(name, reading, index)
        shown = name.replace("_ir_", "%", 1) if name in self._of_ir else name
        return as_python(reading, shown)

    def _of_program(self, name: str, reading: Reading, index: int) -> Reading:
        """Return the reading of a name for one of several programs."""
        if isinstance(reading, Constant):
            return reading
        if isinstance(reading, Unavailable) and not self._asks_alone:
            return reading
        if isinstance(reading, Unavailable) and name not in self._of_ir:
            # The kept values differ: a program may have bound it alone.
            assert self._positions is not None
            self._differs = True
            return self._inspection.find(name, self._frame, self._positions[index : index + 1])
        if not (isinstance(reading, Pointers) and reading.is_whole_tensor):
            self._differs = True
        return of_program(reading, index)

    def _found(self, name: str) -> Reading | None:
        """A variable, argument or value of the IR, for all programs; None for no such name."""
        if name not in self._readings:
            positions, here = self._positions, self._inspection.here
            if name in self._of_ir and here is not None and positions is not None:
                self._readings[name] = read_ir_value(here.run, self._of_ir[name], positions)
                return self._readings[name]
            try:
                self._readings[name] = self._inspection.find(name, self._frame, positions)
            except UsageError:
                return None
        return self._readings[name]

    def _outside(self, name: str) -> Any:
        """A global of the kernel's module.

        Raises:
            KeyError: there is none, so that Python looks among its builtins.
            EvaluationError: there is no builtin either, and the launch has ended.
        """
        outside = self._inspection.code.outside.get(name, _MISSING)
        if outside is _MISSING and self._positions is None and not hasattr(builtins, name):
            raise EvaluationError(
                f"`{name}` is not an argument: the launch has ended, and its variables "
                "with it; `rn` goes back to its last line"
            )
        if outside is _MISSING:
            raise KeyError(name)
        return outside

    def _place(self, name: str, index: int) -> Any:
        """The value of `pid` or `program`; `_MISSING` if that is a variable of the kernel."""
        mark = self._inspection.marks[0]
        if name in mark.names or name in mark.missing:
            return _MISSING
        if not self._count:
            raise EvaluationError(f"{name}: none of the selected programs is here")
        self._differs = True
        grid = self._inspection.launch.grid
        rank = 3 if name == "program" or grid[2] > 1 else 2 if grid[1] > 1 else 1
        parts = program_id(self._linear(index), grid)[:rank]
        return ProgramNumber(parts[0]) if rank == 1 else ProgramPlace.named(parts, name)

    def _linear(self, index: int) -> int:
        assert self._positions is not None
        assert self._inspection.here is not None
        return self._inspection.here.run.first + int(self._positions[index])

    def _program_text(self, index: int) -> str:
        return program_text(self._linear(index), self._inspection.launch.grid)


def _plain(value: Any) -> Any:
    """Return a program's number as a plain number of Python."""
    return int(value) if isinstance(value, ProgramNumber) else value
