"""The process of LLVM and the assembler: `python -m tkdebug.compiler.targets.nvptx.codegen.worker`.

Reads requests as frames from standard input and answers on what was standard output; anything that
LLVM prints goes to standard error. Before each stage it says which one, so that its caller knows
where it died. Invariant: it ends when its standard input does, whatever it is busy with, so no
worker outlives the process that started it.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tkdebug.compiler.targets.nvptx.codegen import wire
from tkdebug.compiler.targets.nvptx.codegen.wire import StageError

if TYPE_CHECKING:
    from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import LlvmStage

Frame = tuple[wire.Header, bytes]


class Worker:
    """Serves requests one after another; loads each library when first needed."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._llvm: LlvmStage | None = None

    def announce(self, stage: str) -> None:
        """Report to the requesting process which stage begins."""
        self._send(wire.pack({"status": "stage", "stage": stage}))

    def serve(self, header: wire.Header, body: bytes) -> None:
        """Answer one request with a frame whose status is ok or error."""
        try:
            answer, blob = self._run(header, body)
        except StageError as error:
            answer = {"status": "error", "stage": error.stage, "message": str(error)}
            answer["log"] = error.log
            blob = b""
        except Exception as error:  # whatever the libraries raise is an answer, not our end
            answer = {"status": "error", "stage": "worker", "log": ""}
            answer["message"] = f"{type(error).__name__}: {error}"
            blob = b""
        self._send(wire.pack(answer, blob))

    def _run(self, header: wire.Header, body: bytes) -> Frame:
        match header.get("task"):
            case "ping":
                from tkdebug.compiler.targets.nvptx.codegen import ptx_stage

                return {"status": "ok", "nvjitlink": ptx_stage.version()}, b""
            case "ptx":
                stage = self._stage_of_llvm()
                wanted, least = (
                    int(str(header[name])) for name in ("ptx_version", "least_ptx_version")
                )
                ptx_version = self._newest_ptx(wanted, least, str(header["cpu"]))
                ptx, times = stage.emit_ptx(
                    body.decode(),
                    str(header["cpu"]),
                    ptx_version,
                    self.announce,
                    int(str(header.get("opt_level", 3))),
                )
                return {"status": "ok", "times_ns": times}, ptx.encode()
            case "cubin":
                from tkdebug.compiler.targets.nvptx.codegen import ptx_stage

                options = header["options"]
                if not isinstance(options, list):
                    raise StageError("worker", f"options: got {options!r}, expected a list")
                self.announce("assemble")
                timeout_s = float(str(header["timeout_s"]))
                shared_bytes = int(str(header["shared_bytes"]))
                cubin, log = ptx_stage.assemble(
                    body,
                    str(header["name"]),
                    options,
                    timeout_s,
                    shared_bytes,
                    is_checked=bool(header["is_checked"]),
                    is_lasting=bool(header["is_lasting"]),
                )
                return {"status": "ok", "log": log}, cubin
            case task:
                raise StageError("worker", f"got task {task!r}, expected ping, ptx or cubin")

    def warm_up(self, wanted: Callable[[], bool]) -> None:
        """Load the libraries before the first request, step by step until `wanted` returns True."""
        from tkdebug.compiler.targets.nvptx.codegen import ptx_stage

        for step in (self._stage_of_llvm, ptx_stage.version, ptx_stage.assemble_nothing):
            if wanted():
                return
            with suppress(StageError):  # a request for a missing one fails then
                step()

    def _newest_ptx(self, wanted: int, least: int, cpu: str) -> int:
        from tkdebug.compiler.targets.nvptx.codegen import ptx_stage

        try:
            ptx_stage.version()
        except StageError:  # PTX can be made without the assembler, whose requests report it
            return wanted
        return ptx_stage.newest_ptx(wanted, least, cpu)

    def _stage_of_llvm(self) -> LlvmStage:
        from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import LlvmStage

        if self._llvm is None:
            self._llvm = LlvmStage()
        return self._llvm


def _read_requests(source: int, requests: queue.Queue[Frame]) -> None:
    def read_exactly(count: int) -> bytes:
        parts = []
        while count:
            part = os.read(source, min(count, 1 << 20))
            if not part:
                os._exit(0)  # the other side is gone; LLVM may be busy and cannot be asked to stop
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    try:
        while True:
            requests.put(wire.read(read_exactly))
    except (wire.FrameError, OSError) as error:
        print(f"worker: {error}", file=sys.stderr, flush=True)
        os._exit(2)


def _without_core_files() -> None:
    # An abort of LLVM is an answer here; a core file of it would only fill the disk.
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the script
    _without_core_files()
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)

    def send(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]

    requests: queue.Queue[Frame] = queue.Queue()
    threading.Thread(target=_read_requests, args=(source, requests), daemon=True).start()
    worker = Worker(send)
    worker.warm_up(lambda: not requests.empty())
    while True:
        worker.serve(*requests.get())


if __name__ == "__main__":
    main()
