"""Whether an edited kernel may fix a wrong program: the program runs as plain Python.

A kernel's source runs unchanged if its tiles are torch tensors and `tl` is a module for these
(`tile_language`). That takes a millisecond, and statements before an edit are not run again;
compiling and interpreting takes twenty. It decides nothing: an edit that passes is compiled, and
runs as every launch does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from tkdebug.causes.comparison import Comparison
from tkdebug.causes.kernel_text import Edit, span
from tkdebug.causes.tile_language import Language, MissingError, Number, Pointer
from tkdebug.compiler.dtypes import dtype
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.tensor import is_jit_function, unwrap

_BUILTINS = {
    **{"min": min, "max": max, "abs": abs, "int": int, "float": float, "bool": bool, "len": len},
    **{"print": lambda *_: None, "isinstance": isinstance, "tuple": tuple},
    "AssertionError": AssertionError,
}
_TICK, _RETURN = "__tick", "__return"


_State = tuple[dict[str, Any], list[tuple[Tensor, Any, Any]]]


class _ReturnedError(Exception):
    """Ends a kernel's run: raised in place of its `return`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The elements that a program should store.

    Attributes:
        flat: the allocation that is wrong, as elements.
        values: the expected value of each element, in fp64.
        known: the elements whose expected value is known.
        worst: place of the element that has to be right.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """

    flat: Tensor
    values: Tensor
    known: Tensor
    worst: int
    rtol: float
    atol: float

    @staticmethod
    def of(comparison: Comparison, target: Tensor, *, is_now: bool = False) -> Wanted:
        """Return the expected values of a comparison for a tensor; if `is_now`, the actual ones."""
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            flat = flat_of(target)
            places = torch.arange(flat.numel()).as_strided(
                tuple(target.shape), target.stride(), int(target.storage_offset())
            )
            values = torch.zeros(flat.numel(), dtype=torch.float64)
            known = torch.zeros(flat.numel(), dtype=torch.bool)
            source = comparison.actual if is_now else comparison.expected
            values[places] = source.detach().cpu().to(torch.float64)
            known[places] = True
            worst = int(places.reshape(-1)[comparison.worst])
        return Wanted(flat, values, known, worst, comparison.rtol, comparison.atol)


class Screening:
    """One program of a kernel, run with edits of its source.

    Args:
        function: the kernel.
        source: the kernel's source.
        arguments: by the names of its parameters, tensors as they are before the launch.
        program: its number along x, y and z.
        grid: programs along x, y and z.
        wanted: the elements that it should store.

    Raises:
        MissingError: the kernel uses something that `tile_language` lacks.
    """

    def __init__(
        self,
        function: FunctionType,
        source: KernelSource,
        arguments: Mapping[str, Any],
        program: tuple[int, int, int],
        grid: tuple[int, int, int],
        wanted: Wanted,
    ) -> None:
        self._function = function
        self._wanted = wanted
        self._language = Language(program, grid)
        self._trees: dict[FunctionType, _Tree] = {}
        self._sources: dict[FunctionType, KernelSource] = {}
        environment = self._environment(function, source)
        self._arguments = arguments
        for name, value in arguments.items():
            environment[name] = self._argument(value)
        # What the names are before each statement, and what was stored.
        self._states: list[_State] = []
        self._run(self._trees[function].codes, environment, self._states)
        self._language.be_strict()

    def agrees(self, values: Tensor) -> bool:
        """Whether the unchanged program stores about what the launch has stored.

        True, too, if it read outside of its memory: those values are not known.
        """
        return self._language.has_left_memory or self._is_right(values, 1e-2, 1e-2)

    def may_fix(self, function: FunctionType, edit: Edit) -> bool:
        """Whether the edited program stores the wanted values, or cannot be run like this."""
        try:
            return self._fixes(function, edit)
        except MissingError:
            return True
        except Exception:  # whatever an edited statement raises
            return False

    def element_of(self, leaf: Callable[[Tensor], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the wrong element as the program computes it, for autograd.

        Args:
            leaf: replaces an allocation of floats.

        Returns:
            The element, and the allocations that the parameters point into.

        Raises:
            MissingError: the program does not store the element.
        """
        environment, stored = dict(self._states[0][0]), self._states[0][1]
        flats = {}
        for name in self._arguments:
            pointer = environment[name]
            if isinstance(pointer, Pointer) and pointer.flat.is_floating_point():
                flats[name] = pointer.flat
                environment[name] = Pointer(leaf(pointer.flat), pointer.places)
        self._language.begin_again(stored)
        with torch._C.DisableTorchFunction(), torch.enable_grad():  # noqa: SLF001
            self._run_codes(self._trees[self._function].codes, environment, None)
            target = leaf(self._wanted.flat)
            for flat, places, values in reversed(self._language.stores):
                hit = (places.reshape(-1) == self._wanted.worst).nonzero()
                if flat is target and hit.numel():
                    return values.reshape(-1)[int(hit[-1])], flats
        raise MissingError("a store of the element")

    def _fixes(self, function: FunctionType, edit: Edit) -> bool:
        tree = self._trees.get(function)
        if tree is None:
            return True
        code, first, last = tree.edited(edit)
        if function is self._function:
            if first >= len(self._states):
                return False  # after the kernel's return
            environment, stored = self._states[first]
            codes = [code, *self._trees[function].codes[last + 1 :]]
        else:
            environment, stored = self._states[0]
            codes = self._trees[self._function].codes
        environment = dict(environment)
        if function is not self._function:
            exec(code, environment)
        self._language.begin_again(stored)
        self._run(codes, environment)
        wanted = self._wanted
        return self._is_right(wanted.values, wanted.rtol, wanted.atol)

    def _run(
        self,
        codes: Iterable[CodeType],
        environment: dict[str, Any],
        states: list[_State] | None = None,
    ) -> None:
        """Run statements; `states` gets the state before each."""
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            self._run_codes(codes, environment, states)

    def _run_codes(
        self, codes: Iterable[CodeType], environment: dict[str, Any], states: list[_State] | None
    ) -> None:
        try:
            for code in codes:
                if states is not None:
                    states.append((dict(environment), list(self._language.stores)))
                exec(code, environment)
        except _ReturnedError:
            pass

    def _is_right(self, values: Tensor, rtol: float, atol: float) -> bool:
        wanted = self._wanted
        stores = [store for store in self._language.stores if store[0] is wanted.flat]
        if not stores:
            return False
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            now = torch.zeros(wanted.flat.numel(), dtype=torch.float64)
            written = torch.zeros(wanted.flat.numel(), dtype=torch.bool)
            for _, places, stored in stores:
                now[places] = stored.to(torch.float64)
                written[places] = True
            if not bool(written[wanted.worst]):
                return False
            chosen = written & wanted.known
            # This is no verdict: edits that come near are compiled and run.
            close = torch.isclose(
                now[chosen], values[chosen], 4 * rtol + 1e-6, 4 * atol + 1e-9, equal_nan=True
            )
            return bool(close.all())

    # The values of names

    def _environment(self, function: FunctionType, source: KernelSource) -> dict[str, Any]:
        """Return the globals of a kernel as Python: those it reads, `range`, and its functions."""
        environment: dict[str, Any] = {
            "__builtins__": _BUILTINS,
            _TICK: self._language.tick,
            _RETURN: _ReturnedError,
            "range": self._language.rounds,
        }
        self._take(function, source, environment, is_kernel=True)
        return environment

    def _take(
        self,
        function: FunctionType,
        source: KernelSource,
        environment: dict[str, Any],
        *,
        is_kernel: bool,
    ) -> None:
        self._sources[function] = source
        tree = self._trees[function] = _Tree(source, is_kernel=is_kernel)
        closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for name in tree.names:
            if name in closed:
                value = closed[name].cell_contents
            elif name in function.__globals__:
                value = function.__globals__[name]
            else:
                continue
            self._add(name, value, environment)
        if not is_kernel:
            exec(tree.codes[0], environment)

    def _add(self, name: str, value: Any, environment: dict[str, Any]) -> None:
        if name in environment and name != "range":
            return
        value = unwrap(value)
        if is_jit_function(value):
            if value.fn in self._trees:
                return
            if value.fn.__name__ != name:
                raise MissingError(name)
            self._take(value.fn, value.kernel_source, environment, is_kernel=False)
        elif isinstance(value, ModuleType):
            environment[name] = self._language
        elif isinstance(value, int | float | str | bool | None):
            environment[name] = value
        elif isinstance(value, dtype):
            environment[name] = self._dtype(value)
        elif callable(value):
            environment[name] = getattr(self._language, getattr(value, "__name__", name))
        else:
            raise MissingError(name)

    def _argument(self, value: Any) -> Any:
        value = unwrap(value)
        if isinstance(value, Tensor):
            flat = flat_of(value)
            if flat.data_ptr() == self._wanted.flat.data_ptr():
                flat = self._wanted.flat
            return Pointer(flat, int(value.storage_offset()))
        if isinstance(value, dtype):
            return self._dtype(value)
        if isinstance(value, tuple):
            return tuple(map(self._argument, value))
        if type(value) is int:
            return Number(value)
        if isinstance(value, int | float | str | bool | None):
            return value
        raise MissingError(type(value).__name__)

    def _dtype(self, value: dtype) -> Any:
        return getattr(self._language, repr(value).rpartition(".")[2])


