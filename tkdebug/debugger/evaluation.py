"""Expressions at a stop: evaluated for each program by itself, as conditions of breakpoints are.

A tile has the shape that the kernel gives it, and a scalar is a number, however many programs are
selected. What comes to the same in all programs without reading a variable is one value.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Value
from tkdebug.debugger.expressions import (
    EvaluationError,
    Names,
    ProgramNumber,
    ProgramPlace,
    as_python,
    evaluate,
    tl_functions,
)
from tkdebug.debugger.programs import program_id, program_text
from tkdebug.debugger.values import (
    Constant,
    PerProgram,
    Pointers,
    Reading,
    Tile,
    Unavailable,
    of_program,
    read_ir_value,
)
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection

_MISSING = object()

_TL = tl_functions()


class Scope:
    """What expressions may name in a frame, for some programs.

    Args:
        inspection: of the stop.
        frame: 0 for the innermost.
        positions: of the programs in the batch; None where the launch has ended.
        of_ir: names of values of the IR.
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
        """The value; a `PerProgram` for several programs that read a variable.

        Raises:
            EvaluationError: it raised.
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
        """What the `index`-th program may use."""
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
        """What a name is for one of several programs."""
        if isinstance(reading, Constant):
            return reading
        if isinstance(reading, Unavailable) and not self._asks_alone:
            return reading
        if isinstance(reading, Unavailable) and name not in self._of_ir:
            # What is kept differs: a program may have bound it alone.
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
        """A global of the kernel's module that it may read; else Python looks among its own."""
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
        """`pid` and `program`, unless the kernel has variables of these names."""
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
    """Return a program's number as the number that it is."""
    return int(value) if isinstance(value, ProgramNumber) else value
