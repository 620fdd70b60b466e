"""Specialisations of kernels, each with all of its builds, under one key.

A specialisation is recorded once for each form that it was compiled in: as it is interpreted, as it
is compiled for a GPU, with checks, with watches. Their hashes differ. Its key is made of what they
have in common: the kernel's name and source, its signature, and the options of a launch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session

# Options of a launch; the other options, how it is compiled, differ between builds.
_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# Options of builds that add instrumentation to the kernel.
INSTRUMENTED = ("checked", "watched", "timeline")
_KEY_DIGITS = 12


def variant_key(kernel: RecordedKernel) -> str:
    """Return the key of a kernel's specialisation: equal for all of its builds."""
    options = [kernel.options.get(name) for name in _LAUNCH_OPTIONS]
    parts = (kernel.name, kernel.file, kernel.line, kernel.source, kernel.signature, options)
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:_KEY_DIGITS]


@dataclass(frozen=True, slots=True)
class Variant:
    """A specialisation with its builds, in the order in which they were compiled."""

    key: str
    builds: tuple[RecordedKernel, ...]

    @property
    def first(self) -> RecordedKernel:
        """The build that was compiled first."""
        return self.builds[0]

    @property
    def native(self) -> RecordedKernel | None:
        """The build for a GPU, the least instrumented of several; None if there is none."""
        compiled = [one for one in self.builds if "ptx" in one.stages or "ttgir" in one.stages]
        return min(compiled, key=instrumentation, default=None)

    @property
    def shown(self) -> RecordedKernel:
        """The build whose stages are shown: the one for a GPU, else the interpreted one."""
        return self.native or min(self.builds, key=instrumentation)


def instrumentation(kernel: RecordedKernel) -> int:
    """Return the number of instrumenting options, such as checks and watches, of a build."""
    return sum(bool(kernel.options.get(name)) for name in INSTRUMENTED)


class Variants:
    """The specialisations of a session, by key and by the hash of any of their builds."""

    def __init__(self, kernels: Sequence[RecordedKernel]) -> None:
        groups: dict[str, list[RecordedKernel]] = {}
        self._keys: dict[str, str] = {}
        for kernel in kernels:
            key = self._keys.setdefault(kernel.hash, variant_key(kernel))
            groups.setdefault(key, []).append(kernel)
        self.by_key: Mapping[str, Variant] = {
            key: Variant(key, tuple(builds)) for key, builds in groups.items()
        }

    @classmethod
    def of(cls, session: Session) -> Variants:
        """Return the specialisations of a session."""
        return cls(session.kernels())

    def key_of(self, kernel_hash: str) -> str:
        """Return the key of a build's specialisation; for an unknown hash, its first digits."""
        return self._keys.get(kernel_hash, kernel_hash[:_KEY_DIGITS])
