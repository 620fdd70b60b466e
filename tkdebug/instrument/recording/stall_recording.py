"""Samples of warps' waits, taken while a session is recorded.

Responsible for the time of sampling: a context is sampled from the round after it came up to the
end, and samples are recorded about once a second. If sampling is refused, one line says so, and
nothing else changes.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Protocol

from tkdebug.instrument.cupti.library import CuptiError
from tkdebug.instrument.cupti.pc_sampling import (
    FIRST_VERSION,
    PcSampling,
    SampledGpus,
    Taken,
    crc_of_cubin,
)
from tkdebug.instrument.device_records import (
    LostActivities,
    SampledImage,
    SamplingTotal,
    StallSamples,
)
from tkdebug.records.events import KernelCompiled
from tkdebug.terminal.text import tell

TAKE_S = 1.0
_UNKNOWN = 999  # CUPTI_ERROR_UNKNOWN
# If data cannot be taken, CUPTI of CUDA 13.0 crashes when sampling is stopped. So it goes on, and
# the memory that CUPTI may still write to is kept here.
_ABANDONED: list[PcSampling] = []
_STATIC_PICTURE = "`tkdebug lines` shows the instructions of each line without them"


class Contexts(Protocol):
    """The CUDA contexts of a process."""

    def active(self) -> Mapping[int, int]:
        """Return the present contexts, by device."""

    def gpu(self, device: int) -> str:
        """The UUID of a device, "" if it is not known."""

    def release(self) -> None:
        """Release the contexts."""


class StallRecording:
    """PC sampling of all contexts of this process.

    Args:
        path: the path of libcupti.
        version: the result of `cuptiGetVersion`.
        on_record: called with records for the session.
        contexts: the present contexts.

    Attributes:
        is_broken: whether CUPTI has failed in a way after which it may crash.
    """

    def __init__(
        self,
        path: str,
        version: int,
        on_record: Callable[[object], None],
        contexts: Contexts,
    ) -> None:
        self._library = ctypes.CDLL(path)
        self._on_record = on_record
        self._contexts = contexts
        self._samplings: dict[int, PcSampling] = {}
        self._gpus = SampledGpus()
        self.is_broken = False
        self._due_s = 0.0
        self._lock = threading.Lock()
        self._is_on = version >= FIRST_VERSION
        if not self._is_on:
            self._fail(f"{path}: no PC sampling as it is since CUDA 12.4 (got version {version})")

    def compiled(self, kernel: KernelCompiled) -> None:
        """Note a kernel that may be launched from now on."""
        if kernel.image is None or not self._is_on:
            return
        try:
            self._on_record(SampledImage(kernel.hash, crc_of_cubin(self._library, kernel.image())))
        except CuptiError as error:
            self._fail(str(error))

    def round(self) -> None:
        """Sample new contexts, and take samples when that is due."""
        with self._lock:
            if not self._is_on:
                return
            try:
                self._begin()
                if time.monotonic() >= self._due_s:
                    self._due_s = time.monotonic() + TAKE_S
                    self._take()
            except CuptiError as error:
                self._fail(str(error))

    def stop(self) -> None:
        """Take the samples that are left, and stop sampling."""
        with self._lock:
            is_on, self._is_on = self._is_on, False
            while self._samplings:
                _, sampling = self._samplings.popitem()
                try:
                    self._tell(sampling.stop())
                except CuptiError as error:
                    if is_on:
                        self._fail(str(error))
            self._contexts.release()
            self._gpus.release()

    def _begin(self) -> None:
        for device, context in self._contexts.active().items():
            if device not in self._samplings:
                if not self._gpus.claim(self._contexts.gpu(device)):
                    raise CuptiError("another run of tkdebug samples this GPU already")
                sampling = PcSampling(self._library, context)
                sampling.start()
                self._samplings[device] = sampling
                self._due_s = time.monotonic() + TAKE_S

    def _take(self) -> None:
        try:
            for sampling in self._samplings.values():
                self._tell(sampling.take())
        except CuptiError as error:
            _ABANDONED.extend(self._samplings.values())
            self._samplings.clear()
            self.is_broken = True
            if error.status != _UNKNOWN:
                raise
            raise CuptiError(
                f"{error}: does another process sample this GPU?", error.status
            ) from error

    def _tell(self, taken: Taken) -> None:
        if taken.total or taken.dropped:
            self._on_record(SamplingTotal(taken.total, taken.dropped))
        for record in _records(taken):
            self._on_record(record)

    def _fail(self, reason: str) -> None:
        self._is_on = False
        self._on_record(LostActivities(0, f"stalls: {reason}"))
        tell(f"--stalls: {reason}; {_STATIC_PICTURE}")


def _records(taken: Taken) -> list[StallSamples]:
    """Return one record for each function of the samples."""
    by_function: dict[tuple[int, str], list[tuple[int, str, int]]] = defaultdict(list)
    for (crc, function, pc, reason), count in taken.counts.items():
        by_function[crc, function].append((pc, reason, count))
    found = []
    for (crc, function), rows in by_function.items():
        reasons = {reason: place for place, reason in enumerate(sorted({row[1] for row in rows}))}
        counts = tuple((pc, reasons[reason], count) for pc, reason, count in rows)
        found.append(StallSamples(crc, function, tuple(reasons), counts))
    return found
