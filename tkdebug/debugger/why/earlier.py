"""Earlier launches, executed again on copies of their inputs, to see how an element was computed.

Responsible for an inspection of such a launch at its end, which is like that of a stopped one.
Invariants: the script's memory is read and never written; a launch is looked at only if it stores
the value that was loaded, and computes it from nothing that has changed since.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.causes.launches import GoneError, Launched, RememberedLaunches, address_of
from tkdebug.causes.rerun import Budget, OutOfTimeError, Rerun
from tkdebug.compiler.dialects import tt
from tkdebug.debugger.code import DebugCode
from tkdebug.debugger.elements import Element, tensor_in
from tkdebug.debugger.execution import Execution, Here, LastFaults
from tkdebug.debugger.inspection import Inspection, Launch
from tkdebug.debugger.programs import ALL
from tkdebug.errors import TkError, UsageError
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.replay import read_arguments
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.specialize import runtime_values

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.debugger.why.writers import Writer
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.records.events import Fault

_SECONDS = 10.0
_MOST_LAUNCHES = 4
# Copies of a launch's memory between its batches.
_CHECKPOINT_BYTES = 256 << 20
_KEEPS = "; TKDEBUG_CAUSE=1 keeps that"
_CHANGED = f"what it was given has changed since{_KEEPS}"


class CannotFollowError(UsageError):
    """A launch cannot be interpreted again; the message says why."""


@dataclass(frozen=True, slots=True)
class Following:
    """The limits within which an explanation may go on into other programs and launches.

    Attributes:
        budget: the time for all of them.
        left: how many more it may follow, one after the other.
    """

    budget: Budget
    left: int = _MOST_LAUNCHES

    @classmethod
    def begun(cls) -> Following:
        """Return the limits at the beginning of an explanation."""
        return cls(Budget(_SECONDS))

    def further(self) -> Following:
        """Return the limits that are left after one more program or launch."""
        return Following(self.budget, self.left - 1)


class _Unstopped:
    """A stop finder that never stops, and ends an execution for which there is no time."""

    looks_at_ops = False
    follows_accesses = False

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def arrived(self, here: Here) -> None:
        """Do nothing, so that the launch goes on."""

    def look(self, here: Here) -> None:
        """Raise OutOfTimeError if the budget is used up."""
        if self._budget.used() >= 1:
            raise OutOfTimeError

    def accessed(self, here: Here, access: ObservedAccess, is_write: bool) -> None:
        """Do nothing, so that the launch goes on."""

    def faulted(self, here: Here, fault: Fault) -> None:
        """Do nothing, so that the launch goes on."""


@dataclass(frozen=True, slots=True)
class Again:
    """The end of an earlier launch that was executed again.

    Attributes:
        element: the element that was asked for, there.
        is_same: whether it has the value that was loaded.
        is_guessed: whether the launch reads memory whose contents are not known.
    """

    inspection: Inspection
    element: Element
    is_same: bool
    is_guessed: bool


def executed_again(
    inspection: Inspection, writer: Writer, address: int, byte: int, value: Tensor, budget: Budget
) -> Again:
    """Execute a launch that has written to an element's tensor; return its end.

    Args:
        inspection: the inspection of a later launch.
        writer: the launch.
        address: the address of the element's allocation in the script.
        byte: the element's place there.
        value: the value that the later launch has loaded.
        budget: the time.

    Raises:
        CannotFollowError: it cannot be interpreted again.
    """
    launched = _remembered(writer)
    if launched is None:
        raise CannotFollowError("what it was given is not remembered")
    try:
        for is_zero in (False,) if launched.before else (False, True):
            found = _executed(inspection, writer, launched, is_zero, budget)
            element = _element(found.arguments, address, byte, found.origins)
            if element is None:
                raise CannotFollowError("the element is in no tensor argument of it")
            is_same = _is_same(element.tensor[element.index], value)
            again = Again(found.inspection(launched), element, is_same, found.is_guessed)
            if is_same:
                break
    except GoneError as error:
        raise CannotFollowError(f"{error}{_KEEPS}") from None
    except OutOfTimeError:
        raise CannotFollowError(f"it would take longer than {_SECONDS:g} s") from None
    except TkError as error:
        raise CannotFollowError(str(error)) from error
    return again


@dataclass(frozen=True, slots=True)
class _Executed:
    """A launch that was executed again.

    Attributes:
        arguments: its tensors in memory of their own, and its other arguments.
        origins: the script's allocation for each one in which a copy is, by address.
        filled: the allocations whose contents before it are not known.
        is_guessed: whether it may read some of these.
    """

    writer: Writer
    execution: Execution
    arguments: dict[str, object]
    origins: dict[int, int]
    filled: frozenset[int]
    is_guessed: bool
    around: Launch

    def inspection(self, launched: Launched) -> Inspection:
        """Return the inspection of its end."""
        remembered = HOOKS.follower
        assert isinstance(remembered, RememberedLaunches)
        wrote: dict[int, Writer] = {}
        for place in range(self.writer.place - 1, -1, -1):
            before = remembered.at(place)
            if before is None:
                break
            for address in before.stored_storages():
                wrote.setdefault(address, self.around.writers.at(place, before.kernel.name))
        keys = (address_of(tensor) for _, tensor in _tensors(self.arguments))
        known = {key: wrote.get(self.origins.get(key, key)) for key in keys}
        launch = Launch(
            self.writer.number,
            self.writer.kernel,
            launched.grid,
            self.arguments,
            {key: writer for key, writer in known.items() if writer is not None},
            self.around.writers,
            origins=self.origins,
            filled=self.filled,
        )
        return Inspection(launch, self.execution, None, ALL)


def refuse_unknown(again: Again, loaded: Iterable[Buffer]) -> None:
    """Refuse an explanation that rests on memory whose contents before the launch are not known.

    Args:
        again: the launch that was executed again.
        loaded: the buffers that the explanation loads from.

    Raises:
        CannotFollowError: it loads from such memory, or the element has another value.
    """
    filled = again.inspection.launch.filled
    if not again.is_same or any(buffer.storage_key in filled for buffer in loaded):
        raise CannotFollowError(_CHANGED)


def writer_before(again: Again) -> Writer | None:
    """Return the launch that wrote an element's tensor before one that did not write the element.

    Returns:
        The launch, or None if none is remembered.

    Raises:
        CannotFollowError: which elements it wrote may depend on memory that is not known.
    """
    if again.is_guessed:
        raise CannotFollowError(_CHANGED)
    return again.inspection.launch.written_before.get(again.element.storage_key)


def _executed(
    inspection: Inspection, writer: Writer, launched: Launched, is_zero: bool, budget: Budget
) -> _Executed:
    kernel = launched.kernel
    rerun = Rerun([launched], torch.empty(0), budget)
    if not rerun.can_run:
        raise CannotFollowError(
            "its programs wait for each other, or write to memory that is no argument"
        )
    values, copied = rerun.last_apart(is_zero)
    kept = {address_of(copy): address for address, copy in launched.kept().items()}
    origins = {own: kept.get(address, address) for own, address in copied.items()}
    filled = frozenset(own for own, origin in origins.items() if origin not in launched.kept())
    arguments = dict(zip(kernel.src.fn.arg_names, values, strict=True))
    faults = LastFaults(kernel.name, 0, launched.grid, False, arguments)
    execution = Execution(
        DebugCode.of(kernel),
        runtime_values(kernel.src.specs, values),
        launched.grid,
        faults,
        _Unstopped(budget),
        _CHECKPOINT_BYTES,
    )
    execution.execute(lambda: True)
    is_guessed = _reads(kernel.module, arguments, filled)
    return _Executed(writer, execution, arguments, origins, filled, is_guessed, inspection.launch)


def _reads(module: Module, arguments: dict[str, object], storages: frozenset[int]) -> bool:
    """Whether a kernel may read some storages."""
    read, names = read_arguments(module), tt.Func(module.function).arg_names
    if read is None or not storages:
        return bool(storages)
    whole = [arguments.get(names[place].partition(".")[0]) for place in read]
    tensors = _tensors({str(place): value for place, value in enumerate(whole)})
    return any(address_of(tensor) in storages for _, tensor in tensors)


def _tensors(arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of arguments, those of tuples by the names of their items, too."""
    for name, value in arguments.items():
        tensor = tensor_in(value)
        if tensor is not None:
            yield name, tensor
        elif isinstance(value, tuple):
            yield from _tensors({f"{name}.{place}": item for place, item in enumerate(value)})


