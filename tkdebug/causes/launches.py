"""The last interpreted launches, remembered so that they can run again.

Responsible for finding the launch that wrote a tensor, and for its arguments as they are now.
Invariant: no tensor lives longer because its launch is remembered; only `KNOBS.cause` has copies
made of a launch's inputs.
"""

from __future__ import annotations

import copy
import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from tkdebug.errors import TkError
from tkdebug.interpreter.memory.host_views import host_view, memory_of
from tkdebug.knobs import KNOBS

if TYPE_CHECKING:
    from tkdebug.causes.comparison import Comparison
    from tkdebug.records.events import Fault
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel
    from tkdebug.runtime.launch.requests import Grid

# Launches before these are forgotten.
REMEMBERED = 1024
# A launch's inputs are copied if they are small, and kept for the last launches only.
_SMALL_BYTES = 256 << 10
_KEPT_BYTES = 128 << 20


class GoneError(TkError):
    """An argument of a remembered launch has been freed."""


class _HeldTensor:
    """A tensor's place in memory, which does not keep the memory alive.

    Args:
        tensor: the tensor.
    """

    __slots__ = ("_address", "_dtype", "_offset", "_pointer", "_shape", "_strides")

    def __init__(self, tensor: Tensor) -> None:
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            storage = tensor.untyped_storage()
            self._pointer = storage._weak_ref()  # noqa: SLF001
            self._address = memory_of(storage).data_ptr()
            self._dtype = tensor.dtype
            self._shape = tuple(tensor.shape)
            self._strides = tensor.stride()
            self._offset = tensor.storage_offset()

    def tensor(self, kept: Mapping[int, Tensor]) -> Tensor:
        """Return the tensor; a CPU tensor for a CUDA tensor of the stand-in.

        Args:
            kept: copies of allocations by their addresses, for a tensor that was freed.

        Raises:
            GoneError: its memory was freed.
        """
        storage = torch.UntypedStorage._new_with_weak_ptr(self._pointer)  # noqa: SLF001
        if storage is None:
            if self._address not in kept:
                raise GoneError("an argument of the launch was freed since")
            storage = kept[self._address].untyped_storage()
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            storage = memory_of(storage)
            out = torch.empty(0, dtype=self._dtype, device=storage.device)
            return out.set_(storage, self._offset, self._shape, self._strides)

    def __del__(
        self,
        # Bound here: at the end of a process modules lose their names before objects go.
        free: Callable[[Any], None] = torch.UntypedStorage._free_weak_ref,  # noqa: SLF001
    ) -> None:
        free(self._pointer)


@dataclass(frozen=True, slots=True)
class Launched:
    """One interpreted launch.

    Attributes:
        id: the id of its record, 0 without one.
        held: its arguments; tensors as places in memory, unless they are kept.
        before: contents of its allocations before the launch, by address: bytes of host memory,
            uint8 tensors of a GPU's; empty if these are not kept.
    """

    kernel: InterpretedKernel
    grid: Grid
    id: int
    held: tuple[Any, ...]
    before: dict[int, bytes | Tensor]
    _made: dict[int, Tensor] = field(default_factory=dict)

    def kept(self) -> Mapping[int, Tensor]:
        """Return its allocations as they were before the launch, by address."""
        if self.before and not self._made:
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                for address, held in self.before.items():
                    if isinstance(held, Tensor):
                        self._made[address] = held
                        continue
                    copied = torch.frombuffer(bytearray(held or b"\0"), dtype=torch.uint8)
                    self._made[address] = copied[: len(held)]
        return self._made

    def values(self) -> tuple[Any, ...]:
        """Return a value for each parameter of the kernel, its tensors as they are now.

        Raises:
            GoneError: one of the tensors was freed.
        """
        return tuple(_given(value, self.kept()) for value in self.held)

    def tensors(self) -> list[tuple[str, Tensor]]:
        """Return its tensors that still exist, by the names of their parameters.

        Those of a tuple have its name and their place in it: `pair.0`.
        """
        found = []
        for name, held in _named(self.kernel.src.fn.arg_names, self.held):
            value = getattr(held, "base", held)
            if isinstance(value, Tensor):
                found.append((name, host_view(value)))
            elif isinstance(value, _HeldTensor):
                try:
                    found.append((name, value.tensor(self.kept())))
                except GoneError:
                    continue
        return found

    def run_time_values(self) -> list[Any]:
        """Return the values as the interpreter takes them.

        Raises:
            GoneError: a tensor was freed.
        """
        # With the compiler, which a script may do without.
        from tkdebug.runtime.arguments.specialize import runtime_values

        return runtime_values(self.kernel.src.specs, self.values())

    def stored_storages(self) -> frozenset[int]:
        """Return the addresses of the allocations that it may have written and that still exist."""
        from tkdebug.interpreter.plan import Prepared

        return self._storages(Prepared.of(self.kernel.module).written)

    def needed_storages(self) -> frozenset[int]:
        """Return the addresses of allocations that it does not write, or loads from first."""
        from tkdebug.interpreter.memory_usage import updated_arguments

        given = frozenset(address_of(tensor) for _, tensor in self.tensors())
        updated = self._storages(updated_arguments(self.kernel.module))
        return (given - self.stored_storages()) | updated

    def _storages(self, chosen: frozenset[int] | None) -> frozenset[int]:
        """The addresses of the allocations of some parameters, None for all."""
        from tkdebug.compiler.dialects import tt

        names = [name.partition(".")[0] for name in tt.Func(self.kernel.module.function).arg_names]
        those = {name for place, name in enumerate(names) if chosen is None or place in chosen}
        found = ((name.partition(".")[0], tensor) for name, tensor in self.tensors())
        return frozenset(address_of(tensor) for name, tensor in found if name in those)


