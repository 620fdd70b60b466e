"""Proton's sessions: `start`, `activate`, `deactivate`, `finalize`, `profile`, and its command.

Responsible for upstream's arguments, and for refusing by name what needs CUPTI or instrumented
kernels. `tkdebug.instrument.profiling` has the sessions.
"""

from __future__ import annotations

import argparse
import functools
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from tkdebug.compat.proton.hooks import Hook, HookManager, LaunchHook
from tkdebug.errors import TkError, UnsupportedError
from tkdebug.instrument.profiling import ProfileError
from tkdebug.instrument.profiling.files import check_format, hatchet, write_profile
from tkdebug.instrument.profiling.profile import (
    CONTEXTS,
    DATA_KINDS,
    ContextKind,
    DataKind,
    Profile,
)
from tkdebug.instrument.profiling.profiler import PROFILER
from tkdebug.runtime.device.driver import compute_capability, driver
from tkdebug.terminal.text import tell

DEFAULT_PROFILE_NAME = "proton"
_REFUSED_BACKENDS = {
    "roctracer": "AMD's GPUs are not supported",
    "instrumentation": "it compiles clocks into kernels; `tkdebug lines` shows what a line costs",
}


@dataclass(frozen=True)
class BaseMode:
    """A mode of upstream's profiler, each of which `start` refuses by name."""

    name: str

    def __str__(self) -> str:
        return self.name


class ProfilerFlags:
    """The profiler's state, as far as scripts may ask for it.

    Attributes:
        instrumentation_on: never: kernels are not instrumented.
        command_line: whether the script was started by Proton's command, whose session it is in.
    """

    instrumentation_on = False

    def __init__(self) -> None:
        self.command_line = False

    @property
    def profiling_on(self) -> bool:
        """Whether there is a session, active or not."""
        return PROFILER.is_on


flags = ProfilerFlags()
_reported: set[str] = set()


def select_backend() -> str:
    """The backend of the current device, by upstream's name."""
    return "cupti"


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: object = None,
    hook: str | Hook | None = None,
) -> int | None:
    """Start a profiling session, and return its number, which the other functions take.

    Args:
        name: the name of the file that `finalize` writes, without its suffix.
        context: the place of launches in the tree: under the scopes in force (shadow) or the calls
            (python).
        data: a tree of sums, or a trace of all launches.
        backend: cupti, which is the default, and means CUDA events here.
        mode: None or ""; every mode of upstream's is refused.
        hook: "triton" for names and metrics that kernels give by `launch_metadata`.

    Returns:
        The session's number, None if profiling is switched off.

    Raises:
        ProfileError: an argument is none of those.
        UnsupportedError: tkdebug does not have the argument.
    """
    if flags.command_line or PROFILER.disabled:
        return None
    _check_backend(backend)
    if mode not in (None, ""):
        raise UnsupportedError(
            f"proton.start: tkdebug has no mode {str(mode)!r}, which takes CUPTI or instrumented "
            "kernels; start it without a mode"
        )
    if hook is not None and hook != "triton" and not isinstance(hook, Hook):
        raise ProfileError(f"Unsupported hook: {hook!r}; there is 'triton'")
    kind = _one_of("data", data, DATA_KINDS)
    source = _one_of("context source", context, CONTEXTS)
    number = PROFILER.start(
        DEFAULT_PROFILE_NAME if name is None else str(name),
        cast("ContextKind", source),
        cast("DataKind", kind),
    )
    if hook is not None:
        HookManager.register(hook if isinstance(hook, Hook) else LaunchHook(), number)
    return number


def _check_backend(backend: str | None) -> None:
    if backend is None or backend.lower() == "cupti":
        return
    why = _REFUSED_BACKENDS.get(backend.lower())
    if why is not None:
        raise UnsupportedError(f"proton.start: tkdebug has no backend {backend!r}: {why}")
    raise ProfileError(f"Unknown profiler: {backend}; there is 'cupti'")


def _one_of(what: str, name: str | None, known: Iterable[str]) -> str:
    found = next((k for k in known if name is not None and k == name.lower()), None)
    if found is None:
        raise ProfileError(f"Unknown {what}: {name}; there are {', '.join(known)}")
    return found


def check_session(session: int | None, what: str) -> None:
    """Refuse any session but the command's, if Proton's command started the script.

    Raises:
        ValueError: the script names another session.
    """
    if flags.command_line and session not in (None, 0):
        raise ValueError(f"Only one session can be {what} when running from the command line.")


