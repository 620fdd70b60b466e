"""The profiling sessions of this process: one subscriber of the hook chain while any is active.

Responsible for when sessions are active, and for giving each launch, once its time is known, to the
sessions that were active when it was made. `files` writes them.

Invariants: a launch never waits for the device, only `finalize` does; with no active session
nothing is subscribed, so launches cost the same as without profiling.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tkdebug.instrument.profiling import ProfileError
from tkdebug.instrument.profiling.profile import (
    ContextKind,
    DataKind,
    DeviceName,
    LaunchEvent,
    Profile,
    is_number,
    kept,
)
from tkdebug.instrument.recording.device_times import DeviceTimes
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.records.scopes import SCOPES, state

# The state that launches made by a `launch_metadata` function are under, as Proton names it.
METADATA_STATE = "__proton_launch_metadata"
_NOT_METRICS = ("name", "function", "stream")

DeviceFacts = Callable[[int], Mapping[str, object]]


@dataclass(slots=True)
class _Launch:
    """A launch under way, and where it belongs in each session."""

    name: str
    stream: int
    start_ns: int
    device: DeviceName
    paths: tuple[tuple[Profile, tuple[str, ...]], ...]
    metrics: dict[str, object] = field(default_factory=dict)


class Profiler:
    """Sessions by number, counted from 0.

    Attributes:
        metadata_wanted: the kernels whose `launch_metadata` is asked for names and metrics; None
            for none.
        disabled: whether scripts get no sessions when they start one.
    """

    def __init__(self) -> None:
        self._profiles: dict[int, Profile] = {}
        self._active: tuple[Profile, ...] = ()
        self._next_number = 0
        self._hook = Hook(enter=self._on_enter, exit=self._on_exit, timed=True)
        self._under_way: dict[int, _Launch] = {}
        self._device_times: DeviceTimes | None = None
        self.metadata_wanted: Callable[[str], bool] | None = None
        variable = os.environ.get("TRITON_PROTON_DISABLE", "")
        self.disabled = variable.lower() in ("1", "true", "yes", "on", "y")
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Replace the lock, as a forked child has to."""
        self._lock = threading.RLock()

    @property
    def is_on(self) -> bool:
        """Whether there is any session, active or not."""
        return bool(self._profiles)

    def start(self, name: str, context: ContextKind = "shadow", kind: DataKind = "tree") -> int:
        """Begin a session, or activate the one of that name; return its number."""
        with self._lock:
            number = next((n for n, p in self._profiles.items() if p.name == name), None)
            if number is None:
                number = self._next_number
                self._next_number += 1
                self._profiles[number] = Profile(name, context, kind)
                SCOPES.keep(1)
        self.activate(number)
        return number

    def profile(self, number: int) -> Profile:
        """The session of that number.

        Raises:
            ProfileError: there is no such session.
        """
        found = self._profiles.get(number)
        if found is None:
            raise ProfileError(f"Session has not been initialized: {number}{self._known()}")
        return found

    def open(self, number: int | None = None) -> list[Profile]:
        """The session of that number, or all; empty if there is none."""
        if number is None:
            return list(self._profiles.values())
        return [self._profiles[number]] if number in self._profiles else []

    def _known(self) -> str:
        if not self._profiles:
            return "; no profiling session is open (start one, before it is finalized)"
        return f"; open are {', '.join(map(str, self._profiles))}"

    def _chosen(self, number: int | None) -> list[Profile]:
        return list(self._profiles.values()) if number is None else [self.profile(number)]

    def activate(self, number: int | None = None) -> None:
        """Have a session, or all, record from now on.

        Raises:
            ProfileError: there is no session of that number.
        """
        with self._lock:
            for profile in self._chosen(number):
                if profile not in self._active:
                    SCOPES.watch(profile)
                    self._active = (*self._active, profile)
            if self._active:
                HOOKS.add(self._hook)

    def deactivate(self, number: int | None = None) -> None:
        """Have a session, or all, record nothing until it is activated.

        Raises:
            ProfileError: there is no session of that number.
        """
        with self._lock:
            self._deactivate(self._chosen(number))

    def _deactivate(self, profiles: list[Profile]) -> None:
        for profile in profiles:
            SCOPES.unwatch(profile)
            profile.forget_scopes()
        self._active = tuple(p for p in self._active if p not in profiles)
        if not self._active:
            HOOKS.remove(self._hook)

    def end(self, number: int | None = None) -> list[Profile]:
        """End a session, or all, once the device is done with their launches.

        Returns:
            The measurements of the ended sessions; empty if there is no such session, as in a
            second call.
        """
        self.settle()
        with self._lock:
            numbers = list(self._profiles) if number is None else [number]
            ended = [self._profiles.pop(n) for n in numbers if n in self._profiles]
            self._deactivate(ended)
            SCOPES.keep(-len(ended))
            unused = None if self._profiles else self._device_times
            if unused is not None:
                self._device_times = None
        # Outside of the lock, which its thread may be waiting for.
        if unused is not None:
            unused.stop()
        return ended

    def settle(self) -> None:
        """Wait until the times of all launches so far are known."""
        times = self._device_times
        if times is not None:
            times.wait()

    def _on_enter(self, kernel: object, record: LaunchRecord) -> None:
        paths = tuple((profile, profile.path()) for profile in self._active)
        if record.mode == "native":
            device = DeviceName("CUDA", str(getattr(kernel, "device", 0)))
        else:
            device = DeviceName("CPU", "0")
        launch = _Launch(record.kernel, record.stream, record.start_ns, device, paths)
        self._under_way[record.id] = launch
        wanted = self.metadata_wanted
        if wanted is not None and record.user_metadata is not None and wanted(record.kernel):
            metadata = _metadata_of(record.kernel, record.user_metadata)
            launch.name = str(metadata.get("name", record.kernel))
            metrics = {n: v for n, v in metadata.items() if n not in _NOT_METRICS and is_number(v)}
            launch.metrics = kept(metrics)

    def _on_exit(self, kernel: object, record: LaunchRecord) -> None:
        launch = self._under_way.get(record.id)
        if launch is None:
            return
        # A native launch without a device time was made part of a CUDA graph: it did not run.
        if record.error is not None or (record.mode == "native" and record.device_ns is None):
            del self._under_way[record.id]
            return
        for profile, path in launch.paths:
            profile.add_metrics((*path, launch.name), launch.metrics)
        if record.device_ns is None:
            self._on_settled(record.id, record.duration_ns, None, "host")
            return
        with self._lock:
            if self._device_times is None:
                self._device_times = DeviceTimes(self._on_settled)
            self._device_times.add(record.id, record.device_ns)

    def _on_settled(
        self, number: int, duration_ns: int | None, error: str | None, source: str
    ) -> None:
        launch = self._under_way.pop(number, None)
        if launch is None or duration_ns is None:
            return
        for profile, path in launch.paths:
            event = LaunchEvent((*path, launch.name), launch.stream, launch.start_ns, duration_ns)
            profile.add_launch(event, launch.device)


def _metadata_of(kernel: str, ask: Callable[[], dict[str, object]]) -> dict[str, object]:
    try:
        with state(METADATA_STATE):
            return ask()
    except Exception as error:
        raise ProfileError(
            f"launch_metadata of {kernel} raised {type(error).__name__}: {error}; "
            "the profile has the launch, and no metrics of it"
        ) from error


PROFILER = Profiler()
