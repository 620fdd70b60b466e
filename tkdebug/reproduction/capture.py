"""The launch behind a fault or a failed comparison, caught while a script runs.

Invariant: the script's memory is read and never written; what is caught has memory of its own.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.comparison import Comparison, written
from tkdebug.causes.launches import GoneError, Launched, RememberedLaunches, address_of
from tkdebug.causes.rerun import Budget, OutOfTimeError, Rerun
from tkdebug.errors import Frame
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.jit.function import JITFunction
from tkdebug.variations.launches import KeptLaunch, LaunchKeeper

if TYPE_CHECKING:
    from tkdebug.records.events import LaunchRecord
    from tkdebug.runtime.launch.requests import Grid

# Launches whose inputs are kept, and their bytes.
_MOST_KEPT = 16
_MOST_BYTES = 2 << 30
_COMPARISONS = ("assert_close", "allclose", "equal", "expect")
# Launches of one chain: each wrote what the next one reads.
_MOST_LAUNCHES = 4


class EnoughError(BaseException):
    """The launch was caught: the script need not go on."""


class _NotCaughtError(Exception):
    """The launches of a fault are not known."""


@dataclass(frozen=True, slots=True)
class Made:
    """A launch to be written, before anything of it is known to be needless.

    Attributes:
        function: the jit function.
        values: one for each parameter; their tensors as they were before the launch.
        options: the launch's options that differ from the usual ones.
    """

    function: Any
    grid: Grid
    values: tuple[Any, ...]
    options: dict[str, Any]

    @staticmethod
    def of(kept: KeptLaunch) -> Made:
        """Return a kept launch as one to be written."""
        return Made(kept.src.fn, kept.grid, kept.values, other_options(kept.src.options.as_dict()))


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison that failed.

    Attributes:
        written: the tensor that a launch wrote, in the memory of the caught launch.
        reference: the text of the expected tensor, in the script's names; "" if it is not known.
        names: the values that `reference` reads, by name: tensors in the memory of the caught
            launch, numbers, modules, functions.
        stored: the place of the store of the most wrong element, as a frame; None if not known.
    """

    comparison: Comparison
    written: Tensor
    reference: str
    names: dict[str, Any]
    stored: Frame | None


@dataclass(slots=True)
class Caught:
    """A symptom with its launches."""

    fault: Fault
    launches: Sequence[Made]
    compared: Compared | None = None


