"""Times on the GPU of a recorded run's launches: by CUPTI, else by CUDA events.

Responsible for choosing: CUPTI from the moment that CUDA is in use; events where CUPTI is missing,
of an unknown version, or another profiler's, and from the moment that torch's profiler has used it.
Each change is reported in one line. Beside it, the states of the GPUs that run something are
recorded.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tkdebug.errors import TkError
from tkdebug.instrument.cupti.joining import Made
from tkdebug.instrument.cupti.library import Cupti, find_cupti
from tkdebug.instrument.device_records import LostActivities
from tkdebug.instrument.recording_process.ring import TIMED
from tkdebug.knobs import KNOBS
from tkdebug.records.events import KernelCompiled, LaunchRecord
from tkdebug.records.hook_chain import ActivityBuffers
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.instrument.cupti.activity_join import ActivityJoin, Measured
    from tkdebug.instrument.cupti.recording import DeviceRecording, Taker
    from tkdebug.instrument.recording.nvml import Nvml
    from tkdebug.instrument.recording.stall_recording import StallRecording
    from tkdebug.instrument.recording_process.client import RecordingProcess

STATE_S = 1.0
_CORE_DUMPS = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"
# Seen on an H200, driver 580: after an illegal access cuptiActivityFlushAll and the device's
# synchronisation wait for each other forever, and no dump is written.
_BESIDE_CORE_DUMPS = "CUPTI cannot record beside core dumps of crashes (--coredump, --hang-timeout)"
# Kineto gives CUPTI a clock of cycles, by cuptiActivityRegisterTimestampCallback, and leaves it
# there (pytorch/pytorch#192021). On an H200, torch 2.11, kernels lasted 2.09 times too long in
# records after torch's profiler, and a fifth to a half of them could not be placed in time.
_BEHIND_PROFILER = "torch.profiler has used CUPTI, which gives wrong times since then"
_BESIDE_PROFILER = "torch.profiler uses CUPTI, which gives wrong times from then on"
_TWO_RECORDINGS = "another recording in this process has CUPTI"
_EVENTS_INSTEAD = "launches are timed by CUDA events, and what others launch is not recorded"


class LaunchTime:
    """The `LaunchRecord.device_ns` of a launch that CUPTI times.

    Attributes:
        duration_ns: its time on the device, once it is known.
        settled_ns: the time at which it became known, since 1970.
    """

    __slots__ = ("_wait", "duration_ns", "settled_ns")

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.duration_ns: int | None = None
        self.settled_ns: int | None = None

    def __call__(self, wait: bool = False) -> int | None:
        """The launch's nanoseconds on the device; None when they are not known."""
        if wait and self.settled_ns is None:
            self._wait()
        return self.duration_ns


class _Here(threading.local):
    """The calling thread; to ask the system for its id takes a call."""

    def __init__(self) -> None:
        self.native_id = threading.get_native_id()


class _Client:
    """The recording of this process that has CUPTI, which has one client only."""

    recording: GpuRecording | None = None
    process = 0