def activate(session: int | None = None) -> None:
    """Have a session, or all, record.

    Raises:
        ProfileError: there is no such session.
    """
    check_session(session, "activated")
    PROFILER.activate(session)
    HookManager.activate(session)


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Have a session, or all, record nothing until it is activated again.

    Args:
        session: its number, None for all.
        flushing: wait for the launches so far.

    Raises:
        ProfileError: there is no such session.
    """
    check_session(session, "deactivated")
    PROFILER.deactivate(session)
    HookManager.deactivate(session)
    if flushing:
        PROFILER.settle()


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """End a session, or all, and write the measurements; without a session do nothing.

    Args:
        session: its number, None for all.
        output_format: hatchet for a tree, chrome_trace for a trace; "" for the fitting one.

    Raises:
        ProfileError: the data cannot have that format, or the file cannot be written.
    """
    check_session(session, "finalized")
    wanted = (output_format or "").lower()
    for profile in PROFILER.open(session):
        check_format(profile, wanted)
    HookManager.unregister(session)
    for profile in PROFILER.end(session):
        write_profile(profile, check_format(profile, wanted), device_facts)
        _tell(profile)


def device_facts(index: int) -> dict[str, object]:
    """Return the facts of CUDA device `index` for a profile: clocks in kHz, bus width in bits."""
    properties = driver.active.utils.get_device_properties(index)
    return {
        "arch": str(compute_capability(None)),
        "clock_rate": properties["sm_clock_rate"],
        "memory_clock_rate": properties["mem_clock_rate"],
        "bus_width": properties["mem_bus_width"],
        "num_sms": properties["multiprocessor_count"],
    }


def _tell(profile: Profile) -> None:
    """Report data that one might expect in the file and that it lacks, each once a process."""
    if profile.interpreted:
        _tell_once(
            profile, "interpreted", "times are wall times of interpreted kernels, not a GPU's"
        )
    idle = profile.tree.idle_scopes() if profile.context == "shadow" else []
    if idle:
        more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
        _tell_once(
            profile,
            "idle",
            f"no kernel of the script's own ran in scope {idle[0]!r:.60}{more}; "
            "torch's and libraries' kernels are not timed",
        )
    if profile.lost_events:
        _tell_once(profile, "full", f"it is full: {profile.lost_events:,} launches are not in it")


def _tell_once(profile: Profile, kind: str, what: str) -> None:
    if kind not in _reported:
        _reported.add(kind)
        tell(f"proton session {profile.name!r}: {what}")


def profile(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: object = None,
    hook: str | Hook | None = None,
) -> Any:
    """Decorator: a session is active while the function runs; `finalize` writes its file.

    Used with or without arguments, which are those of `start`.
    """
    if func is None:
        return functools.partial(
            profile, name=name, context=context, data=data, backend=backend, mode=mode, hook=hook
        )
    profiled = func

    @functools.wraps(profiled)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        session = start(name, context=context, data=data, backend=backend, mode=mode, hook=hook)
        try:
            return profiled(*args, **kwargs)
        finally:
            if session is not None:
                deactivate(session)

    return wrapper


def profile_data(session: int | None = 0, phase: int = 0) -> list[dict[str, object]] | None:
    """Return the tree of a session and its devices as a .hatchet file has it (`proton.data.get`).

    It waits for the launches of the session.

    Raises:
        ProfileError: there is no such session.
        UnsupportedError: the phase is not the first.
    """
    if session is None:
        return None
    check_session(session, "retrieved")
    if phase:
        raise UnsupportedError(
            f"proton.data.get: tkdebug's sessions have one phase, 0; got {phase}"
        )
    PROFILER.settle()
    return hatchet(PROFILER.profile(session).tree, device_facts)


def main() -> None:
    """Run a script or pytest under one session: `python -m triton.profiler.proton`."""
    parser = argparse.ArgumentParser(
        prog="triton.profiler.proton", description="Profiles a script, or pytest, as one session."
    )
    parser.add_argument("-n", "--name", help="name of the session, and of its file")
    parser.add_argument("-b", "--backend", choices=["cupti", "roctracer", "instrumentation"])
    parser.add_argument("-c", "--context", default="shadow", choices=["shadow", "python"])
    parser.add_argument("-m", "--mode")
    parser.add_argument("-d", "--data", default="tree", choices=["tree", "trace"])
    parser.add_argument("-k", "--hook", choices=["triton"])
    parser.add_argument("target", nargs=argparse.REMAINDER, help="script or pytest, its arguments")
    options = parser.parse_args()
    if not options.target:
        parser.error("name a script, or pytest, to run")
    try:
        start(
            options.name,
            context=options.context,
            data=options.data,
            backend=options.backend,
            mode=options.mode,
            hook=options.hook,
        )
    except TkError as error:
        parser.error(str(error))
    # From now on the script's own sessions are not begun.
    flags.command_line = True
    try:
        status = _run(options.target[0], options.target[1:])
    finally:
        flags.command_line = False
        finalize()
    sys.exit(status)


def _run(script: str, arguments: list[str]) -> str | int | None:
    """Run a script or pytest, and return its exit status."""
    if os.path.basename(script) == "pytest":
        import pytest

        return int(pytest.main(arguments))
    before = sys.argv
    sys.argv = [script, *arguments]
    sys.path.append(os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
    return 0
