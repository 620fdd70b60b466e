"""Runs commands in processes that are forked from one that has imported what they import.

Importing torch and tkdebug is most of what a short run costs. `tkdebug run` has torch imported
before it does anything else, and what modules of tkdebug look at when they are imported is the
folder alone that the process began in, so a forked process finds the state that a new one would.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_SERVER = """\
import gc, json, os, runpy, select, socket, sys
import contextlib, importlib, pkgutil
import torch, multiprocessing.process, numpy.ma, numpy.typing, pdb, pytest
import torch.distributed.tensor  # by the first comparison of torch.testing
with contextlib.suppress(ImportError):  # a package that is optional
    import elftools.elf.elffile
def warm_up(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name not in sys.argv[2:]:
            with contextlib.suppress(ImportError):
                imported = importlib.import_module(module.name)
                if module.ispkg:
                    warm_up(imported)
warm_up(importlib.import_module("tkdebug"))
server = socket.socket(fileno=int(sys.argv[1]))
path = os.environ["PYTHONPATH"].split(os.pathsep)
gc.freeze()  # a collection in a child would copy every page
def request(server):
    running = {}
    poll = select.poll()
    poll.register(server, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                poll.unregister(ready)
                os.close(ready)
                pid, said = running.pop(ready)
                os.write(said, b"%d " % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(said)
                continue
            message, handles, _, _ = socket.recv_fds(server, 1 << 20, 4)
            if not message:
                os._exit(0)
            *handles, said = handles
            pid = os.fork()
            if not pid:
                for handle in (server.detach(), said, *running):
                    os.close(handle)
                for at, handle in enumerate(handles):
                    os.dup2(handle, at)
                    os.close(handle)
                return json.loads(message)
            os.write(said, b"%d " % pid)
            ended = os.pidfd_open(pid)
            running[ended] = pid, said
            poll.register(ended, select.POLLIN)
            for handle in handles:
                os.close(handle)
def begin(asked):
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.modules["tkdebug.errors"]._START_FOLDER = os.getcwd()
    sys.modules["multiprocessing.process"].ORIGINAL_DIR = os.getcwd()
    sys.path[1 : len(path) + 1] = asked["env"]["PYTHONPATH"].split(os.pathsep)
    first, *words = asked["words"]
    if first == "-c":
        text, *sys.argv[1:] = words
        sys.path[0] = ""
        main = sys.modules["__main__"] = type(sys)("__main__")
        return lambda: exec(compile(text, "<string>", "exec"), vars(main))
    if first == "-m":
        module, *sys.argv[1:] = words
        sys.path[0] = os.getcwd()
        return lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.argv[:] = asked["words"]
    sys.path[0] = os.path.dirname(os.path.realpath(first))
    return lambda: runpy.run_path(first, run_name="__main__")
def end(code):
    # As Python ends, but no module is freed: that, too, would copy every page.
    import atexit, ctypes, threading
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(code & 0xFF)
try:
    begin(request(server))()
except SystemExit as error:
    if type(error.code or 0) is int:
        end(error.code or 0)
    raise
end(0)
"""
# Packages and modules that commands do not import, or that have to be the first ones.
_NOT_IMPORTED = (
    "tkdebug.__main__",
    "tkdebug.compat.child",
    "tkdebug.mcp_server",
    "tkdebug.pytest_plugin",
    "tkdebug.tui",
)
# What Python, its libraries or torch read when they start.
_READ_AT_START = ("PYTHON", "LD_", "TORCH_", "OMP_", "MKL_", "CUDA_", "LC_", "LANG", "HOME")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def run_module(module: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -m module` with text captured, in a process of its own."""
    return run_python("-m", module, *arguments, **options)


def run_python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python on `-c TEXT`, `-m MODULE` or a script, with text captured, in its own process.

    It starts cold where `options`, which are those of `subprocess.run`, ask for more than an input,
    a folder, or variables that only tkdebug reads; `capture_output=True` always does.
    """
    words = list(map(str, arguments))
    options = {"timeout": 300, "env": ENVIRONMENT, **options}
    if options.keys() <= {"timeout", "env", "cwd", "input"} and _WARM.fits(options["env"]):
        return _WARM.run(words, **options)
    options = {"capture_output": True, "text": True, **options}
    return subprocess.run([sys.executable, *words], **options)


def start_python(
    *arguments: object, env: Mapping[str, str] = ENVIRONMENT, **options: Any
) -> WarmProcess | subprocess.Popen[bytes]:
    """Start such a process; `options` are a folder and the streams, as `subprocess.Popen` has."""
    words = list(map(str, arguments))
    if _WARM.fits(env):
        return _WARM.start(words, env=env, **options)
    return subprocess.Popen([sys.executable, *words], env=env, **options)


class WarmPython:
    """The process that is forked; it starts with the first command and ends with this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._socket: socket.socket | None = None

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a process that starts with `environment` would have started as ours did."""
        return (
            hasattr(os, "pidfd_open")
            # A driver that was asked for its devices does not work in a forked process.
            and not Path("/dev/nvidiactl").exists()
            and _at_start(environment) == _at_start(self._environment)
            and _folders(self._environment) <= _folders(environment)
            and not any(Path(one, "sitecustomize.py").exists() for one in _folders(environment))
        )

    def start(
        self,
        words: list[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> WarmProcess:
        """Start Python on `words`; the streams are as those of `subprocess.Popen`."""
        asked = {"words": words, "env": dict(env), "cwd": str(cwd or os.getcwd())}
        theirs, ours = [], []
        for number, stream in enumerate((stdin, stdout, stderr)):
            mine, other = None, os.dup(number)
            if stream == subprocess.PIPE:
                os.close(other)
                other, mine = os.pipe() if number == 0 else reversed(os.pipe())
            elif stream == subprocess.DEVNULL:
                os.close(other)
                other = os.open(os.devnull, os.O_RDWR)
            ours.append(None if mine is None else os.fdopen(mine, "rb" if number else "wb"))
            theirs.append(other)
        said, saying = os.pipe()
        socket.send_fds(self._started(), [json.dumps(asked).encode()], [*theirs, saying])
        for handle in (*theirs, saying):
            os.close(handle)
        return WarmProcess(words, said, *ours)

    def run(
        self,
        words: list[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        input: str | bytes | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """Run Python on `words`, as `subprocess.run` does with text captured."""
        pipe = subprocess.PIPE
        stdin = subprocess.DEVNULL if input is None else pipe
        process = self.start(words, env=env, cwd=cwd, stdin=stdin, stdout=pipe, stderr=pipe)
        killer = threading.Timer(timeout, process.kill)
        killer.start()
        out, err = _Reader(process.stdout), _Reader(process.stderr)
        if process.stdin is not None:
            with process.stdin as file, suppress(BrokenPipeError):
                file.write(input.encode() if isinstance(input, str) else input)
        out.join()
        err.join()
        status = process.wait()
        is_over = not killer.is_alive() and status == -signal.SIGKILL
        killer.cancel()
        if is_over:
            raise subprocess.TimeoutExpired(words, timeout, out.text, err.text)
        return subprocess.CompletedProcess(words, status, out.text, err.text)

    def _started(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            # What it says itself goes where this process says it; children have their own.
            subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno()), *_NOT_IMPORTED],
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
            theirs.close()
            atexit.register(self._socket.close)
        return self._socket


_WARM = WarmPython(ENVIRONMENT)


class WarmProcess:
    """A forked process, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        words: list[str],
        said: int,
        stdin: BinaryIO | None,
        stdout: BinaryIO | None,
        stderr: BinaryIO | None,
    ) -> None:
        self._words, self._said = words, said
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.pid = int(_word(said))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the status."""
        if self.returncode is None:
            if not select.select([self._said], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._words, timeout or 0)
            self.returncode = int(_word(self._said))
            os.close(self._said)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it now."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


class _Reader(threading.Thread):
    def __init__(self, stream: BinaryIO | None) -> None:
        super().__init__()
        assert stream is not None
        self._stream, self.text = stream, ""
        self.start()

    def run(self) -> None:
        with io.TextIOWrapper(self._stream, encoding="utf-8") as file:
            self.text = file.read()


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name != "PYTHONPATH"
    }


def _folders(environment: Mapping[str, str]) -> set[str]:
    return set(environment.get("PYTHONPATH", "").split(os.pathsep))


def _word(handle: int) -> bytes:
    word = b""
    while not word.endswith(b" "):
        byte = os.read(handle, 1)
        if not byte:
            raise EOFError("the process that is forked has ended")
        word += byte
    return word
