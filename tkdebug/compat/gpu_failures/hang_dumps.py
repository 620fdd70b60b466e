"""Has the driver write a core dump of a kernel that does not end, and reports where its warps wait.

The dump ends the kernel: the driver gives its caller an error, and the script ends by that, or by
Ctrl-C.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from tkdebug.errors import TkError
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.terminal.text import tell

# A dump of a full GPU took 5 s (60 MB; driver 580).
_DUMP_S = 20.0
_POLL_S = 0.05
_SETTLED_S = 0.2


class HangDumps:
    """Dumps on request.

    Args:
        pipe: what the driver reads a request for a dump from.
        dumps: the dumps that nobody has read.
        asking: a `with` block in which dumps are of no crash.
    """

    def __init__(
        self,
        pipe: str,
        dumps: Callable[[], list[str]],
        asking: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._pipe = pipe.replace("%p", str(os.getpid()))
        self._dumps = dumps
        self._asking = asking

    def look(self, waited: str) -> None:
        """Have the driver write a dump, and report what it says.

        Args:
            waited: since when the kernel has not ended, in words.
        """
        if not os.path.exists(self._pipe):
            tell(f"a kernel has not ended {waited}; this driver writes no core dumps on request")
            return
        with self._asking():
            self._ask(waited)

    def _ask(self, waited: str) -> None:
        try:
            with open(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK), "wb") as pipe:
                pipe.write(b"1")
        except OSError as error:
            tell(f"a kernel has not ended {waited}; no core dump ({error.strerror})")
            return
        path = self._await_dump()
        if path is None:
            tell(f"a kernel has not ended {waited}; the driver wrote no core dump of it")
            return
        _tell_hang(path, waited)

    def _await_dump(self) -> str | None:
        """The dump, once it has not grown for a while."""
        deadline_s = time.monotonic() + _DUMP_S
        size, since_s = -1, 0.0
        while time.monotonic() < deadline_s:
            for path in self._dumps()[:1]:
                now = os.path.getsize(path)
                if now != size:
                    size, since_s = now, time.monotonic()
                elif now and time.monotonic() - since_s >= _SETTLED_S:
                    return path
            time.sleep(_POLL_S)
        return None


def _tell_hang(path: str, waited: str) -> None:
    from tkdebug.findings.reporting import report
    from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

    dumps = platform_in_force().crash_dumps
    assert dumps is not None
    try:
        faults = dumps.read_hang(Path(path), IN_FLIGHT, waited)
    except TkError as error:
        tell(f"GPU core dump: {error}")
        return
    finally:
        with suppress(OSError):
            os.unlink(path)
    for fault in faults:
        report(fault, is_end=True)
    if not faults:
        tell(f"the GPU has not become idle {waited}, and no warp is on it")