def _element(
    arguments: dict[str, object], address: int, byte: int, origins: dict[int, int]
) -> Element | None:
    for name, tensor in _tensors(arguments):
        if origins.get(address_of(tensor), address_of(tensor)) == address:
            element = element_at(name, Buffer(tensor, name), byte)
            if element is not None:
                return element
    return None


def element_at(name: str, buffer: Buffer, byte: int) -> Element | None:
    """Return the element of a tensor whose first byte is at a place of its allocation, or None."""
    tensor, itemsize = buffer.tensor, buffer.itemsize
    rest, remainder = divmod(byte, itemsize)
    rest -= buffer.storage_offset
    if remainder or rest < 0 or not tensor.numel() or itemsize != tensor.element_size():
        return None
    index = [0] * tensor.dim()
    strides = tensor.stride()
    for axis in sorted(range(tensor.dim()), key=lambda axis: -strides[axis]):
        stride = strides[axis]
        if stride > 0:
            index[axis], rest = divmod(rest, stride)
    if rest or any(at >= extent for at, extent in zip(index, tensor.shape, strict=True)):
        return None
    return Element(name, tuple(index), buffer.storage_key, byte, itemsize, tensor)


def _is_same(stored: Tensor, loaded: Tensor) -> bool:
    """Whether two numbers are the same, two NaNs, too."""
    stored, loaded = stored.detach().cpu().reshape(()), loaded.cpu().reshape(())
    if stored.is_floating_point() != loaded.is_floating_point():
        return False
    if stored.is_floating_point():
        stored, loaded = stored.double(), loaded.double()
    return bool(stored == loaded) or (bool(stored != stored) and bool(loaded != loaded))


def command_there(writer: Writer, address: int, byte: int) -> str:
    """Return the `tkdebug debug` command that asks `why` of an element at the end of a launch.

    It has no `why` if the element has no name there, and `…` for a script that is no .py file.

    Args:
        writer: the launch.
        address: the address of the element's allocation.
        byte: the element's place there.
    """
    words = ["-c", f"b end {writer.kernel}"]
    if writer.ordinal > 1:
        words += ["-c", f"ignore 1 {writer.ordinal - 1}"]
    words += ["-c", "c"]
    launched = _remembered(writer)
    tensors = {} if launched is None else dict[str, object](launched.tensors())
    element = _element(tensors, address, byte, {})
    if element is not None:
        words += ["-c", f"why {element}"]
    script = sys.argv if sys.argv and sys.argv[0].endswith(".py") else ["…"]
    return f"tkdebug debug {shlex.join([*words, *script])}"


def _remembered(writer: Writer) -> Launched | None:
    remembered = HOOKS.follower
    launched = remembered.at(writer.place) if isinstance(remembered, RememberedLaunches) else None
    return launched if launched is not None and launched.kernel.name == writer.kernel else None
