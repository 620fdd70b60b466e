"""How launches are packed into bytes without a record of each: what each side has for the other.

A recorder has a `LaunchPacker`, which `HOOKS.packer` is; kernels are `PackableKernel`s. Responsible
for these interfaces alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import mmap

    from tkdebug.events import KernelLaunch


class SlotPlaces(NamedTuple):
    """How slots of launches lie in memory, and what lies where in a slot; in bytes.

    Attributes:
        read_at: where in the memory stands how many slots were read.
        first: where the first slot is.
        slots: how many, a power of two.
        size_bytes: of a slot.
        scalars: the first of them, each of 8 bytes.
        number: of the slot, counted from 1, which is stored last.
    """

    read_at: int
    first: int
    slots: int
    size_bytes: int
    variant: int
    facts: int
    launch: int
    x: int
    y: int
    z: int
    thread: int
    stream: int
    start_ns: int
    end_ns: int
    scopes: int
    flags: int
    scalars: int
    number: int


class NoteParts(NamedTuple):
    """What machine code that notes launches of a kernel is made of.

    Attributes:
        memory: of the slots, writable.
        places: in it.
        numbers: iterator of the slots' numbers, from 0.
        flags: a byte, of launches that are made now.
        variant: of the kernel's launches.
        kinds: of its parameters, as in `PackableKernel`, each of which is a tensor, fixed, or in a
            slot.
        scopes_now: gives the number of the scopes.
        instead: called with what a note is called with, where the code does not know how.
        late: called with a number and the bytes of its slot but for the number, where it is not
            known to be free.
    """

    memory: mmap.mmap
    places: SlotPlaces
    numbers: Iterator[int]
    flags: bytearray
    variant: int
    kinds: tuple[str, ...]
    scopes_now: Callable[[], int]
    instead: Callable[..., None]
    late: Callable[[int, bytes], None]


class MachineNote(Protocol):
    """Machine code that notes launches of a kernel.

    Attributes:
        note: called after a launch as those of `LaunchPacker` are.
    """

    note: Callable[..., None]

    def know(self, facts: int, tensors: Sequence[Any]) -> None:
        """Launches with tensors like these have that number as their facts."""

    def forget(self) -> None:
        """No facts are known any more."""


class PackableKernel(Protocol):
    """A kernel whose launches can be packed into bytes without a record of each.

    Attributes:
        launch_record: what its launches share.
        parameter_kinds: what is passed for each parameter: a "tensor", an "int" of 64 signed bits,
            a "uint", a "float", a scalar to "look" at, something "fixed" with the kernel, or
            "other".
        known_tensors: makes a function that says of as many tensors whether they have these shapes
            and strides, in less time than to look at them; None where there is none. It may say no
            wrongly.
        machine_note: makes machine code that notes its launches; None where there can be none.
    """

    @property
    def launch_record(self) -> type[KernelLaunch]:
        """As above."""

    @property
    def parameter_kinds(self) -> tuple[str, ...]:
        """As above."""

    @property
    def known_tensors(self) -> Callable[[Sequence[Any]], Callable[..., bool] | None]:
        """As above."""

    @property
    def machine_note(self) -> Callable[[NoteParts], MachineNote | None]:
        """As above."""


class LaunchPacker(Protocol):
    """Who takes launches without a record of each.

    Attributes:
        notes: by kernel, what to call after a launch with its number, grid, stream, start in
            nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def notes(self) -> Mapping[object, Callable[..., None]]:
        """As above."""

    def note_of(self, kernel: Any) -> Callable[..., None]:
        """The same of a kernel that is not there yet."""

    def time_of(self, launch: int) -> Callable[..., int | None]:
        """What `LaunchRecord.device_ns` would be."""
