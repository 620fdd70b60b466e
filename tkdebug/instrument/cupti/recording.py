"""Records the GPU's work while a session is recorded: a thread beside the script.

Responsible for the choice of records, for the clock of their times, and for the rounds: buffers are
taken from CUPTI and handed over, to be joined here or in another process. Invariants: in a forked
child nothing of CUPTI is touched; nothing waits for the GPU but `stop` and `wait`, which the
recorder calls when the script is done; any error ends this recording with one line, and never the
script.

`Collection` has CUPTI record the work in this process, and takes filled buffers. `JoinApart` lends
what CUPTI recorded to the recording process, which reads it where it lies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tkdebug.errors import TkError
from tkdebug.instrument.cupti.activity_join import ActivityJoin, Round
from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    DRIVER,
    LAUNCH_CALLBACK,
    MEMCPY,
    MEMSET,
    RUNTIME,
)
from tkdebug.instrument.cupti.library import Cupti
from tkdebug.instrument.device_records import LostActivities
from tkdebug.instrument.recording_process.client import RecordingProcess
from tkdebug.records.hook_chain import ActivityBuffers, LentBuffer
from tkdebug.terminal.text import tell

KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)
# Records of calls cost a training step up to a quarter (`runtime.cuda.launch_calls`).
KINDS_OF_CALLS = (DRIVER, RUNTIME)
_DRIVER_DOMAIN = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_SYSTEM_THREAD_ID = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
_CLOCK_TRIES = 20
_CLOCK_ERROR_NS = 500
ROUND_S = 0.1
# Beyond that CUPTI goes on to fill the buffer that it has, as the process does not keep up.
MOST_LENT = 16


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
        has_origins: whether all calls are recorded, too: they show the origins of others' kernels.

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
    """Return by address the texts that CUPTI keeps at these addresses of this process."""
    found = {}
    for address in addresses:
        # CUPTI keeps names for as long as records may point to them.
        text = ctypes.string_at(address) if address else b"(unnamed)"
        found[address] = text.decode("utf-8", "backslashreplace")
    return found


class Taker(Protocol):
    """The receiver of rounds of records, which joins them with launches."""

    def take(self, collection: Collection, is_forced: bool) -> set[int]:
        """Take a round and join it; return the devices that ran something.

        Args:
            collection: the collection to take from.
            is_forced: take all records that there are.

        Raises:
            CuptiError: CUPTI refuses.
            RecordError: the records are not of the version that CUPTI says it has.
        """

    def give_up(self) -> None:
        """Give up launches without a record: no more records come."""


class JoinHere:
    """Joins in this process."""

    def __init__(self, join: ActivityJoin) -> None:
        self._join = join

    def take(self, collection: Collection, is_forced: bool) -> set[int]:
        """Take a round and join it here; launches made so far are noted before."""
        self._join.note_launches()
        offset_ns = collection.clock().offset_ns
        buffers = tuple(collection.take(is_forced))
        taken = Round(time.time_ns(), offset_ns, buffers, collection.dropped(), collection.calls())
        return self._join.join(taken)

    def give_up(self) -> None:
        """Give up launches without a record: no more records come."""
        self._join.give_up()


class DeviceRecording:
    """A recording of the GPU's work in this process, from `start` to `stop`.

    Args:
        collection: CUPTI.
        taker: joins the recorded rounds.
        on_record: called with records for the session.
        each_round: called in each round with the devices that ran something since the one before.
        failed: called where recording ends before `stop`.

    Attributes:
        is_on: whether it records.
    """

    def __init__(
        self,
        collection: Collection,
        taker: Taker,
        on_record: Callable[[object], None],
        each_round: Callable[[set[int]], None],
        failed: Callable[[], None],
    ) -> None:
        self._collection = collection
        self._taker = taker
        self._on_record = on_record
        self._each_round = each_round
        self._failed = failed
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._owner = os.getpid()
        self._thread: threading.Thread | None = None
        self.is_on = False

    def start(self) -> None:
        """Begin to record.

        Raises:
            CuptiError: CUPTI refuses.
        """
        self._collection.start()
        self._ended.clear()
        self._owner = os.getpid()
        self.is_on = True
        thread = threading.Thread(target=self._run, name="tkdebug-cupti", daemon=True)
        # No more threads, or the interpreter is ending: `stop` does one round.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def stop(self, when_done: bool = True) -> None:
        """Take the last records and stop recording; a second call is a no-op.

        Args:
            when_done: wait for the GPU first; otherwise kernels that still run have no times.
        """
        if os.getpid() != self._owner or not self.is_on:
            return
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            if when_done:
                self._collection.synchronize()
            self._collection.stop()
            self._round(forced=True)
            self._taker.give_up()
            self.is_on = False

    def take_ended(self, limit_s: float) -> None:
        """Take the records of ended work, without waiting; work that runs now may have no times.

        Args:
            limit_s: the time that CUPTI may take; a kernel that hangs may hold it up, too.
        """
        if os.getpid() != self._owner or not self.is_on:
            return
        taking = threading.Thread(
            target=self._round, args=(True,), name="tkdebug-take", daemon=True
        )
        taking.start()
        taking.join(limit_s)

    def abandon(self, limit_s: float) -> None:
        """End without waiting for the GPU, with as much as `take_ended` takes."""
        if os.getpid() != self._owner or not self.is_on:
            return
        self._ended.set()
        self.take_ended(limit_s)
        # Without the lock, which a call of CUPTI's may hold forever.
        self.is_on = False
        self._taker.give_up()

    def leave_alone(self) -> None:
        """Make `stop` take the present records, and leave CUPTI unchanged."""
        self._collection.leave_alone()

    def wait(self) -> None:
        """Wait for the GPU, and take the present records."""
        if os.getpid() == self._owner and self.is_on:
            self._collection.synchronize()
            self._round(forced=True)

    def _run(self) -> None:
        while not self._ended.wait(ROUND_S):
            self._round(forced=False)

    def _round(self, forced: bool) -> None:
        with self._lock:
            if not self.is_on:
                return
            try:
                found = self._taker.take(self._collection, forced)
            except TkError as error:
                self._fail(str(error))
            except Exception as error:
                self._fail(f"{type(error).__name__}: {error}")
            else:
                self._each_round(found)

    def _fail(self, reason: str) -> None:
        self.is_on = False
        self._failed()
        then = "the last launches have no times"
        if not self._ended.is_set():
            then = "launches are timed by CUDA events from here on"
        tell(f"GPU times: {reason}; {then}")
        self._on_record(LostActivities(0, reason))
        self._collection.stop()
        self._taker.give_up()


class PrimaryContexts:
    """The contexts that were found active so far; each is held until `release`."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._driver: ctypes.CDLL | None = None
        with contextlib.suppress(OSError):
            self._driver = ctypes.CDLL("libcuda.so.1")

    def active(self) -> Mapping[int, int]:
        """CUcontexts by device, as CUDA numbers it; none is made."""
        driver, count = self._driver, ctypes.c_int()
        if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
            return self._held
        for device in range(count.value):
            flags, is_active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
            if device in self._held or driver.cuDevicePrimaryCtxGetState(
                device, ctypes.byref(flags), ctypes.byref(is_active)
            ):
                continue
            if is_active.value and not driver.cuDevicePrimaryCtxRetain(
                ctypes.byref(context), device
            ):
                self._held[device] = context.value or 0
        return self._held

    def gpu(self, device: int) -> str:
        """The UUID of a device, "" if the driver does not say."""
        ordinal, identity = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        driver = self._driver
        if driver is None or driver.cuDeviceGet(ctypes.byref(ordinal), device):
            return ""
        if driver.cuDeviceGetUuid_v2(identity, ordinal):
            return ""
        return f"GPU-{uuid.UUID(bytes=bytes(identity))}"

    def release(self) -> None:
        """Release all contexts."""
        while self._driver is not None and self._held:
            device, _ = self._held.popitem()
            # _v2 lets go of one use; without a suffix it is CUDA's function of old.
            self._driver.cuDevicePrimaryCtxRelease_v2(device)


