"""Launches that run again on copies of their outputs, unchanged or with edited sources.

Invariant: the script's memory is read and never written.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.fp64 import NotLiftableError, lift
from tkdebug.causes.launches import Launched, address_of
from tkdebug.compiler.dialects import scf
from tkdebug.compiler.frontend.arguments import Constant
from tkdebug.compiler.ir import Operation, Region
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.launch import run_programs
from tkdebug.interpreter.memory_usage import written_arguments
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.scheduler import spin_loops
from tkdebug.runtime.compile.compilation import compile_with_sources

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.source import KernelSource
    from tkdebug.compiler.ir import Module
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.state import EvaluatorState

Sources = Mapping[FunctionType, "KernelSource"]
# What written memory holds before the first launch: NaNs, or zeros where launches add to it.
_POISON, _ZERO = 0xFF, 0


_LOOPS = names_of(scf.For, scf.While)


_WALL = 4.0


class OutOfTimeError(Exception):
    """The given time is over."""


class Budget:
    """Processor time that this thread may use, and at most `_WALL` times as much by the clock.

    Args:
        seconds: the seconds of it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun = time.thread_time()
        self._wall_end = time.monotonic() + _WALL * seconds

    def used(self) -> float:
        """Return the part that is used, 1 or more when it is over."""
        if time.monotonic() > self._wall_end:
            return 1.0
        return (time.thread_time() - self._begun) / self.seconds


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Have torch use one thread: a program at a time is little work, and waking others costs more.

    Woken threads spin while they wait, which counts as processor time of the budget.
    """
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


class Deadline(Observer):
    """Ends a run whose budget is used up, at the next iteration of a loop."""

    is_passive = True

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def moments(self, op: Operation) -> Moments:
        """Ask for the regions of ops: the edges of loops and branches."""
        return Moments.REGIONS if op.regions else Moments.NEVER

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[Any]) -> None:
        """Raise OutOfTimeError if the budget is used up."""
        if self._budget.used() >= 1:
            raise OutOfTimeError


def deadline(budget: Budget, module: Module) -> list[Observer]:
    """Return the observer that ends a run that takes too long; [] if the kernel has no loops."""
    has_loops = any(op.name in _LOOPS for op in module.walk())
    return [Deadline(budget)] if has_loops else []


@dataclass(frozen=True, slots=True)
class Store:
    """A store of an element: the op, and the linear number of the program that ran it."""

    op: Operation
    program: int


class StoreFinder(Observer):
    """Notes the last store of one element of an allocation."""

    follows_accesses = True
    is_passive = True

    def __init__(self, address: int, byte: int) -> None:
        self._address, self._byte = address, byte
        self.found: Store | None = None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a store or an atomic that touches the element."""
        if access.buffer.storage_key == self._address:
            touched = access.touch()
            hit = (touched.places * access.itemsize == self._byte).nonzero().reshape(-1)
            if hit.numel():
                self.found = Store(access.op, int(touched.programs[int(hit[-1])]))

    atomic_done = written