def flat_of(tensor: Tensor) -> Tensor:
    """Return a tensor's whole allocation, as elements of its type."""
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.element_size()
        flat = torch.empty(0, dtype=tensor.dtype, device=storage.device)
        return flat.set_(storage, 0, (count,), (1,))


class _Tree:
    """A function's statements, as Python that runs.

    Args:
        source: the source of the function.
        is_kernel: whether it runs statement by statement.

    Attributes:
        codes: the code of its statements; for a function that is called, code that defines it.
        names: the names of its module that it reads.
    """

    def __init__(self, source: KernelSource, *, is_kernel: bool) -> None:
        self._source, self._is_kernel = source, is_kernel
        definition = source.definition
        self._spans = [span(statement) for statement in definition.body]
        self._head = self._header(definition)
        names = [n for s in definition.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        own = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        own |= {argument.arg for argument in ast.walk(definition) if isinstance(argument, ast.arg)}
        self.names = {name.id for name in names} - own
        last = len(self._spans) - 1
        places = [(at, at) for at in range(last + 1)] if is_kernel else [(0, last)]
        self.codes = [self._compiled(source.lines, first, end) for first, end in places]

    def edited(self, edit: Edit) -> tuple[CodeType, int, int]:
        """Return the code of the statements that an edit changes, with the first and the last.

        Raises:
            SyntaxError: the edited source does not parse.
            MissingError: a change is in no statement of the function.
        """
        touched = [
            at
            for at, (begin, end) in enumerate(self._spans)
            for change in edit.changes
            if begin <= change.start and change.end <= end
        ]
        if len(touched) != len(edit.changes):
            raise MissingError("an edit of no statement")
        first, last = (min(touched), max(touched)) if self._is_kernel else (0, len(self._spans) - 1)
        return self._compiled(edit.lines(self._source), first, last), first, last

    def _compiled(self, lines: Sequence[str], first: int, last: int) -> CodeType:
        """Return the code of the statements `first` to `last`, from lines that may be edited."""
        begin = self._spans[first][0][0] - self._source.first_line
        more = len(lines) - len(self._source.lines)
        end = self._spans[last][1][0] - self._source.first_line + 1 + more
        text = "\n".join([self._head, *lines[begin:end]])
        (block,) = ast.parse(text).body
        assert isinstance(block, ast.If | ast.FunctionDef)
        self._make_runnable(block.body)
        module = ast.Module(block.body if self._is_kernel else [block], [])
        return compile(module, self._source.name, "exec")

    def _header(self, definition: ast.FunctionDef) -> str:
        if self._is_kernel:
            return "if 1:"
        arguments = definition.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise MissingError("arguments by star")
        defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults
        shown = (
            a.arg if default is None else f"{a.arg}={ast.unparse(default)}"
            for a, default in zip(arguments.args, defaults, strict=True)
        )
        return f"def {definition.name}({', '.join(shown)}):"

    def _make_runnable(self, block: list[ast.stmt]) -> None:
        """Rewrite `x += y` as an assignment, `return` as a raise; count iterations of `while`."""
        for at, statement in enumerate(block):
            for inner in (getattr(statement, "body", None), getattr(statement, "orelse", None)):
                if isinstance(inner, list):
                    self._make_runnable(inner)
            made: ast.stmt = statement
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                read = ast.Name(statement.target.id, ast.Load())
                value = ast.BinOp(read, statement.op, statement.value)
                made = ast.Assign([statement.target], value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                made = ast.Assign([statement.target], statement.value)
            elif isinstance(statement, ast.Return) and self._is_kernel:
                made = ast.Raise(ast.Name(_RETURN, ast.Load()), None)
            elif isinstance(statement, ast.While):
                tick = ast.Call(ast.Name(_TICK, ast.Load()), [], [])
                statement.test = ast.BoolOp(ast.And(), [tick, statement.test])
                ast.fix_missing_locations(statement)
            if made is not statement:
                block[at] = ast.fix_missing_locations(ast.copy_location(made, statement))
