"""Has the GPU write a core dump when a kernel crashes, and tells the fault that it comes to.

Responsible for the CUDA variables (which must stand before CUDA starts, here and in child
processes), for when to look for a dump, and for its file. What a dump means is `runtime.crashes`'s.

Invariants: nothing is paid until a crash but a look for a file after a synchronisation; variables
that the user has set stay as they are, and so do the files that they lead to; a crash is told once.
"""

from __future__ import annotations

import atexit
import functools
import glob
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tkdebug.compat.children import COREDUMP_VARIABLE, Environment, after_torch
from tkdebug.errors import TkError

_ENABLE, _FILE = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE"
_FLAGS = "CUDA_COREDUMP_GENERATION_FLAGS"
# What makes a dump large or slow; and the process is to live, so that torch raises its error.
_SKIPPED = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,"
    "skip_constbank_memory,skip_abort"
)
_DEFAULT_FILE = "core_%t_%h_%p.nvcudmp"  # the driver's own
_DEVICE_FILE = "/dev/nvidiactl"
# The driver tells of the error up to 0.3 s after it has written the dump (seen with 580).
_ERROR_DELAY_S = 2.0
_POLL_S = 0.005
_SUFFIX = ".core"


class CrashWatch:
    """Looks for core dumps of this process, and makes faults of them.

    Args:
        pattern: file name as the driver expands it: %p, %h, %t.
        owned: whether the files are tkdebug's, to be deleted once they are read.
    """

    def __init__(self, pattern: str, owned: bool) -> None:
        self.pattern = pattern
        self.owned = owned
        self._told: set[str] = set()
        self._process = os.getpid()
        self._undo = ExitStack()

    def dumps(self) -> list[str]:
        """Files of this process that have not been read."""
        name = self.pattern.replace("%p", str(os.getpid()))
        name = name.replace("%h", platform.node())
        if "%t" in name:
            found = glob.glob(glob.escape(name).replace("%t", "*"))
        else:
            found = [name] if os.path.exists(name) else []
        return [path for path in found if path not in self._told]

    def tell(self, path: str, is_own: bool = True) -> bool:
        """Make faults of the dump at `path`; the result is whether there were any.

        Args:
            path: the file.
            is_own: whether it is of this process, whose launches are known.
        """
        from tkdebug.events import HOOKS
        from tkdebug.linemap.core_dumps import read_core_dump
        from tkdebug.runtime.crashes import faults_of
        from tkdebug.runtime.in_flight import IN_FLIGHT

        self._told.add(path)
        try:
            faults = faults_of(read_core_dump(Path(path)), IN_FLIGHT if is_own else None)
        except TkError as error:
            print(f"tkdebug: GPU core dump: {error}", file=sys.stderr)
            return False
        finally:
            if self.owned:
                with suppress(OSError):
                    os.unlink(path)
        for fault in faults:
            HOOKS.fault(fault)
        if not faults:
            print("tkdebug: the GPU core dump names nothing that crashed", file=sys.stderr)
        return bool(faults)

    def conclude(self) -> None:
        """Wait for this process's launches, and tell what crashed."""
        from tkdebug.runtime.in_flight import IN_FLIGHT

        if os.getpid() != self._process:
            # After a fork the launches, and the context, are the parent's.
            return
        error = _driver_error() if IN_FLIGHT.find(lambda flight: True) else None
        told = [self.tell(path) for path in self.dumps()]
        if error is not None and not told and not self._told:
            from tkdebug.events import HOOKS
            from tkdebug.runtime.crashes import no_dump_fault

            self._told.add("")
            HOOKS.fault(no_dump_fault(error, IN_FLIGHT))

    def conclude_children(self) -> None:
        """Tell of dumps that child processes left and did not read themselves."""
        if self.owned and os.getpid() == self._process:
            folder = glob.escape(os.path.dirname(self.pattern))
            for path in sorted(glob.glob(os.path.join(folder, f"*{_SUFFIX}"))):
                if path not in self._told:
                    self.tell(path, is_own=False)

    def watch_torch(self) -> None:
        """Have torch's synchronisations look for a dump, until `stop`."""
        import torch

        for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
            original = owner.synchronize
            owner.synchronize = self._looking(original)  # type: ignore[union-attr,method-assign]
            self._undo.callback(setattr, owner, "synchronize", original)

    def stop(self) -> None:
        """Undo `watch_torch`."""
        self._undo.close()

    def _looking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self.dumps():
                # A kernel crashed, and the driver has not said so yet.
                _await_error()
            return result

        return synchronize


