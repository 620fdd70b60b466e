"""Questions about a stopped launch: frames, variables, programs, expressions."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.frontend.variables import Mark
from tkdebug.compiler.ir import Value
from tkdebug.compiler.tensor import tensor
from tkdebug.debugger.code import DebugCode
from tkdebug.debugger.elements import argument_named
from tkdebug.debugger.execution import Execution, Here
from tkdebug.debugger.expressions import (
    EvaluationError,
    Names,
    Scope,
    compile_expression,
    evaluate,
    truth,
    tuple_parts,
)
from tkdebug.debugger.ir_text import spelled, value_named
from tkdebug.debugger.programs import Census, Selection, elsewhere, program_text
from tkdebug.debugger.recall import recall
from tkdebug.debugger.stops import Moment
from tkdebug.debugger.values import Constant, PerProgram, Reading, Unavailable, read, read_ir_value
from tkdebug.debugger.why.writers import Writer, Writers
from tkdebug.errors import Frame, UsageError

# Packages that run scripts, or that a launch goes through: none of their frames is the script's.
_OTHERS = frozenset(
    ("tkdebug", "triton", "torch", "runpy", "threading", "importlib", "contextlib", "functools",
     "pytest", "_pytest", "pluggy", "xdist", "execnet")
)  # fmt: skip
_MOST = 32
_MOST_ITEMS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class HostFrame:
    """A frame of Python's that waits for the launch."""

    place: Frame
    _frame: FrameType

    def variables(self) -> dict[str, Reading]:
        """The locals; for a module, those that are data. Long lists are shown by their length."""
        is_module = self.place.function == "<module>"
        return {
            name: Constant(_shown(value))
            for name, value in self._frame.f_locals.items()
            if not name.startswith("__") and not (is_module and _is_definition(value))
        }

    def read(self, name: str) -> Reading | None:
        """A local or global, or None if there is none."""
        for names in (self._frame.f_locals, self._frame.f_globals):
            if name in names:
                return Constant(names[name])
        return None

    def evaluate(self, text: str) -> Any:
        """The value of an expression in this frame.

        Raises:
            EvaluationError: the expression raised.
        """

        def find(name: str) -> Any:
            spaces: tuple[Mapping[str, Any], ...] = (self._frame.f_locals, self._frame.f_globals)
            for names in spaces:
                if name in names:
                    return names[name]
            raise KeyError(name)

        return evaluate(compile_expression(text), Names(find), text)


class _Long:
    """Replaces a value whose text would be long, and take long to make."""

    def __init__(self, value: Any) -> None:
        self._text = f"{type(value).__name__} of {len(value):,}"

    def __repr__(self) -> str:
        return self._text


def _shown(value: Any) -> Any:
    is_long = isinstance(value, list | tuple | dict | set | frozenset | str | bytes | bytearray)
    return _Long(value) if is_long and len(value) > _MOST_ITEMS else value


def _is_definition(value: object) -> bool:
    kinds = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    return isinstance(value, kinds) or hasattr(value, "kernel_source") or hasattr(value, "fn")


