"""Interfaces by which launches are packed into bytes without a record of each.

A recorder has a `LaunchPacker`, which is `HOOKS.packer`; kernels are `PackableKernel`s. Responsible
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
        kinds: the kinds of the kernel's parameters, as in `PackableKernel`.
        packed: the parameters that are scalars in a slot.
        variant: the number of the facts that all launches share.
        kept: the numbers of facts by a launch's key; None for a new key.
        describe: sends new facts by key and values, and returns their number.
        infos: describes a launch's values in full.
        pack: packs the fields of a slot.
        put: takes the packed fields.
        here: has the calling thread's native id.
        flags: a byte, of launches that are made now.
        scopes_now: gives the number of the scopes, if there are some.
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
        launch_record: the record type with the facts that its launches share.
        parameter_kinds: the kind of each parameter's value: a "tensor", an "int" of 64 signed bits,
            a "uint", a "float", a scalar to "look" at, something "fixed" with the kernel, or
            "other".
        write_note: writes the function that packs launches; it is called after each with its
            number, grid, stream, start in nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def launch_record(self) -> type[KernelLaunch]:
        """The record type with the facts that its launches share."""

    @property
    def parameter_kinds(self) -> tuple[str, ...]:
        """The kind of each parameter's value."""

    @property
    def write_note(self) -> Callable[[NoteParts], Callable[..., None]]:
        """The function that writes the packing function of its launches."""


class LaunchPacker(Protocol):
    """A recorder that takes launches without a record of each.

    Attributes:
        notes: by kernel, the function to call after a launch with its number, grid, stream, start
            in nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def notes(self) -> Mapping[object, Callable[..., None]]:
        """The functions to call after launches, by kernel."""

    def note_of(self, kernel: Any) -> Callable[..., None]:
        """Make and keep the function for a kernel that is not in `notes` yet."""

    def time_of(self, launch: int) -> Callable[..., int | None]:
        """Return a function that acts as `LaunchRecord.device_ns` of the launch."""
