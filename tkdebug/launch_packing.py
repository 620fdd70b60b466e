"""How launches are packed into bytes without a record of each: what each side has for the other.

A recorder has a `LaunchPacker`, which `HOOKS.packer` is; kernels are `PackableKernel`s. Responsible
for these interfaces alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tkdebug.events import KernelLaunch


class PackableKernel(Protocol):
    """A kernel whose launches can be packed into bytes without a record of each.

    Attributes:
        launch_record: what its launches share.
        parameter_kinds: what is passed for each parameter: a "tensor", an "int" of 64 signed bits,
            a "uint", a "float", a scalar to "look" at, something "fixed" with the kernel, or
            "other".
    """

    @property
    def launch_record(self) -> type[KernelLaunch]:
        """As above."""

    @property
    def parameter_kinds(self) -> tuple[str, ...]:
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
