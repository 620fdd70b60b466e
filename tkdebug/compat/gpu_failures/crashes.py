"""Has the GPU write a core dump when a kernel crashes, and reports the fault that it shows.

Responsible for when to look for a dump, and for its file, here and in child processes. The platform
switches dumps on (before the device is first used) and reads them
(`runtime/device/platform.py`).

Invariants: until a crash, the only cost is one file check after each synchronisation; variables
that the user has set stay as they are, and so do the files that they name; a crash is reported
once.
"""

from __future__ import annotations

import atexit
import functools
import glob
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tkdebug.compat.after_torch import after_torch
from tkdebug.compat.gpu_failures.hangs import HangDumps, HangWatch, RunOfScript, UndumpedHangs
from tkdebug.compat.replacements import COREDUMP_VARIABLE, Environment
from tkdebug.errors import TkError
from tkdebug.process.temporary_folders import TemporaryFolder
from tkdebug.runtime.device.platform import CrashDumps, platform_in_force
from tkdebug.terminal.text import tell

# The driver reports the error up to 0.3 s after it has written the dump (seen with 580).
_ERROR_DELAY_S = 2.0
_POLL_S = 0.005
# The dump may come after the error, too; it is written when it has not grown for a while.
_DUMP_DELAY_S = 5.0
_SETTLED_S = 0.2
_TAKE_S = 1.0
# Value of `COREDUMP_VARIABLE` where crashes are watched and leave no dump.
_NO_DUMPS = "none:"


class CrashWatch:
    """Looks for core dumps of this process, and makes faults of them.

    Args:
        pattern: file name as the driver expands it: %p, %h, %t; "" if it writes no dump.
        owned: whether the files are tkdebug's, to be deleted once they are read.
    """

    def __init__(self, pattern: str, owned: bool) -> None:
        self.pattern = pattern
        self.owned = owned
        # A dump that an earlier run left in the user's place is no crash of this one.
        self._reported: set[tuple[str, int]] = set()
        self._awaited = self._attributed = self._is_asked_for = False
        self._process = os.getpid()
        self._undo = ExitStack()
        self._synchronize: Callable[[], None] | None = None
        # Knows which launches have ended.
        self.run: RunOfScript | None = None
        self._reported.update((path, _written_ns(path)) for path in self.dumps())

    def dumps(self) -> list[str]:
        """Return the unread dumps of this process, without one that was asked for."""
        return [] if self._is_asked_for else self.all_dumps()

    def all_dumps(self) -> list[str]:
        """Return all unread dumps of this process."""
        if not self.pattern:
            return []
        found = glob.glob(_crash_dumps().expanded(self.pattern))
        return [path for path in found if (path, _written_ns(path)) not in self._reported]

    def tell(self, path: str, is_own: bool = True) -> None:
        """Report the faults that the dump at `path` shows.

        Args:
            path: the file.
            is_own: whether it is of this process, whose launches are known.
        """
        from tkdebug.findings.reporting import report
        from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

        self._reported.add((path, _written_ns(path)))
        try:
            report_of_dump = _crash_dumps().read(Path(path), IN_FLIGHT if is_own else None)
        except TkError as error:
            tell(f"GPU core dump: {error}")
            return
        finally:
            if self.owned:
                with suppress(OSError):
                    os.unlink(path)
        for fault in report_of_dump.faults:
            report(fault, is_end=True)
            self._attributed = True
        if not report_of_dump.faults:
            tell("the GPU core dump names nothing that crashed")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Treat dumps that are written during the `with` block as requested, not as crashes."""
        # The driver's errors from now on are because of that.
        self._is_asked_for = self._attributed = True
        try:
            yield
        finally:
            self._reported.update((path, _written_ns(path)) for path in self.all_dumps())
            self._is_asked_for = False

    def conclude(self) -> None:
        """Wait for this process's launches, and report what crashed."""
        from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

        if os.getpid() != self._process:
            # After a fork the launches, and the context, are the parent's.
            return
        error = _crash_dumps().error() if IN_FLIGHT.latest else None
        # Only then: each look at a launch may be a query of the session.
        if error is not None and all(flight.had_ended() for flight in IN_FLIGHT.latest):
            error = None
        if error is not None and not self._attributed:
            self._await_dump()
        for path in self.dumps():
            self.tell(path)
        if error is not None and not self._attributed:
            from tkdebug.findings.reporting import report

            if self.run is not None:
                self.run.take_ended(_TAKE_S)
            report(_crash_dumps().without_dump(error, IN_FLIGHT), is_end=True)

    def conclude_children(self) -> None:
        """Report dumps that child processes left and did not read themselves."""
        if self.pattern and self.owned and os.getpid() == self._process:
            folder, suffix = os.path.dirname(self.pattern), os.path.splitext(self.pattern)[1]
            for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"*{suffix}"))):
                self.tell(path, is_own=False)

    def watch_torch(self) -> None:
        """Have torch's synchronisations look for a dump, until `stop`."""
        import torch

        self._synchronize = torch.cuda.synchronize
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
            if not self._awaited and self.dumps():
                # A kernel crashed, and the driver has not said so yet.
                self._await_error()
            return result

        return synchronize

    def _await_dump(self) -> None:
        """Wait for the dump of a known error, until it no longer grows.

        The driver reports a wild address before it begins the dump (seen with driver 580).
        """
        deadline_s = time.monotonic() + _DUMP_DELAY_S
        sizes: list[int] | None = None
        while self.pattern and time.monotonic() < deadline_s:
            now = [os.path.getsize(path) for path in self.dumps()]
            if now and all(now) and now == sizes:
                return
            sizes = now
            time.sleep(_SETTLED_S)

    def _await_error(self) -> None:
        """Wait until the driver reports the error, and let torch raise it."""
        self._awaited = True
        deadline_s = time.monotonic() + _ERROR_DELAY_S
        while self._synchronize is not None and time.monotonic() < deadline_s:
            self._synchronize()
            time.sleep(_POLL_S)