def host_frames(innermost: FrameType | None) -> tuple[HostFrame, ...]:
    """The script's frames from `innermost` on outwards, up to its module."""
    found: list[HostFrame] = []
    at = innermost
    while at is not None and len(found) < _MOST:
        module = str(at.f_globals.get("__name__", ""))
        file, function = at.f_code.co_filename, at.f_code.co_name
        if module.partition(".")[0] not in _OTHERS and not file.startswith("<frozen "):
            found.append(HostFrame(Frame(file, at.f_lineno, function), at))
        if module == "__main__" and function == "<module>":
            break
        at = at.f_back
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that is debugged.

    Attributes:
        number: 1 for the first launch of the process.
        arguments: the arguments by name, constants too, as the script passed them.
        written_before: the launch that wrote an allocation last, where nothing else has written
            it since, by the address of the allocation.
        writers: the launches that have written memory.
        host: the script's frames that wait for it, the innermost first.
        origins: for a launch that is executed again on copies, the script's allocation that each
            copy is of, by address.
        filled: its allocations whose contents before it are not known.
    """

    number: int
    kernel: str
    grid: tuple[int, int, int]
    arguments: Mapping[str, Any]
    written_before: Mapping[int, Writer] = field(default_factory=dict)
    writers: Writers = field(default_factory=Writers)
    host: tuple[HostFrame, ...] = ()
    origins: Mapping[int, int] = field(default_factory=dict)
    filled: frozenset[int] = frozenset()


class Inspection:
    """A stopped launch; of no use once it goes on.

    Args:
        launch: the launch.
        execution: the execution of the launch.
        here: the moment; None at the end of the launch.
        selection: the programs that are meant.
    """

    def __init__(
        self, launch: Launch, execution: Execution, here: Here | None, selection: Selection
    ) -> None:
        self.launch = launch
        self.here = here
        self.selection = selection
        self._execution = execution

    # Frames

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The mark of each frame, the innermost first."""
        mark = None if self.here is None else self.here.context
        found: list[Mark] = []
        while mark is not None:
            found.append(mark)
            mark = mark.around
        return tuple(found)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The chain of calls, outermost first."""
        if self.here is None:
            return ()
        if self.here.mark is None:
            return self.here.op.location.frames
        return self.here.mark.location.frames

    @property
    def stack(self) -> tuple[Frame, ...]:
        """The chain of calls, outermost first, with the script's own frames; () at the end."""
        frames = self.frames
        hosts = tuple(each.place for each in reversed(self.launch.host))
        return (*hosts, *frames) if frames else ()

    def host_frame(self, frame: int) -> HostFrame | None:
        """A frame of the script's, counted from the innermost of the kernel's; None for another."""
        depth = frame - len(self.frames)
        return (
            self.launch.host[depth] if self.frames and 0 <= depth < len(self.launch.host) else None
        )

    def mark_of(self, frame: int) -> Mark:
        """The mark of a frame, 0 for the innermost.

        Raises:
            UsageError: there is no such frame.
        """
        marks = self.marks
        if not marks:
            raise UsageError("the launch has ended: its variables are gone, its arguments are not")
        if self.host_frame(frame) is not None:
            raise UsageError("this frame is the script's: it has variables, and no programs or IR")
        if not 0 <= frame < len(marks):
            raise UsageError(f"there is no frame {frame}; there are {len(marks)}")
        return marks[frame]

    # Programs

    @property
    def positions(self) -> Tensor:
        """The batch positions of the selected programs that are here, int64."""
        assert self.here is not None
        return self.selection.positions(self.here.run)

    @property
    def programs(self) -> tuple[int, ...]:
        """The linear numbers of the selected programs that are here."""
        if self.here is None:
            return ()
        first = self.here.run.first
        return tuple(first + place for place in self.positions.tolist())

    def census(self) -> Census:
        """Return the places of all programs."""
        execution, grid = self._execution, self.launch.grid
        total = grid[0] * grid[1] * grid[2]
        if self.here is None:
            return Census(grid, (), (), 0, total, 0)
        run = self.here.run
        here = ALL_POSITIONS.positions(run).tolist()
        begun, ended = len(execution.begun), len(execution.ended)
        if run.scheduler is None:
            gone, waiting = run.first, 0
            not_begun = total - run.first - run.programs
        else:
            gone, waiting, not_begun = ended, begun - ended - 1, total - begun
        return Census(
            grid,
            tuple(run.first + place for place in here),
            tuple(elsewhere(run, execution.entered.get(run, ()))),
            waiting,
            gone,
            not_begun,
        )

    # Variables

    def variables(self, frame: int = 0) -> dict[str, Reading]:
        """The variables of a frame by name, for the selected programs that are here.

        Names without a value have an `Unavailable` that says why.
        """
        host = self.host_frame(frame)
        if host is not None:
            return host.variables()
        mark = self.mark_of(frame)
        assert self.here is not None
        positions = self.positions
        found = {name: self._read(value, positions, name) for name, value in mark.names.items()}
        missing = [name for name in mark.missing if name not in found]
        recalled = recall(self._execution, self.here, mark, missing, positions)
        for name in missing:
            found[name] = recalled.get(name) or Unavailable(mark.missing[name])
        return found

    def returned(self) -> Reading | None:
        """Return the value that the function is about to return, or None."""
        here = self.here
        if here is None or here.mark is None or here.mark.value is None:
            return None
        return self._read(here.mark.value, self.positions, "the returned value")

    def read(self, name: str, frame: int = 0) -> Reading:
        """One variable of a frame, or an argument of the launch.

        Raises:
            UsageError: there is no such variable or argument.
        """
        host = self.host_frame(frame)
        if host is None:
            return self.find(name, frame, self.positions if self.here is not None else None)
        found = host.read(name)
        if found is None:
            raise UsageError(f"`{name}` is not defined in {host.place.function}")
        return found

    def _read(self, value: Any, positions: Tensor, name: str) -> Reading:
        assert self.here is not None
        if not positions.numel():
            return Unavailable(f"none of {self.selection.text(self.launch.grid)} is here")
        return read(self.here.run, value, positions)

    # The IR

    @property
    def code(self) -> DebugCode:
        """The kernel's code at its stage."""
        return self._execution.code

    def read_ir(self, value: Value) -> Reading:
        """A value of the IR, for the selected programs that are here.

        Raises:
            UsageError: the launch has ended.
        """
        if self.here is None:
            raise UsageError("the launch has ended: its values are gone, its arguments are not")
        positions = self.positions
        if not positions.numel():
            return Unavailable(f"none of {self.selection.text(self.launch.grid)} is here")
        return read_ir_value(self.here.run, value, positions)

    def ir_value(self, text: str, frame: int = 0) -> Value:
        """The value of `%name`, or of a variable.

        Raises:
            UsageError: there is no such value.
        """
        name = text.strip()
        if name.startswith("%"):
            return value_named(self.code, name[1:])
        mark = self.mark_of(frame)
        found = mark.names.get(name)
        if name in mark.missing:
            raise UsageError(f"`{name}` is not available here: {mark.missing[name]}")
        if found is None:
            raise UsageError(f"`{name}` is not defined here")
        if not isinstance(found, tensor):
            raise UsageError(f"`{name}` is no tile and no number of the IR")
        return found.value

    def find(self, name: str, frame: int, positions: Tensor | None) -> Reading:
        """A variable for programs of the batch, or an argument of the launch.

        Raises:
            UsageError: there is no such variable or argument.
        """
        if positions is not None:
            mark = self.mark_of(frame)
            if name in mark.names:
                return self._read(mark.names[name], positions, name)
            if name in mark.missing:
                assert self.here is not None
                recalled = recall(self._execution, self.here, mark, (name,), positions)
                return recalled.get(name) or Unavailable(mark.missing[name])
        argument = argument_named(name, self.launch.arguments)
        if argument is not None:
            return Constant(self.launch.arguments[argument])
        raise UsageError(f"`{name}` is not defined here")

    # Expressions

    def evaluate(self, text: str, frame: int = 0, program: int | None = None) -> Any:
        """The value of an expression.

        Args:
            text: Python; tiles are torch tensors of their own shape, and scalars are numbers.
            frame: 0 for the innermost.
            program: a linear number; None for the selected ones.

        Returns:
            A `PerProgram` where several programs are meant and it reads a variable.

        Raises:
            EvaluationError: the expression raised.
        """
        host = self.host_frame(frame)
        if host is not None:
            return host.evaluate(text)
        spelled_text, of_ir = spelled(self.code, text)
        code = compile_expression(spelled_text)
        positions: Tensor | None = None
        if self.here is not None:
            positions = self.positions
            if program is not None:
                positions = torch.tensor([program - self.here.run.first])
        try:
            return Scope(self, frame, positions, of_ir).evaluate(code, text)
        except EvaluationError as error:
            hint = self._hint(error.__cause__, frame)
            raise EvaluationError(f"{error}{hint}") from error.__cause__

    def _hint(self, cause: BaseException | None, frame: int) -> str:
        """Say which function binds a variable that is not here: this one later, or a caller."""
        if not isinstance(cause, NameError) or frame >= len(self.marks):
            return ""
        name, mark = cause.name, self.marks[frame]
        if name in self.code.variables_of(mark.activation):
            return f"; {mark.activation.function} binds it later"
        callers = (one.activation.function for one in self.marks[frame + 1 :] if name in one.names)
        caller = next(callers, None)
        return "" if caller is None else f"; it is a variable of {caller}, which called this"

    def ask(self, text: str, frame: int = 0) -> Any:
        """Evaluate an expression to show it: the bare name of a variable gives a `Reading`.

        A tuple of expressions gives a tuple. Everything else is evaluated by `evaluate`.

        Raises:
            EvaluationError: the expression raised.
        """
        shown = text.strip()
        if shown.startswith("%") and shown[1:].isalnum() | shown[1:].isidentifier():
            return self.read_ir(value_named(self.code, shown[1:]))
        host = self.host_frame(frame)
        if host is not None and shown.isidentifier() and host.read(shown) is not None:
            return self.read(shown, frame)
        if host is None and shown.isidentifier() and self.here is not None:
            mark = self.mark_of(frame)
            if shown in mark.names or shown in mark.missing:
                return self.read(shown, frame)
        parts = tuple_parts(shown)
        if parts:
            return tuple(self.ask(each, frame) for each in parts)
        return self.evaluate(text, frame)

    def is_bound_later(self, names: Iterable[str]) -> bool:
        """Whether one of the names is a variable of this function that has no value yet."""
        if not self.marks:
            return False
        mark = self.marks[0]
        later = self.code.variables_of(mark.activation) - mark.names.keys() - mark.missing.keys()
        return not later.isdisjoint(names)

    def holds(self, code: Any, text: str, positions: Sequence[int], frame: int = 0) -> list[int]:
        """Return the batch positions where a condition holds, for each program by itself."""
        scope = Scope(self, frame, torch.tensor(positions), asks_alone=True)
        return [
            place
            for index, place in enumerate(positions)
            if truth(evaluate(code, scope.names(index), text))
        ]

    @property
    def source_file(self) -> str:
        """The file of the kernel."""
        return self._execution.code.module.function.location.primary.file

    # The past, executed again beside the launch

    @property
    def moment(self) -> Moment:
        """The moment of the stop; at the launch's end, the one after its last op."""
        return Moment(self._execution.now + 1, 0) if self.here is None else self.here.moment

    @property
    def execution(self) -> Execution:
        """The execution of the launch."""
        return self._execution

    def program_text(self, program: int) -> str:
        """A program's id as people write it."""
        return program_text(program, self.launch.grid)

    # Assignment

    def assigned(self, name: str, text: str, frame: int = 0) -> tuple[Any, Tensor]:
        """The IR value of a variable, and its tile once `text` is assigned to it.

        Raises:
            UsageError: the variable cannot be assigned; the message says why.
        """
        mark = self.mark_of(frame)
        assert self.here is not None
        run, found = self.here.run, mark.names.get(name)
        if found is None:
            reason = mark.missing.get(name, "the frame has no such variable")
            raise UsageError(f"`{name}` cannot be assigned: {reason}")
        if not isinstance(found, tensor) or found.type.scalar.is_ptr():
            raise UsageError(
                f"`{name}` cannot be assigned: only numbers and tiles of numbers can, it was "
                "compiled into the kernel or is a pointer"
            )
        if found.value not in run.values:
            raise UsageError(f"`{name}` cannot be assigned: its value is no longer kept")
        value = self.evaluate(text, frame)
        positions = self.positions
        dense = run.full(run.values[found.value], found.value.type)
        new = dense.expand(run.programs, *dense.shape[1:]).clone()
        shape = list(getattr(value, "shape", ()))
        if isinstance(value, PerProgram):
            if value.data is None:
                raise UsageError(f"`{name}` cannot be assigned: {text} is no number and no tile")
            shape = list(value.data.shape[1:])
            missing_axes = (1,) * (new.dim() - value.data.dim())
            value = value.data.reshape(len(value.data), *missing_axes, *shape)
        given = torch.as_tensor(value).to(new.dtype)
        try:
            new[positions] = given.expand_as(new[positions])
        except RuntimeError:
            raise UsageError(
                f"`{name}` has shape {list(new.shape[1:])}, and a value of shape {shape} "
                "does not fit"
            ) from None
        return found.value, new


ALL_POSITIONS = Selection()

__all__ = ["EvaluationError", "Inspection", "Launch"]
