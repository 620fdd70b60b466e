"""Has CUPTI record the GPU's work in this process, and takes filled buffers.

Responsible for the choice of records and for the clock of their times. Invariants: nothing here
waits for the GPU; in a forked child nothing of CUPTI is touched.
"""

from __future__ import annotations

import ctypes
import time
from typing import NamedTuple

from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    DRIVER,
    LAUNCH_CALLBACK,
    MEMCPY,
    MEMSET,
    RUNTIME,
)
from tkdebug.instrument.cupti.library import Cupti
from tkdebug.records.hook_chain import ActivityBuffers, LentBuffer

KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)
# Records of calls cost a training step up to a quarter (`runtime.cuda.launch_calls`).
KINDS_OF_CALLS = (DRIVER, RUNTIME)
_DRIVER_DOMAIN = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_SYSTEM_THREAD_ID = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
_CLOCK_TRIES = 20
_CLOCK_ERROR_NS = 500


class Clock(NamedTuple):
    """The offset of CUPTI's clock from the host's.

    Attributes:
        offset_ns: the addend that turns a time of CUPTI's into nanoseconds since 1970.
        error_ns: the largest error of the offset.
    """

    offset_ns: int
    error_ns: int


class Collection:
    """CUPTI's records of this process, while it is started.

    Args:
        cupti: the library.
        buffers: the memory that it fills.
        has_origins: also record all calls, which show the origins of others' kernels.

    Attributes:
        buffers: the memory.
    """

    def __init__(
        self, cupti: Cupti, buffers: ActivityBuffers, *, has_origins: bool = False
    ) -> None:
        self.cupti = cupti
        self.buffers = buffers
        self._kinds = (*KINDS, *KINDS_OF_CALLS) if has_origins else KINDS
        self._enabled: list[int] = []
        self._subscriber: ctypes.c_void_p | None = None

    def start(self) -> None:
        """Begin to record.

        Raises:
            CuptiError: CUPTI refuses, as when another profiler has it; nothing is recorded then.
        """
        subscriber = self._subscriber = self.cupti.subscribe(self.buffers.called)
        try:
            # As torch's profiler has it, which would change it for us.
            self.cupti.call("cuptiSetThreadIdType", _SYSTEM_THREAD_ID)
            self.cupti.register(self.buffers.requested, self.buffers.completed)
            self.cupti.call("cuptiEnableCallback", 1, subscriber, _DRIVER_DOMAIN, LAUNCH_CALLBACK)
            for kind in self._kinds:
                self.cupti.call("cuptiActivityEnable", kind)
                self._enabled.append(kind)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop recording; finished records can still be taken."""
        while self._enabled:
            self.cupti.status("cuptiActivityDisable", self._enabled.pop())
        if self._subscriber is not None:
            # Before the next client's turn, such as torch's profiler's.
            subscriber, self._subscriber = self._subscriber, None
            self.cupti.status("cuptiUnsubscribe", subscriber)

    def leave_alone(self) -> None:
        """Keep `stop` from calling a CUPTI that would crash."""
        self._enabled.clear()
        self._subscriber = None

    def synchronize(self) -> None:
        """Wait until the calling thread's current device is done."""
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:  # no driver, so nothing runs
            return
        # A thread without a context has nothing to wait for, and a failed kernel is reported
        # elsewhere.
        driver.cuCtxSynchronize()

    def take(self, forced: bool = False) -> list[bytes]:
        """Return the buffers whose records are all complete, or all buffers if `forced`.

        Raises:
            CuptiError: CUPTI refuses.
        """
        self._flush(forced)
        return self.buffers.filled()

    def lend(self, forced: bool = False) -> list[LentBuffer]:
        """Lend the filled buffers to another process.

        Raises:
            CuptiError: CUPTI refuses.
        """
        self._flush(forced)
        return self.buffers.lend()

    def _flush(self, forced: bool) -> None:
        self.cupti.call("cuptiActivityFlushAll", _FORCED if forced else 0)

    def calls(self) -> bytes:
        """The calls since the last time that launched kernels, packed by `CALL_FIELDS`."""
        return self.buffers.calls()

    def dropped(self) -> int:
        """Return the number of records that CUPTI had no room for since the last time."""
        count = ctypes.c_size_t()
        status = self.cupti.status("cuptiActivityGetNumDroppedRecords", None, 0, count)
        return 0 if status else count.value

    def clock(self) -> Clock:
        """Measure the offset of CUPTI's clock from the host's now.

        Raises:
            CuptiError: CUPTI has none.
        """
        found: list[Clock] = []
        while len(found) < _CLOCK_TRIES:
            before = time.time_ns()
            there = self.cupti.timestamp_ns()
            after = time.time_ns()
            found.append(Clock((before + after) // 2 - there, (after - before) // 2 + 1))
            if found[-1].error_ns <= _CLOCK_ERROR_NS:
                break
        return min(found, key=lambda clock: clock.error_ns)


def names_at(addresses: list[int]) -> dict[int, str]:
    """The texts at these addresses of this process, which CUPTI gave."""
    found = {}
    for address in addresses:
        # CUPTI keeps names for as long as records may point to them.
        text = ctypes.string_at(address) if address else b"(unnamed)"
        found[address] = text.decode("utf-8", "backslashreplace")
    return found