def _crash_dumps() -> CrashDumps:
    dumps = platform_in_force().crash_dumps
    assert dumps is not None
    return dumps


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class ArmedCoreDumps:
    """GPU core dumps switched on for this process and its children, until `disarm`."""

    def __init__(self) -> None:
        self._folder: TemporaryFolder | None = None
        self._undo = ExitStack()
        self.watch: CrashWatch | None = None
        self._hangs: HangWatch | None = None

    def arm(self, coredump: bool, hang_timeout_s: float | None = None) -> None:
        """Track launches in flight, and switch dumps on unless the user's variables forbid it.

        Args:
            coredump: whether dumps are wanted; without, a crash names the launches in flight.
            hang_timeout_s: how long a kernel may run; None for no limit.
        """
        from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

        IN_FLIGHT.is_on = True
        self._undo.callback(setattr, IN_FLIGHT, "watched", False)
        dumps = platform_in_force().crash_dumps
        # Signals are the main thread's.
        is_main = threading.current_thread() is threading.main_thread()
        settings = None
        if dumps is not None and (coredump or dumps.asked_for_by() is not None):
            settings = dumps.settings(self._new_folder, by_request=is_main)
        if dumps is None or settings is None:
            self._watch_without_dumps()
            return
        pattern, owned = settings.pattern, settings.is_owned
        kept = f"{'owned' if owned else 'user'}:{pattern}"
        environment = Environment({**settings.variables, COREDUMP_VARIABLE: kept})
        # After the variables: they may be read as soon as the library is loaded.
        if owned and not dumps.are_understood():
            environment.restore()
            tell("--coredump: this driver is too old; core dumps take CUDA 12.5 or newer")
            self._watch_without_dumps()
            return
        self._undo.callback(environment.restore)
        watch = self.watch = CrashWatch(pattern, owned)
        self._undo.callback(watch.stop)
        after_torch(watch.watch_torch)
        if settings.pipe is not None:
            dumps_of_hangs = HangDumps(settings.pipe, watch.all_dumps, watch.asking)
            self._hangs = HangWatch(dumps_of_hangs.look, hang_timeout_s)
            self._undo.callback(self._hangs.stop)

    def _watch_without_dumps(self) -> None:
        self.watch = CrashWatch("", owned=False)
        self._undo.callback(Environment({COREDUMP_VARIABLE: _NO_DUMPS}).restore)

    def watch_hangs_of(self, run: RunOfScript) -> None:
        """Have Ctrl-C report the launch that does not end, unless hangs are dumped already."""
        if self.watch is not None:
            self.watch.run = run
        is_main = threading.current_thread() is threading.main_thread()
        if self.watch is not None and self._hangs is None and is_main:
            self._hangs = HangWatch(UndumpedHangs(run).look)
            self._undo.callback(self._hangs.stop)

    def _new_folder(self) -> str:
        self._folder = TemporaryFolder("cores")
        return str(self._folder.path)

    def conclude(self) -> None:
        """Report crashes here and in child processes."""
        if self._hangs is not None:
            self._hangs.wait()
        if self.watch is not None:
            self.watch.conclude()
            self.watch.conclude_children()

    def disarm(self) -> None:
        """Switch dumps off, and delete dumps of tkdebug's that nobody read."""
        self.watch = None
        self._undo.close()
        if self._folder is not None:
            self._folder.remove()


@contextmanager
def armed(
    native: bool, coredump: bool, hang_timeout_s: float | None = None
) -> Iterator[ArmedCoreDumps]:
    """Watch for crashes inside of the `with` block, if there is a GPU.

    Args:
        native: whether kernels may run natively at all.
        coredump: whether a crash is to leave a dump.
        hang_timeout_s: how long a kernel may run until it counts as stuck; None for no limit.
    """
    state = ArmedCoreDumps()
    owner = os.getpid()
    if native and platform_in_force().is_likely():
        state.arm(coredump, hang_timeout_s)
    try:
        yield state
    finally:
        if os.getpid() == owner:
            state.disarm()


def watch_from_environment() -> None:
    """Watch for crashes in this process, a child, as its parent has it."""
    kind, _, pattern = os.environ.get(COREDUMP_VARIABLE, "").partition(":")
    if kind not in ("owned", "user", "none") or (kind != "none" and not pattern):
        return
    watch = CrashWatch(pattern, kind == "owned")
    from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

    IN_FLIGHT.is_on = True
    after_torch(watch.watch_torch)
    # After the recorder's, so that it runs before it.
    atexit.register(watch.conclude)