def _await_error() -> None:
    """Return when the driver tells of the error, by raising torch's."""
    import torch

    deadline_s = time.monotonic() + _ERROR_DELAY_S
    while time.monotonic() < deadline_s:
        torch._C._cuda_synchronize()  # noqa: SLF001
        time.sleep(_POLL_S)


def _driver_error() -> str | None:
    """Wait for the device; the driver's error, if a kernel failed."""
    from tkdebug.runtime.cuda import driver_api

    with suppress(TkError, AttributeError):
        status = int(driver_api.driver().cuCtxSynchronize()[0])
        if status not in (driver_api.SUCCESS, driver_api.INVALID_CONTEXT):
            return driver_api.status_name(status)
    return None


class ArmedCoreDumps:
    """GPU core dumps switched on for this process and its children, until `disarm`."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._undo = ExitStack()
        self.watch: CrashWatch | None = None

    def arm(self) -> None:
        """Switch them on, unless the user's variables have switched them off."""
        from tkdebug.runtime.in_flight import IN_FLIGHT

        if os.environ.get(_ENABLE, "1") != "1":
            return
        owned = _FILE not in os.environ and _ENABLE not in os.environ
        if owned:
            self._folder = tempfile.mkdtemp(prefix="tkdebug-cores-")
            pattern = os.path.join(self._folder, f"%p{_SUFFIX}")
        else:
            pattern = os.path.abspath(os.environ.get(_FILE, _DEFAULT_FILE))
        wanted = {_ENABLE: "1", _FILE: pattern, _FLAGS: _SKIPPED}
        changes: dict[str, str | None] = {
            name: value for name, value in wanted.items() if name not in os.environ
        }
        changes[COREDUMP_VARIABLE] = f"{'owned' if owned else 'user'}:{pattern}"
        self._undo.callback(Environment(changes).restore)
        watch = self.watch = CrashWatch(pattern, owned)
        self._undo.callback(watch.stop)
        IN_FLIGHT.watched = True
        after_torch(watch.watch_torch)

    def conclude(self) -> None:
        """Tell what crashed, here and in child processes."""
        if self.watch is not None:
            self.watch.conclude()
            self.watch.conclude_children()

    def disarm(self) -> None:
        """Undo it; dumps of ours that nobody read are deleted."""
        from tkdebug.runtime.in_flight import IN_FLIGHT

        self.watch = None
        IN_FLIGHT.watched = False
        self._undo.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def armed(wanted: bool) -> Iterator[ArmedCoreDumps]:
    """GPU core dumps for the length of a `with` block, where there is a GPU and they are wanted."""
    state = ArmedCoreDumps()
    owner = os.getpid()
    if wanted and os.path.exists(_DEVICE_FILE):
        state.arm()
    try:
        yield state
    finally:
        if os.getpid() == owner:
            state.disarm()


def watch_from_environment() -> None:
    """Watch in this process, a child, what its parent has switched on."""
    kind, _, pattern = os.environ.get(COREDUMP_VARIABLE, "").partition(":")
    if kind not in ("owned", "user") or not pattern:
        return
    watch = CrashWatch(pattern, kind == "owned")
    from tkdebug.runtime.in_flight import IN_FLIGHT

    IN_FLIGHT.watched = True
    after_torch(watch.watch_torch)
    # After the recorder's, so that it runs before it.
    atexit.register(watch.conclude)
