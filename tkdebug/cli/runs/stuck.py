"""The end of a run whose main thread waits in the driver for a kernel that never ends.

Nothing wakes that thread. So another one stores the session, prints what `tkdebug run` prints at
its end, and ends the process. Invariants: nothing waits for the GPU; the process ends, whatever
goes wrong before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from tkdebug.cli.script.execution import Ending
from tkdebug.cli.statuses import INTERRUPTED_STATUS
from tkdebug.instrument.recorder import Recorder
from tkdebug.tracebacks import show_interrupt


class StuckRun:
    """Ends the run from a thread beside it.

    Args:
        recorder: of the run.
        conclude: prints the outcome for how the script ended; the result is the exit status.
    """

    def __init__(self, recorder: Recorder, conclude: Callable[[Ending], int]) -> None:
        self._recorder = recorder
        self._conclude = conclude
        self._main = threading.main_thread()

    def take_ended(self, limit_s: float) -> None:
        """Have launches know their ends, as far as the GPU tells without waiting."""
        self._recorder.take_ended(limit_s)

    def end_stuck(self) -> NoReturn:
        """End the process as Ctrl-C would."""
        status = INTERRUPTED_STATUS
        try:
            frame = sys._current_frames().get(self._main.ident or 0)  # noqa: SLF001
            if frame is not None:
                show_interrupt(frame)
            self._recorder.stop(status, is_gpu_stuck=True)
            status = self._conclude(Ending(status, KeyboardInterrupt()))
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
