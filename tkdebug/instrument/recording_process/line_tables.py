"""Makes line tables of compiled kernels beside the script, one at a time.

They take nvdisasm, and what the kernel was made of, which is in the script's process only.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping

from tkdebug.events import KernelCompiled
from tkdebug.instrument.session_file.store import line_table_text


class LineTables:
    """The line tables that are to be made.

    Args:
        made: called with a kernel's hash and its table as text.
    """

    def __init__(self, made: Callable[[str, str], None]) -> None:
        self._made = made
        self._waiting: deque[tuple[str, Callable[[], Mapping[str, object]]]] = deque()
        self._seen: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, kernel: KernelCompiled) -> None:
        """Make that of `kernel`, once."""
        if kernel.line_table is None or kernel.hash in self._seen:
            return
        self._seen.add(kernel.hash)
        self._waiting.append((kernel.hash, kernel.line_table))
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name="tkdebug-line-tables", daemon=True)
            # No more threads, or the interpreter is ending: `stop` makes them.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Make those that are left."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._run()

    def _run(self) -> None:
        while True:
            try:
                kernel_hash, make = self._waiting.popleft()
            except IndexError:
                return
            self._made(kernel_hash, line_table_text(make))