class Catcher:
    """Catches the launch of the fault that is asked for, as a `LaunchDebugger` that stops nowhere.

    Args:
        is_wanted: whether a fault is the one.

    Attributes:
        caught: the fault; None before it was found.
        spare: the first warning, for a script without errors.
        seen: the other faults.
        failure: why the launch of the fault could not be caught; "" if it was.
        spare_failure: the same of the first warning.
    """

    def __init__(self, is_wanted: Callable[[Fault], bool]) -> None:
        self.caught: Caught | None = None
        self.spare: Caught | None = None
        self.seen: list[Fault] = []
        self.failure = ""
        self.spare_failure = ""
        self._is_wanted = is_wanted
        # By their ids, the oldest first: some faults are found when later launches have run.
        self._kept: dict[int, KeptLaunch] = {}
        self._too_large: set[int] = set()
        # With `enter`, launches have ids.
        self._hook = Hook(enter=lambda kernel, record: None, fault=self._fault)

    def __enter__(self) -> Catcher:
        self._before, HOOKS.debugger = HOOKS.debugger, self
        HOOKS.add(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        HOOKS.remove(self._hook)
        HOOKS.debugger = self._before
        self._kept.clear()

    def launch(
        self, kernel: object, grid: Grid, values: tuple[Any, ...], record: LaunchRecord | None
    ) -> bool:
        """Keep a copy of the launch that is about to run; return False, as it is not run here.

        Raises:
            EnoughError: the fault was caught already.
        """
        if self.caught is not None:
            raise EnoughError
        keeper = LaunchKeeper(None, _MOST_BYTES)
        keeper.launch(kernel, grid, values, record)
        number = 0 if record is None else record.id
        if not keeper.kept:
            self._too_large.add(number)
            return False
        self._kept[number] = keeper.kept[0]
        while sum(one.size_bytes for one in self._kept.values()) > _MOST_BYTES or (
            len(self._kept) > _MOST_KEPT
        ):
            del self._kept[next(iter(self._kept))]
        return False

    def _fault(self, fault: Fault) -> None:
        if self.caught is not None:
            return
        if not self._is_wanted(fault):
            self.seen.append(fault)
            if self.spare is None and not self.spare_failure and fault.is_open:
                self.spare, self.spare_failure = self._caught(fault)
            return
        caught, failure = self._caught(fault)
        self.caught, self.failure = caught, self.failure or failure

    def _caught(self, fault: Fault) -> tuple[Caught | None, str]:
        """Return a fault with its launches; None without them, and the reason."""
        try:
            if fault.kind == "mismatch":
                return self._mismatch(fault), ""
            if fault.kind == "compile-error":
                return Caught(fault, [_compiled(sys._getframe())]), ""  # noqa: SLF001
            return Caught(fault, [Made.of(self._launch_of(fault))]), ""
        except _NotCaughtError as error:
            return None, f"{fault.kind} in {fault.kernel}: {error}"

    def _launch_of(self, fault: Fault) -> KeptLaunch:
        number = fault.launch_id
        if number in self._kept:
            return self._kept[number]
        if number in self._too_large:
            raise _NotCaughtError(f"its launch has more than {_MOST_BYTES >> 30} GiB of inputs")
        if not number:
            raise _NotCaughtError("its launch has no programs, so that there is nothing to run")
        raise _NotCaughtError(
            f"it was found after too many other launches: the last {_MOST_KEPT} are kept, of at "
            f"most {_MOST_BYTES >> 30} GiB"
        )

    def _mismatch(self, fault: Fault) -> Caught:
        launches = HOOKS.follower
        assert isinstance(launches, RememberedLaunches)
        assert launches.failed is not None
        comparison, _ = launches.failed
        found = written(comparison.actual, launches)
        if found is None:
            raise _NotCaughtError("no launch that is remembered wrote what was compared")
        frame = _frame_of(comparison.frames)
        reference, names = _reference(frame) if frame is not None else ("", {})
        try:
            chain = _chain(found.launched, launches)
            memory: dict[int, Tensor] = {}
            for each in reversed(chain):
                memory |= each.kept()
            made = [_made(one, memory) for one in chain]
            stored = _last_store(comparison, chain, found.tensor)
        except (GoneError, OutOfTimeError) as error:
            raise _NotCaughtError(str(error) or "the launch alone takes too long") from error
        tensor = _on(found.tensor, memory)
        names = {
            name: _on(value, memory) if isinstance(value, Tensor) else value
            for name, value in names.items()
        }
        return Caught(fault, made, Compared(comparison, tensor, reference, names, stored))


def other_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a launch that are not the usual ones, and change what it computes."""
    usual = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "debug": False}
    return {name: options[name] for name, value in usual.items() if options[name] != value}


def _compiled(frame: FrameType | None) -> Made:
    """Return the launch whose kernel is being compiled, by the frames of the call.

    Raises:
        _NotCaughtError: it is compiled for no launch.
    """
    run = JITFunction._run_interpreted.__code__  # noqa: SLF001
    while frame is not None and frame.f_code is not run:
        frame = frame.f_back
    if frame is None:
        raise _NotCaughtError("it was compiled for no launch")
    held = frame.f_locals
    grid = held["grid"]
    if callable(grid):
        grid = grid(dict(zip(held["self"].arg_names, held["values"], strict=True)))
    grid = (grid,) if isinstance(grid, int) else tuple(grid)
    whole = (*grid, 1, 1)[:3]
    usual = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "debug": False}
    return Made(held["self"], whole, held["values"], other_options({**usual, **held["options"]}))


def _chain(launched: Launched, launches: RememberedLaunches) -> list[Launched]:
    """Return the launches that wrote a launch's inputs, in order, and then the launch."""
    chain = [launched]
    while len(chain) < _MOST_LAUNCHES:
        before = launches.writer_before(chain)
        if before is None:
            break
        chain.insert(0, before)
    return chain


def _made(launched: Launched, memory: dict[int, Tensor]) -> Made:
    values = tuple(_on(value, memory) for value in launched.values())
    src = launched.kernel.src
    return Made(src.fn, launched.grid, values, other_options(src.options.as_dict()))


def _last_store(comparison: Comparison, chain: Sequence[Launched], tensor: Tensor) -> Frame | None:
    """Return the place of the last store of the most wrong element, None if it is not known."""
    rerun = Rerun(chain, tensor, Budget(60))
    if not rerun.can_run:
        return None
    at = sum(i * step for i, step in zip(comparison.index, tensor.stride(), strict=True))
    store = rerun.store_of((int(tensor.storage_offset()) + at) * tensor.element_size())
    return store.op.location.frames[-1] if store else None


def _on(value: Any, memory: dict[int, Tensor]) -> Any:
    """Return a value whose tensors are in copies of their allocations."""
    if isinstance(value, tuple):
        return tuple(_on(one, memory) for one in value)
    if isinstance(getattr(value, "base", None), Tensor):
        described = copy.copy(value)
        described.base = _on(value.base, memory)
        return described
    if not isinstance(value, Tensor):
        return value
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        held = memory.get(address_of(value))
        if held is None:
            return value.detach().clone()
        out = torch.empty(0, dtype=value.dtype)
        storage = held.cpu().untyped_storage()
        return out.set_(storage, value.storage_offset(), tuple(value.shape), value.stride())


def _frame_of(frames: Sequence[Frame]) -> FrameType | None:
    """Return the frame of the running comparison, or None if it is not on the stack."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    last = frames[-1] if frames else None
    while frame is not None and last is not None:
        if (frame.f_code.co_filename, frame.f_lineno) == (last.file, last.line):
            return frame
        frame = frame.f_back
    return None


def _reference(frame: FrameType) -> tuple[str, dict[str, Any]]:
    """Return the expression of the expected tensor, and the values of the names that it reads.

    If the call of the comparison is not found in the source, these are "" and {}.
    """
    from tkdebug.process.named_files import source_lines

    try:
        tree = ast.parse("".join(source_lines(frame.f_code.co_filename, frame.f_globals)))
    except (SyntaxError, ValueError, RecursionError):
        return "", {}
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
        and len(node.args) >= 2
        and ast.unparse(node.func).rpartition(".")[2] in _COMPARISONS
    ]
    if not calls:
        return "", {}
    scope = _scope(tree, frame)
    known = {**frame.f_globals, **frame.f_locals}
    text = ast.unparse(_followed(calls[0].args[1], scope, calls[0].lineno, known))
    names = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
    return text, {name: known[name] for name in names if name in known}


def _scope(tree: ast.Module, frame: FrameType) -> Sequence[ast.stmt]:
    """Return the statements of a frame's function, or of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == frame.f_code.co_name:
            if node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
                return node.body
    return tree.body


def _followed(
    node: ast.expr, scope: Sequence[ast.stmt], line: int, known: dict[str, Any], depth: int = 4
) -> ast.expr:
    """Return the expression that a name was assigned if it reads tensors; else `node` itself."""
    if not isinstance(node, ast.Name) or depth == 0:
        return node
    assigned = [
        statement.value
        for statement in scope
        if isinstance(statement, ast.Assign)
        and statement.lineno < line
        and [ast.unparse(target) for target in statement.targets] == [node.id]
    ]
    if not assigned:
        return node
    value = assigned[-1]
    # A tensor that the script made of numbers is an input, and its name is enough.
    if not any(
        isinstance(inner, ast.Name) and isinstance(known.get(inner.id), Tensor)
        for inner in ast.walk(value)
    ):
        return node
    return _followed(value, scope, line, known, depth - 1)