class Rerun:
    """Launches that lead to a tensor, to be run again.

    Args:
        launches: in their order; the last one wrote the tensor.
        target: the tensor, as it is in memory.
        budget: the time for all runs.

    Raises:
        GoneError: an argument has been freed.
    """

    def __init__(self, launches: Sequence[Launched], target: Tensor, budget: Budget) -> None:
        self.launches = launches
        self.budget = budget
        self._target = target
        self._given = [launched.run_time_values() for launched in launches]
        written = frozenset().union(*(launched.stored_storages() for launched in launches))
        self._written = written
        self._fill: int | None = _POISON
        # The contents of each allocation that the first launch that takes it has kept.
        self._before: dict[int, Tensor] = {}
        for launched in reversed(launches):
            self._before |= launched.kept()
            # A freed allocation is replaced by its copy, which has an address of its own.
            self._before |= {address_of(copy): copy for copy in launched.kept().values()}
        self._modules: list[Module] = [launched.kernel.module for launched in launches]

    @property
    def can_run(self) -> bool:
        """Whether no programs wait for each other, and all that is written is known."""
        return not any(
            spin_loops(module) or written_arguments(module) is None for module in self._modules
        )

    def reproduces(self) -> bool:
        """Whether the launches give the tensor again, bit for bit, with the inputs as they are now.

        Raises:
            OutOfTimeError: time is over.
        """
        for fill in (None,) if self._before else (_POISON, _ZERO):
            self._fill = fill
            again = self.run()
            if again is not None and _same_bits(again, self._target):
                return True
        return False

    def run(
        self,
        sources: Sources | None = None,
        programs: Sequence[range] | None = None,
        observers: Sequence[Observer] = (),
    ) -> Tensor | None:
        """Return the tensor after the launches.

        None if an edited launch has a fault, or writes to arguments that the original does not.

        Args:
            sources: edited sources.
            programs: the programs of the last launch that run; None for all.
            observers: observers of the last launch.

        Raises:
            OutOfTimeError: time is over.
            TkError: an edited kernel does not compile.
        """
        memory: dict[int, torch.UntypedStorage] = {}
        last = len(self.launches) - 1
        for at, launched in enumerate(self.launches):
            module = self._modules[at]
            if sources:
                module = compile_with_sources(launched.kernel.src, sources)
                if not _writes_no_more(module, self._modules[at]):
                    return None
            values = [self._moved(value, memory) for value in self._given[at]]
            x, y, z = launched.grid
            chosen = programs if at == last and programs is not None else [range(x * y * z)]
            log = FaultLog(launched.kernel.name, 0, launched.grid, is_reported=False)
            looking = [*self._deadline(module), *(observers if at == last else ())]
            run_programs(module, values, launched.grid, chosen, log, (), looking)
            if sources and log.publish():
                return None
        out: Tensor = self._moved(self._target, memory)
        return out

    def run_in_fp64(self, line: tuple[str, int] | None = None) -> Tensor:
        """Return the tensor after the launches computed in fp64.

        Args:
            line: file and number of a line whose ops keep their own types.

        Raises:
            NotLiftableError: a kernel has ops that mean nothing in fp64.
            OutOfTimeError: time is over.
        """
        out = self._in_fp64({}, line)
        assert out is not None
        return out

    def edited_in_fp64(self, sources: Sources) -> Tensor | None:
        """Return the tensor after edited launches in fp64.

        None if a launch has a fault, or writes to arguments that the original does not.

        Raises:
            NotLiftableError: a kernel has ops that mean nothing in fp64.
            OutOfTimeError: time is over.
            TkError: an edited kernel does not compile.
        """
        return self._in_fp64(sources, None)

    def _in_fp64(self, sources: Sources, line: tuple[str, int] | None) -> Tensor | None:
        memory: dict[int, torch.UntypedStorage] = {}
        for at, launched in enumerate(self.launches):
            module = compile_with_sources(launched.kernel.src, sources)
            if sources and not _writes_no_more(module, self._modules[at]):
                return None
            lift(module, line)
            values = [self._widened(value, memory) for value in self._given[at]]
            x, y, z = launched.grid
            log = FaultLog(launched.kernel.name, 0, launched.grid, is_reported=False)
            run_programs(
                module, values, launched.grid, [range(x * y * z)], log, (), self._deadline(module)
            )
            if sources and log.publish():
                return None
        out: Tensor = self._widened(self._target, memory)
        return out

    def _widened(self, value: Any, memory: dict[int, torch.UntypedStorage]) -> Any:
        """A value with its floats in fp64, in memory of its own."""
        if isinstance(getattr(value, "base", None), Tensor):
            described = copy.copy(value)
            described.base = self._widened(value.base, memory)
            return described
        if not isinstance(value, Tensor):
            return value
        if not value.is_floating_point():
            return self._moved(value, memory)
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            storage = value.untyped_storage()
            count = storage.nbytes() // value.element_size()
            own = memory.get(storage.data_ptr())
            if own is None:
                if self._fill is not None and storage.data_ptr() in self._written:
                    number = math.nan if self._fill == _POISON else 0.0
                    wide = torch.full((count,), number, dtype=torch.float64, device=storage.device)
                else:
                    held = storage if self._fill is not None else self._initial(storage)
                    flat = torch.empty(0, dtype=value.dtype, device=storage.device)
                    wide = flat.set_(_storage_of(held), 0, (count,), (1,)).to(torch.float64)
                own = memory[storage.data_ptr()] = wide.untyped_storage()
            if own.nbytes() // 8 != count:
                raise NotLiftableError("an allocation is used with types of two sizes")
            out = torch.empty(0, dtype=torch.float64, device=storage.device)
            return out.set_(own, value.storage_offset(), tuple(value.shape), value.stride())

    @property
    def marks_written(self) -> bool:
        """Whether `is_written` can recognise unwritten memory: not if it was filled with zeros."""
        return self._fill != _ZERO

    def is_written(self, tensor: Tensor) -> Tensor:
        """Return where a tensor of `run`'s result was changed: bool, of its shape, on the CPU."""
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            size, before = tensor.element_size(), self._moved(self._target, {})
            now, then = (
                each.cpu().reshape(-1).view(torch.uint8).reshape(*tensor.shape, size)
                for each in (tensor, before)
            )
            return (now != then).any(-1)

    def store_of(self, byte: int) -> Store | None:
        """Return the last store of the element at a byte of the tensor's allocation, or None.

        Raises:
            OutOfTimeError: time is over.
        """
        memory: dict[int, torch.UntypedStorage] = {}
        moved = self._moved(self._target, memory)
        finder = StoreFinder(address_of(moved), byte)
        self._run_on(memory, finder, self.launches)
        return finder.found

    def arguments_of_last(self) -> tuple[dict[str, Any], Tensor]:
        """Return the last launch's inputs, by parameter, and the tensor in that memory.

        Tensors of a GPU are copied to host memory.

        Raises:
            OutOfTimeError: time is over.
        """
        memory: dict[int, torch.UntypedStorage] = {}
        copies: dict[int, torch.UntypedStorage] = {}
        self._run_on(memory, None, self.launches[:-1])
        last = self.launches[-1]
        names, specs = last.kernel.src.fn.arg_names, last.kernel.src.specs
        given = {
            name: spec.value
            if isinstance(spec, Constant)
            else _on_host(self._moved(value, memory), copies)
            for name, spec, value in zip(names, specs, last.values(), strict=True)
        }
        return given, _on_host(self._moved(self._target, memory), copies)

    def last_apart(self, is_zero: bool) -> tuple[tuple[Any, ...], dict[int, int]]:
        """Return the last launch's inputs, in memory of their own, for an execution elsewhere.

        Args:
            is_zero: whether memory that it writes, and of which nothing was kept, holds zeros.

        Returns:
            A value for each parameter, and by its address the allocation that each copy is of.

        Raises:
            GoneError: a tensor was freed.
        """
        self._fill = _ZERO if is_zero else _POISON
        memory: dict[int, torch.UntypedStorage] = {}
        values = tuple(self._moved(value, memory) for value in self.launches[-1].values())
        return values, {own.data_ptr(): address for address, own in memory.items()}

    def _run_on(
        self,
        memory: dict[int, torch.UntypedStorage],
        observer: Observer | None,
        launches: Sequence[Launched],
    ) -> None:
        for at, launched in enumerate(launches):
            values = [self._moved(value, memory) for value in self._given[at]]
            x, y, z = launched.grid
            log = FaultLog(launched.kernel.name, 0, launched.grid, is_reported=False)
            looking = self._deadline(self._modules[at])
            looking += [observer] if observer and at == len(self.launches) - 1 else []
            run_programs(
                self._modules[at], values, launched.grid, [range(x * y * z)], log, (), looking
            )

    def _initial(self, storage: torch.UntypedStorage) -> Tensor:
        """The bytes that an allocation has before the first launch, in memory of their own."""
        kept = self._before.get(storage.data_ptr())
        if kept is not None:
            return kept.clone()
        fill = _POISON if self._fill is None else self._fill
        return torch.full((storage.nbytes(),), fill, dtype=torch.uint8, device=storage.device)

    def _deadline(self, module: Module) -> list[Observer]:
        return deadline(self.budget, module)

    def _moved(self, value: Any, memory: dict[int, torch.UntypedStorage]) -> Any:
        """A value whose written memory is in copies of its own."""
        if isinstance(getattr(value, "base", None), Tensor):
            described = copy.copy(value)
            described.base = self._moved(value.base, memory)
            return described
        if not isinstance(value, Tensor):
            return value
        address = address_of(value)
        if address not in self._written and address not in self._before:
            return value
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            storage = value.untyped_storage()
            own = memory.get(address)
            if own is None:
                # The kept copy of an allocation that no launch writes is read in place.
                filled = (
                    self._initial(storage) if address in self._written else self._before[address]
                )
                own = memory[address] = filled.untyped_storage()
            out = torch.empty(0, dtype=value.dtype, device=storage.device)
            return out.set_(own, value.storage_offset(), tuple(value.shape), value.stride())


def _on_host(value: Any, copies: dict[int, torch.UntypedStorage]) -> Any:
    """Return a tensor of a GPU as one of the CPU, in a copy of its allocation, or the value."""
    if not isinstance(value, Tensor):
        return value
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        storage = value.untyped_storage()
        if storage.device.type == "cpu":
            return value
        if storage.data_ptr() not in copies:
            copies[storage.data_ptr()] = storage.cpu()  # type: ignore[no-untyped-call]
        out = torch.empty(0, dtype=value.dtype)
        own = copies[storage.data_ptr()]
        return out.set_(own, value.storage_offset(), tuple(value.shape), value.stride())


def _storage_of(held: Tensor | torch.UntypedStorage) -> torch.UntypedStorage:
    return held.untyped_storage() if isinstance(held, Tensor) else held


def _writes_no_more(edited: Module, original: Module) -> bool:
    """Whether an edited kernel writes through no further parameter: that is the script's memory."""
    now, before = written_arguments(edited), written_arguments(original)
    return now is not None and before is not None and now <= before


def _same_bits(first: Tensor, second: Tensor) -> bool:
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        first, second = first.detach(), second.detach()
        same = first == second
        if first.is_floating_point():
            same |= first.isnan() & second.isnan()
        return bool(same.all())
