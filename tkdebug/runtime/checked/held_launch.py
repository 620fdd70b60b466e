"""A checked launch until it is read: its table, and weak references to its arguments.

The arguments are for a closer look at it after it has ended.

Nothing here keeps a tensor alive. Copies are made only if they are what the launch was given: of
tensors that are alive, that torch has not changed since, and that the kernel itself did not write;
memory that it both reads and writes is saved before the launch, if it is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from tkdebug.compiler.frontend.arguments import Constant
from tkdebug.interpreter.torch_state import apart_from_the_script
from tkdebug.runtime.arguments.specialize import bare_tensor, runtime_values
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper

if TYPE_CHECKING:
    from contextvars import Context

    import torch

    from tkdebug.compiler.analysis.thread_order import ThreadOrder
    from tkdebug.compiler.frontend.arguments import ArgSpec
    from tkdebug.compiler.sites.checks import CheckPlan
    from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor
    from tkdebug.interpreter.replay import Parameters
    from tkdebug.runtime.checked.passed_arguments import LaunchMemory, PassedArguments
    from tkdebug.runtime.device.platform import CheckMemory, CheckRecords, CheckTable

# More is not copied from the device.
MOST_BYTES = 256 << 20
# More is not saved of what a kernel reads and writes.
SAVED_BYTES = 16 << 20
_PLAIN = frozenset((type(None), bool, int, float))
# (address, bytes) of the device's memory -> what is there.
Fetch = Callable[[int, int], bytearray]


class _Held(NamedTuple):
    """A tensor as it was when the launch was made.

    Attributes:
        owner: the tensor, or the one that it is a view of, while that is alive.
        version: the version of its contents; None if torch keeps none.
        span: address and bytes of its allocation.
        passed: its shape, strides, place in the allocation.
        padding: the padding of the descriptor whose base it is; None for a tensor.
    """

    owner: ref[torch.Tensor]
    version: int | None
    span: tuple[int, int]
    passed: PassedTensor
    padding: str | None

    @staticmethod
    def of(tensor: torch.Tensor, padding: str | None, passed: PassedTensor) -> _Held:
        """Hold a tensor as it is now."""
        # One without elements has no address.
        first = passed.storage.first if passed.address else tensor.untyped_storage().data_ptr()
        span = first, passed.storage_bytes
        return _Held(*_state(tensor), span, passed, padding)

    def require_unchanged(self) -> None:
        """Check that its memory is as it was at the launch.

        Raises:
            GoneError: its memory has changed.
        """
        owner = self.owner()
        if owner is None:
            raise GoneError("some of them are freed")
        is_moved = owner.untyped_storage().data_ptr() != self.span[0]
        if is_moved or _version(owner) != self.version:
            raise GoneError("some of them have changed")

    def on(self, memory: torch.Tensor) -> Any:
        """Return the view, or the descriptor, moved to other memory."""
        passed = self.passed
        size = passed.dtype.itemsize
        elements = memory[: memory.numel() // size * size].view(passed.dtype)
        view = elements.as_strided(passed.shape, passed.strides, passed.storage_offset)
        if self.padding is None:
            return view
        return SimpleNamespace(base=view, padding=self.padding)


class GoneError(Exception):
    """The arguments are no longer those of the launch; the message is a clause that says why."""


class HeldArguments:
    """The arguments of one launch.

    Args:
        values: makes the held values of the kernel's run-time arguments, in their order.
        parameters: positions of arguments whose memory it reads and writes; None if not known.
        stream: handle of the stream that it will run on; None to save nothing.
    """

    def __init__(
        self, values: Callable[[], list[Any]], parameters: Parameters | None, stream: int | None
    ) -> None:
        self._make_values = values
        self._parameters = parameters
        # The old contents of memory that the kernel both reads and writes, by its span.
        self._saved: dict[tuple[int, int], torch.Tensor] = {}
        if parameters is not None and stream is not None:
            self._save(parameters, stream)

    @staticmethod
    def of(
        names: Sequence[str],
        specs: Sequence[ArgSpec],
        values: Sequence[Any],
        passed: PassedArguments,
        parameters: Parameters | None,
        stream: int | None,
    ) -> HeldArguments:
        """The arguments of a launch that is about to be made.

        Args:
            names: the names of the parameters.
            specs: one for each parameter.
            values: one for each parameter.
            passed: the facts of the arguments.
            parameters: positions of run-time arguments whose memory the kernel reads and writes;
                None if not known.
            stream: handle of the stream that it will run on; None to save nothing.
        """
        if passed.is_plain:
            # The GPU may be waiting for this launch, and most find nothing.
            states = {
                name: _state(value)
                for name, value in zip(names, values, strict=True)
                if name in passed.tensors
            }
            return HeldArguments(partial(_plain, names, specs, states, passed), parameters, stream)
        held = [_held(value) for value in runtime_values(specs, values, are_bare=False)]
        return HeldArguments(lambda: held, parameters, stream)

    @cached_property
    def _values(self) -> list[Any]:
        return self._make_values()

    def _save(self, parameters: Parameters, stream: int) -> None:
        read, written = (
            {one.span: one for one in self._at(places)}
            for places in (parameters.read, parameters.written)
        )
        both = [span for span in read if any(_overlap(span, other) for other in written)]
        if both and sum(size for _, size in both) <= SAVED_BYTES:
            self._saved = {span: _saved(read[span], stream) for span in both}

    def _at(self, places: frozenset[int]) -> list[_Held]:
        found = [self._values[place] for place in places]
        return [value for value in found if isinstance(value, _Held)]

    def copies(self, fetch: Fetch) -> list[Any]:
        """Return the arguments on copies of the memory that the kernel reads.

        Args:
            fetch: reads the device's memory.

        Raises:
            GoneError: some of it is no longer what the launch read.
        """
        parameters = self._parameters
        if parameters is None or any(isinstance(value, _Unknown) for value in self._values):
            raise GoneError("what the kernel reads is not known")
        read = [one for one in self._at(parameters.read) if one.span not in self._saved]
        for one in read:
            one.require_unchanged()
        needed = {one.span for one in read}
        for one in self._at(parameters.written):
            if any(_overlap(one.span, span) for span in needed):
                raise GoneError("the launch wrote into what it read")
        if sum(size for _, size in needed) > MOST_BYTES:
            raise GoneError(f"they have more than {MOST_BYTES >> 20} MiB")
        memory = {}
        for span in {value.span for value in self._values if isinstance(value, _Held)}:
            place = self._saved[span].data_ptr() if span in self._saved else span[0]
            is_needed = span in needed or span in self._saved
            memory[span] = _memory((place, span[1]), fetch if is_needed else None)
        return [
            value.on(memory[value.span]) if isinstance(value, _Held) else value
            for value in self._values
        ]


def _plain(
    names: Sequence[str],
    specs: Sequence[ArgSpec],
    states: Mapping[str, tuple[ref[torch.Tensor], int | None]],
    passed: PassedArguments,
) -> list[Any]:
    """Return the held tensors and numbers of a launch that has no other arguments."""
    found: list[Any] = []
    for name, spec in zip(names, specs, strict=True):
        if isinstance(spec, Constant):
            continue
        if name in states:
            tensor = passed.tensors[name]
            span = tensor.storage.first, tensor.storage_bytes
            found.append(_Held(*states[name], span, tensor, None))
        else:
            found.append(passed.numbers[name])
    return found


def _held(value: Any) -> Any:
    if value.__class__ in _PLAIN:
        return value
    import torch

    from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor

    padding, tensor = None, value
    if isinstance(value, TensorDescriptor):
        padding, tensor = value.padding, value.base
    if isinstance(tensor, TensorWrapper):
        # The view of another element type ends here; torch does not know its base.
        passed = PassedTensor.of(bare_tensor(tensor))
        return _Held.of(tensor.base, padding, passed)
    if isinstance(tensor, torch.Tensor):
        return _Held.of(tensor, padding, PassedTensor.of(tensor))
    return value if isinstance(value, bool | int | float) else _Unknown()


class _Unknown:
    """An argument whose memory cannot be known."""


def _state(tensor: torch.Tensor) -> tuple[ref[torch.Tensor], int | None]:
    """Return the tensor that owns the memory, with its version counter.

    Views are often made for the launch, and share their base's version.
    """
    base = tensor._base  # noqa: SLF001  # torch has no other word of it
    return ref(tensor if base is None else base), _version(tensor)


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version  # noqa: SLF001  # torch has no other word of it
    except RuntimeError:
        return None  # made in inference mode


def _saved(held: _Held, stream: int) -> torch.Tensor:
    """Copy a tensor's allocation, on a stream of the device."""
    import torch

    owner = held.owner()
    assert owner is not None
    storage = owner.untyped_storage()
    with _on(stream, storage.device), apart_from_the_script(storage.device):
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return whole.set_(storage, 0, (storage.nbytes(),), (1,)).clone()