class GpuRecording:
    """Times of launches by CUPTI, as long as CUPTI is free.

    Args:
        measured: called with each launch whose time is known, or will never be.
        on_record: called with records for the session.
        switched: called with whether CUPTI times launches from now on.
        has_origins: whether the origins of others' kernels are recorded.
        has_stalls: whether the waits of warps are sampled.

    Attributes:
        is_on: whether CUPTI times launches now.
        flags: one byte, the flags that packed launches get from now on.
    """

    def __init__(
        self,
        measured: Callable[[Measured], None],
        on_record: Callable[[object], None],
        switched: Callable[[bool], None],
        *,
        has_origins: bool = False,
        has_stalls: bool = False,
    ) -> None:
        self._has_origins = has_origins
        self._has_stalls = has_stalls
        self._stalls: StallRecording | None = None
        self._early: list[KernelCompiled] = []
        self._told_measured = measured
        self._on_record = on_record
        self._switched = switched
        self._recording: DeviceRecording | None = None
        self._join: ActivityJoin | None = None
        self._nvml: Nvml | None = None
        self._state_due_s = 0.0
        self._devices: set[int] = {0}
        self._times: dict[int, LaunchTime] = {}
        self._here = _Here()
        self._owner = os.getpid()
        self.is_on = False
        self.flags = bytearray(1)

    def start(
        self,
        make_buffers: Callable[[], ActivityBuffers],
        process: RecordingProcess | None,
        profiler_has_cupti: bool | None = None,
    ) -> None:
        """Begin to time launches: CUDA is in use now.

        Args:
            make_buffers: makes memory for CUPTI.
            process: the process that joins CUPTI's records; None for this one.
            profiler_has_cupti: whether torch's profiler has CUPTI; None if it never had it.
        """
        self._owner = os.getpid()
        self._here = _Here()
        self._open_nvml()
        if not KNOBS.cupti:
            return
        hindrance = self._hindrance(profiler_has_cupti)
        if hindrance is not None:
            self._on_record(LostActivities(0, hindrance))
            tell(f"GPU times: {hindrance}; {_EVENTS_INSTEAD}")
            return
        try:
            self._recording = self._make_recording(make_buffers(), process)
            self._recording.start()
        except (TkError, OSError) as error:
            # There may be no shared memory, as under `ulimit -f`.
            self._recording = None
            self._release()
            self._on_record(LostActivities(0, str(error)))
            tell(f"GPU times: {error}; {_EVENTS_INSTEAD}")
            return
        self._switch(True)

    def _hindrance(self, profiler_has_cupti: bool | None) -> str | None:
        """Return why CUPTI cannot be used; if it can, take it and return None."""
        if profiler_has_cupti is not None:
            return _BESIDE_PROFILER if profiler_has_cupti else _BEHIND_PROFILER
        if os.environ.get(_CORE_DUMPS) == "1":
            return _BESIDE_CORE_DUMPS
        if _Client.recording is not None and _Client.process == os.getpid():
            return _TWO_RECORDINGS
        _Client.recording, _Client.process = self, os.getpid()
        return None

    def _release(self) -> None:
        if _Client.recording is self:
            _Client.recording = None

    def _make_recording(
        self, buffers: ActivityBuffers, process: RecordingProcess | None
    ) -> DeviceRecording:
        from tkdebug.instrument.cupti.recording import Collection, DeviceRecording

        cupti = Cupti(find_cupti())
        if self._has_stalls:
            self._sample_stalls(cupti)
        return DeviceRecording(
            Collection(cupti, buffers, has_origins=self._has_origins and process is not None),
            self._make_taker(cupti, buffers, process),
            self._on_record,
            self._on_round,
            self._on_failure,
        )

    def _sample_stalls(self, cupti: Cupti) -> None:
        from tkdebug.instrument.cupti.recording import PrimaryContexts
        from tkdebug.instrument.recording.stall_recording import StallRecording

        self._stalls = StallRecording(cupti.path, cupti.version, self._on_record, PrimaryContexts())
        for kernel in self._early:
            self._stalls.compiled(kernel)
        self._early.clear()

    def compiled(self, kernel: KernelCompiled) -> None:
        """Note a kernel that may be launched from now on."""
        if self._stalls is not None:
            self._stalls.compiled(kernel)
        elif self._has_stalls:
            self._early.append(kernel)  # CUDA is not in use yet

    def _make_taker(
        self, cupti: Cupti, buffers: ActivityBuffers, process: RecordingProcess | None
    ) -> Taker:
        if process is not None:
            from tkdebug.instrument.cupti.recording import JoinApart

            return JoinApart(process, buffers, cupti.version, self._has_origins)
        from tkdebug.instrument.cupti.activity_join import ActivityJoin
        from tkdebug.instrument.cupti.recording import JoinHere, names_at

        self._join = ActivityJoin(cupti.layout, names_at, self._on_measured, self._on_record)
        return JoinHere(self._join)

    def _switch(self, is_on: bool) -> None:
        self.is_on = is_on
        self.flags[0] = TIMED if is_on else 0
        self._switched(is_on)

    def _on_failure(self) -> None:
        self._switch(False)

    def share(self, is_taken: bool) -> None:
        """Stop timing by CUPTI for good when torch's profiler takes it: CUPTI has one client."""
        recording = self._recording
        if recording is None or os.getpid() != self._owner:
            return
        if is_taken and recording.is_on:
            self._on_record(LostActivities(0, _BESIDE_PROFILER))
            tell(f"GPU times: {_BESIDE_PROFILER}; {_EVENTS_INSTEAD}")
            self._switch(False)
            recording.stop(when_done=False)

    def stop(self) -> None:
        """Take the records that are left."""
        if os.getpid() != self._owner or self._recording is None:
            return
        self._sample(is_busy=False)
        if self._stalls is not None:
            self._recording.wait()
            self._stalls.stop()
            if self._stalls.is_broken:
                self._recording.leave_alone()
        self._recording.stop()
        self._release()
        self.is_on = False
        self.flags[0] = 0
        self._times.clear()

    def take_ended(self, limit_s: float) -> None:
        """Take the records of ended work, without waiting for running work."""
        if self._recording is not None:
            self._recording.take_ended(limit_s)

    def abandon(self, limit_s: float) -> None:
        """Stop without waiting: the GPU is stuck."""
        if os.getpid() != self._owner or self._recording is None:
            return
        self._recording.abandon(limit_s)
        self._release()
        self.is_on = False
        self.flags[0] = 0

    def wait(self) -> None:
        """Take the records that CUPTI has now."""
        if self._recording is not None:
            self._recording.wait()

    def enter(self, launch: int) -> LaunchTime:
        """Note a launch that is about to be made."""
        time_on_device = self._times[launch] = LaunchTime(self.wait)
        return time_on_device

    def exit(self, record: LaunchRecord) -> bool:
        """Note the end of a launch call; return whether CUPTI times the launch."""
        launch = record.id
        if launch not in self._times:
            return False
        if record.error is not None or self._join is None:
            self._times.pop(launch, None)
            return False
        ends = (record.start_ns, time.time_ns())
        self._join.made(Made(launch, self._here.native_id, *ends, record.grid))
        return True

    def _on_measured(self, measured: Measured) -> None:
        time_on_device = self._times.pop(measured.launch, None)
        if time_on_device is None:
            return
        time_on_device.duration_ns = measured.duration_ns
        time_on_device.settled_ns = time.time_ns()
        self._told_measured(measured)

    def _open_nvml(self) -> None:
        from tkdebug.instrument.recording.nvml import Nvml

        with contextlib.suppress(OSError, AttributeError):
            self._nvml = Nvml()
        self._sample(is_busy=False)

    def _on_round(self, devices: set[int]) -> None:
        """Sample stalls after a round of the recording, and now and then the states of GPUs."""
        if self._stalls is not None:
            self._stalls.round()
        self._devices |= devices
        if devices and time.monotonic() >= self._state_due_s:
            self._sample(is_busy=True)

    def _sample(self, is_busy: bool) -> None:
        if self._nvml is None:
            return
        self._state_due_s = time.monotonic() + STATE_S
        for device in sorted(self._devices):
            state = self._nvml.state(device, is_busy)
            if state is not None:
                self._on_record(state)
