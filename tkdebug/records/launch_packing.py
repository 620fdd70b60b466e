"""Interfaces by which launches are packed into bytes without a record of each.

A recorder has a `LaunchPacker`, which `HOOKS.packer` is; kernels are `PackableKernel`s. Responsible
for these interfaces alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from tkdebug.records.events import KernelLaunch


class NoteParts(NamedTuple):
    """Parts of the function that packs launches of a kernel.

    Attributes:
        kinds: of the kernel's parameters, as in `PackableKernel`.
        packed: which of them are scalars that lie in a slot.
        variant: number of what all launches have in common.
        kept: number of the facts by a launch's key; None where it is new.
        describe: sends new facts by key and values, and gives their number.
        infos: describes a launch's values in full.
        pack: packs the fields of a slot.
        put: takes what was packed.
        here: has the calling thread's native id.
        flags: a byte, of launches that are made now.
        scopes_now: gives the number of the scopes where there are some.
        odd: called with a launch that no slot can hold.
    """

    kinds: tuple[str, ...]
    packed: tuple[int, ...]
    variant: int
    kept: Callable[[Hashable], int | None]
    describe: Callable[[Hashable, tuple[Any, ...]], int]
    infos: Callable[[tuple[Any, ...]], Hashable]
    pack: Callable[..., bytes]
    put: Callable[[bytes], None]
    here: Any
    flags: bytearray
    scopes_now: Callable[[], int]
    odd: Callable[..., None]


class PackableKernel(Protocol):
    """A kernel whose launches can be packed into bytes without a record of each.

    Attributes:
        launch_record: what its launches share.
        parameter_kinds: what is passed for each parameter: a "tensor", an "int" of 64 signed bits,
            a "uint", a "float", a scalar to "look" at, something "fixed" with the kernel, or
            "other".
        write_note: writes the function that packs launches; it is called after each with its
            number, grid, stream, start in nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def launch_record(self) -> type[KernelLaunch]:
        """The record type that holds what its launches share."""

    @property
    def parameter_kinds(self) -> tuple[str, ...]:
        """The kind of what is passed for each parameter."""

    @property
    def write_note(self) -> Callable[[NoteParts], Callable[..., None]]:
        """The function that writes the packing function of its launches."""


class LaunchPacker(Protocol):
    """A recorder that takes launches without a record of each.

    Attributes:
        notes: by kernel, what to call after a launch with its number, grid, stream, start in
            nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def notes(self) -> Mapping[object, Callable[..., None]]:
        """The functions to call after launches, by kernel."""

    def note_of(self, kernel: Any) -> Callable[..., None]:
        """Make and keep the function for a kernel that is not in `notes` yet."""

    def time_of(self, launch: int) -> Callable[..., int | None]:
        """Return a function that acts as `LaunchRecord.device_ns` of the launch."""
