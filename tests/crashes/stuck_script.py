"""`tkdebug run` of a script that waits, where no signal wakes it, for a kernel that never ends.

`python stuck_script.py FOLDER`: the device is made up; its streams are busy forever.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "targets"))

from schedule_backend import PaperJams, PrinterPlatform, ScheduleBackend

from tkdebug.cli import main
from tkdebug.compiler.targets import register_backend
from tkdebug.runtime.device.platform import platform

SCRIPT = """
import ctypes, os, signal, threading, torch, triton, triton.language as tl
@triton.jit
def wait_for_ever(flag, n):
    tl.store(flag, n)
def go():
    wait_for_ever[(4, 3)](torch.zeros(1), 1)
go()
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
libc.pthread_mutex_lock(mutex)
"""


class Busy(PaperJams):
    def is_busy(self, device: int, stream: int) -> bool:
        return True


class Untimed:
    def start(self, stream: int) -> None:
        return None


class BusyPrinter(PrinterPlatform):
    def span_timer(self, device: int) -> Untimed:
        return Untimed()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    path = folder / "script.py"
    path.write_text(SCRIPT, "utf-8")
    register_backend(ScheduleBackend())
    files = ["-o", str(folder / "run.tkd"), "--report", str(folder / "report.json")]
    with platform(BusyPrinter(crash_dumps=Busy())):
        options = ["--no-tui", "--mode", "native", "--check-launches", "none", *files]
        os._exit(main(["run", *options, str(path)]))