class JoinApart:
    """Has rounds joined by the recording process.

    Args:
        process: the recording process.
        buffers: the memory that CUPTI fills.
        version: the version of CUPTI, which says how its records lie in memory.
        has_origins: whether operations of torch are reported.
    """

    def __init__(
        self, process: RecordingProcess, buffers: ActivityBuffers, version: int, has_origins: bool
    ) -> None:
        self._process = process
        self._buffers = buffers
        process.names_at = names_at
        process.show_memory(buffers.descriptor)
        process.send("cupti", version, has_origins)

    def take(self, collection: Collection, is_forced: bool) -> set[int]:
        """Lend a round; return the devices of rounds that were joined meanwhile."""
        if self._process.error is not None:
            self._buffers.take_back()
            collection.take(is_forced)  # so that CUPTI has room
            return self._process.take_answers()
        offset_ns = collection.clock().offset_ns
        may_lend = is_forced or self._buffers.lent_count() <= MOST_LENT
        lent = collection.lend(is_forced) if may_lend else []
        # There is room for few calls, so they are taken in any case.
        taken = Round(time.time_ns(), offset_ns, (), collection.dropped(), collection.calls())
        if may_lend or taken.calls:
            self._process.send("round", taken, lent)
        return self._process.take_answers()

    def give_up(self) -> None:
        """Give up launches without a record: no more records come."""
        self._process.send("no more records")