def _on(stream: int, device: torch.device) -> AbstractContextManager[object]:
    import torch

    if device.type != "cuda" or torch.cuda.current_stream(device).cuda_stream == stream:
        return nullcontext()
    there: torch.cuda.Stream = torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]
    return torch.cuda.stream(there)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def _memory(span: tuple[int, int], fetch: Fetch | None) -> torch.Tensor:
    """Return the bytes of an allocation; zeros if they do not matter."""
    import torch

    address, size = span
    if fetch is None or not size:
        return torch.zeros(size, dtype=torch.uint8)
    return torch.frombuffer(fetch(address, size), dtype=torch.uint8)


class PendingLaunch(NamedTuple):
    """A checked launch that was not read yet.

    Attributes:
        plan: the plan by which its table is read.
        context: the facts of the launch that a fault's place needs.
        held: the arguments for a closer look at its findings; None if there can be none.
        records: the records of watched values; None if none is watched.
        known: the state of memory at the launch; None if the kernel loads no pointers.
        order_of_threads: gives the facts of the kernel's threads; None if they are not checked.
        further_kinds: further kinds of faults that its build looks for, beside the usual ones.
    """

    memory: CheckMemory
    table: CheckTable
    plan: CheckPlan
    kernel: str
    launch_id: int
    grid: tuple[int, int, int]
    arguments: PassedArguments
    context: Context
    held: HeldArguments | None = None
    records: CheckRecords | None = None
    known: LaunchMemory | None = None
    order_of_threads: Callable[[], ThreadOrder | None] | None = None
    further_kinds: frozenset[str] = frozenset()