class RememberedLaunches:
    """The last interpreted launches of this process.

    Attributes:
        total: the number of launches so far, those that are forgotten, too.
    """

    def __init__(self) -> None:
        self.total = 0
        self._launches: deque[Launched] = deque(maxlen=REMEMBERED)
        # The last failed comparison of a tensor that they wrote, and the reported fault.
        self.failed: tuple[Comparison, Fault] | None = None
        # The launches with copies of their inputs, oldest first, and the bytes of the copies.
        self._keeping: deque[Launched] = deque()
        self._kept_bytes = 0

    def begins(self, values: tuple[object, ...]) -> dict[int, bytes | Tensor]:
        """Return copies of a launch's inputs; {} if they are large and no copies are asked for."""
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            if not KNOBS.cause and _size_bytes(values) > _SMALL_BYTES:
                return {}
            return _copies(values)

    def ended(
        self,
        kernel: object,
        grid: Grid,
        values: tuple[object, ...],
        launch_id: int,
        before: object,
    ) -> None:
        """Remember a launch; arguments as for `LaunchFollower.ended`."""
        # Followers hear of interpreted launches only.
        interpreted = cast("InterpretedKernel", kernel)
        assert isinstance(before, dict)
        # Arguments that are to be kept are not freed either.
        held = values if KNOBS.cause else tuple(map(_held, values))
        launched = Launched(interpreted, grid, launch_id, held, before)
        if len(self._launches) == REMEMBERED and self._keeping:
            if self._launches[0] is self._keeping[0]:
                self._kept_bytes -= _bytes_in(self._keeping.popleft().before)
        self._launches.append(launched)
        self.total += 1
        if before and not KNOBS.cause:
            self._keeping.append(launched)
            self._kept_bytes += _bytes_in(before)
            while self._kept_bytes > _KEPT_BYTES:
                oldest = self._keeping.popleft().before
                self._kept_bytes -= _bytes_in(oldest)
                oldest.clear()

    def newest_first(self) -> Iterator[Launched]:
        """Yield the launches, the last one first."""
        return reversed(tuple(self._launches))

    def writer_before(self, chain: Sequence[Launched]) -> Launched | None:
        """Return the last launch before a chain that wrote memory that it needs, or None."""
        needed: frozenset[int] = frozenset()
        own: frozenset[int] = frozenset()
        for launched in chain:
            needed |= launched.needed_storages() - own
            own |= launched.stored_storages()
        is_before = False
        for launched in self.newest_first():
            if launched is chain[0]:
                is_before = True
            elif is_before and launched.stored_storages() & needed:
                return launched
        return None

    def at(self, place: int) -> Launched | None:
        """Return the launch before which there were `place` others; None if it is forgotten."""
        behind = self.total - place
        return self._launches[-behind] if 0 < behind <= len(self._launches) else None

    def writer_of(self, address: int) -> Launched | None:
        """Return the last launch that may have written the allocation at an address, or None."""
        for launched in self.newest_first():
            if address in launched.stored_storages():
                return launched
        return None


def address_of(tensor: Tensor) -> int:
    """Return the address of a tensor's allocation."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        return memory_of(tensor.untyped_storage()).data_ptr()


def _named(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield values with their names, those in tuples one by one."""
    for name, value in zip(names, values, strict=True):
        if isinstance(value, tuple):
            yield from _named([f"{name}.{place}" for place in range(len(value))], value)
        else:
            yield name, value


def _copies(values: Iterable[Any]) -> dict[int, bytes | Tensor]:
    """Return the contents of the allocations of some arguments, by address."""
    copies: dict[int, bytes | Tensor] = {}
    for value in values:
        if isinstance(value, tuple):
            copies |= _copies(value)
        tensor = value if isinstance(value, Tensor) else getattr(value, "base", None)
        if isinstance(tensor, Tensor):
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                storage = memory_of(tensor.untyped_storage())
                address = storage.data_ptr()
                if address not in copies:
                    copies[address] = _contents(storage, address)
    return copies


def _contents(storage: torch.UntypedStorage, address: int) -> bytes | Tensor:
    if storage.device.type != "cpu":
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return whole.set_(storage).clone()
    # Without torch: every launch pays for it.
    return ctypes.string_at(address, storage.nbytes()) if address else b""


def _held(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _HeldTensor(value)
    if isinstance(value, tuple):
        return tuple(map(_held, value))
    if isinstance(getattr(value, "base", None), Tensor):
        described = copy.copy(value)
        described.base = _HeldTensor(value.base)
        return described
    return value


def _bytes_in(copies: Mapping[int, bytes | Tensor]) -> int:
    return sum(map(len, copies.values()))


def _size_bytes(values: Iterable[Any]) -> int:
    """Bytes of the allocations of some arguments; a shared one is counted again."""
    size_bytes = 0
    for value in values:
        if isinstance(value, tuple):
            size_bytes += _size_bytes(value)
        tensor = value if isinstance(value, Tensor) else getattr(value, "base", None)
        if isinstance(tensor, Tensor):
            size_bytes += tensor.untyped_storage().nbytes()
    return size_bytes


def _given(value: Any, kept: Mapping[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return host_view(value)
    if isinstance(value, _HeldTensor):
        return value.tensor(kept)
    if isinstance(value, tuple):
        return tuple(_given(part, kept) for part in value)
    if isinstance(getattr(value, "base", None), _HeldTensor):
        described = copy.copy(value)
        described.base = value.base.tensor(kept)
        return described
    return value
