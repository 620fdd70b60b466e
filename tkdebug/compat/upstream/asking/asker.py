"""Asks an installed Triton about each new signature, and reports different decisions.

Responsible for the worker process, for comparing its answers with tkdebug's results, and for how
long anybody waits. Questions are answered in the background, one after the other: a launch waits
for none. Invariant: an uncertain answer is no finding; it is counted, with its reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tkdebug.compat.upstream.asking.questions import question_of
from tkdebug.compat.upstream.installed import foreign_environment, triton_of
from tkdebug.errors import CompileError, Frame, TkError, UnsupportedError, UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.findings.reporting import report
from tkdebug.knobs import KNOBS
from tkdebug.process.temporary_folders import TemporaryFolder
from tkdebug.records.events import Fault
from tkdebug.runtime.compile.compilation import TRYING
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.device.driver import compute_capability
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS, Compile
from tkdebug.terminal.text import tell

Verdict = Literal["takes", "refuses", "undecided"]

_WORKER = Path(__file__).with_name("triton_worker.py")
_LIMIT_S = 60
_START_LIMIT_S = 60
# How long the end of a run waits for answers, and how long before it says so.
_END_LIMIT_S, _QUIET_S = 60, 3
_KILL_LIMIT_S = 10
_MAX_STARTS = 4
_MAX_QUESTION_CHARS = 4 << 20
_MAX_ANSWER_CHARS = 1 << 16
# Signals of a compiler that broke down; others were sent to end it.
_CRASHES = tuple(
    int(getattr(signal, name, 0)) for name in ("SIGABRT", "SIGSEGV", "SIGFPE", "SIGILL")
)
# A tuner of Triton's takes another configuration where one fails so.
_SKIPPED_BY_TUNERS = ("PTXASError", "CompileTimeAssertionFailure", "OutOfResources")


@dataclass(frozen=True, slots=True)
class Answer:
    """Triton's verdict on one signature.

    Attributes:
        kernel: the kernel's name.
        place: file and line of its `def`.
        signature: the signature as people read it.
        verdict: "undecided" if it was not asked, or its answer says nothing.
        text: its error, or why it is undecided.
        frames: the place of its error, the outermost call first.
        seconds: the time that it took; 0 if it was not asked.
        refused: why tkdebug refuses the kernel; "" if it compiles it.
    """

    kernel: str
    place: tuple[str, int]
    signature: str
    verdict: Verdict
    text: str = ""
    frames: tuple[Frame, ...] = ()
    seconds: float = 0.0
    refused: str = ""

    @property
    def differs(self) -> bool:
        """Whether one of the two compiles it, and the other does not."""
        return self.verdict == ("takes" if self.refused else "refuses")


@dataclass
class _Asked:
    """A question on its way."""

    src: Specialization
    error: TkError | None
    data: dict[str, Any]
    unsent: list[str]
    is_trial: bool
    answer: Answer = field(init=False)

    def __post_init__(self) -> None:
        refused = "" if self.error is None else str(getattr(self.error, "message", self.error))
        fn = self.src.fn
        code = fn.fn.__code__
        self.answer = Answer(
            kernel=fn.__name__,
            place=(code.co_filename, code.co_firstlineno),
            signature=self.src.describe(),
            verdict="undecided",
            refused=refused,
        )


class TritonAsker:
    """An installed Triton as a second opinion.

    Args:
        python: a Python that has it.
        version: the version of that Triton.
        capability: the compute capability to compile for, such as 90; None for the run's target
            when the first kernel is compiled.
        found: called with each fault, by the thread that asks.
        limit_s: how long one signature may take.

    Attributes:
        answers: the answers so far, in the order of the questions.
    """

    def __init__(
        self,
        python: str,
        version: str,
        capability: int | None = None,
        found: Callable[[Fault], None] = report,
        limit_s: int = _LIMIT_S,
    ) -> None:
        self._found = found
        self._limit_s = limit_s
        self.python = python
        self.capability = capability
        self.version = version
        self.answers: list[Answer] = []
        self._seen: set[str] = set()
        self._questions: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._pending = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._worker: _Worker | None = None
        self._is_over = False
        self._owner = os.getpid()

    def around(self, compile: Compile, alignment: tuple[Hashable, ...]) -> Compile:
        """Return `compile`, after which Triton is asked about the same kernel.

        Args:
            compile: compiles a kernel, or raises.
            alignment: the alignment of the launch's arguments, which interpreted kernels do not
                know.
        """

        def compile_and_ask(src: Specialization) -> Any:
            try:
                kernel = compile(src)
            except (CompileError, UnsupportedError) as error:
                self._ask(replace(src, alignment=alignment), error)
                raise
            self._ask(replace(src, alignment=alignment), None)
            return kernel

        return compile_and_ask

    def _ask(self, src: Specialization, error: TkError | None) -> None:
        if os.getpid() != self._owner:
            # A forked child has no thread that asks.
            return
        try:
            if src.hash in self._seen:
                return
            self._seen.add(src.hash)
            question = question_of(src)
        except CompileError as failure:
            asked = _Asked(src, error, {}, [], False)
            self._settle(asked, "undecided", failure.message)
            return
        if self.capability is None:
            self.capability = compute_capability(KNOBS.cross_compile)
        asked = _Asked(src, error, question.data, question.unsent, TRYING.get())
        if not self.version.startswith(f"{KNOBS.triton_version}."):
            self._settle(asked, "undecided", f"it is compiled as of Triton {KNOBS.triton_version}")
            return
        with self._changed:
            self._pending += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._answer_questions, name="tkdebug-triton", daemon=True
                )
                self._thread.start()
        self._questions.put(asked)

    def wait(self, limit_s: float) -> int:
        """Wait for answers, and return how many are still missing.

        Args:
            limit_s: the longest wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0, limit_s)
            return self._pending

    def conclude(self, limit_s: float = _END_LIMIT_S) -> None:
        """Wait for the missing answers, report on all, and end the process.

        Args:
            limit_s: how long to wait at most.
        """
        if os.getpid() != self._owner:
            return
        missing = self.wait(min(limit_s, _QUIET_S))
        try:
            if missing:
                what = counted(missing, "signature")
                tell(f"waiting for Triton's answer about {what}; Ctrl-C goes on without")
                missing = self.wait(limit_s)
        except KeyboardInterrupt:
            missing = self._pending
        self._is_over = True
        self._questions.put(None)
        worker = self._worker
        if missing and worker is not None:
            worker.kill()
        if self._thread is not None:
            self._thread.join(_KILL_LIMIT_S)
        for line in self.summary(missing):
            tell(line)

    def summary(self, missing: int) -> Iterator[str]:
        """Yield lines that sum up the answers; none if nothing was asked.

        Args:
            missing: questions without an answer.
        """
        if not self.answers and not missing:
            return
        counts = Counter(answer.verdict for answer in self.answers)
        parts = [f"takes {counts['takes']}", f"refuses {counts['refuses']}"]
        if counts["undecided"]:
            parts.append(f"not asked or undecided: {counts['undecided']}")
        if missing:
            parts.append(f"no answer in time: {missing}")
        asked = counted(len(self.answers) + missing, "signature")
        yield f"Triton {self.version}, asked about {asked} for {self.target}: {', '.join(parts)}"
        reasons = Counter(a.text for a in self.answers if a.verdict == "undecided")
        for reason, count in reasons.most_common(3):
            yield f"  {count} undecided: {reason}"

    @property
    def target(self) -> str:
        """The architecture that is compiled for."""
        return f"sm_{self.capability}"

    # In the thread that asks

    def _answer_questions(self) -> None:
        starts = 0
        try:
            while (asked := self._questions.get()) is not None and not self._is_over:
                try:
                    if self._worker is None:
                        if starts == _MAX_STARTS:
                            raise _NoAnswerError("its process ended too often")
                        starts += 1
                        self._worker = _Worker(self.python)
                    self._put_to(self._worker, asked)
                except _NoAnswerError as error:
                    if self._worker is not None:
                        self._worker.close()
                        self._worker = None
                    if not self._is_over:
                        self._settle(asked, "refuses" if error.crashed else "undecided", str(error))
                finally:
                    with self._changed:
                        self._pending -= 1
                        self._changed.notify_all()
        finally:
            if self._worker is not None:
                self._worker.close()

    def _put_to(self, worker: _Worker, asked: _Asked) -> None:
        if worker.error:
            self._settle(asked, "undecided", worker.error)
            return
        question = {**asked.data, "capability": self.capability, "limit_s": self._limit_s}
        answer = worker.ask(question, self._limit_s)
        verdict, text = answer["verdict"], str(answer.get("text", ""))
        frames = tuple(
            Frame(str(file), int(line), str(name)) for file, line, name in answer.get("frames", ())
        )
        if verdict == "refuses" and asked.unsent:
            verdict, text = "undecided", f"{', '.join(asked.unsent)} cannot be sent to it"
        if verdict == "refuses" and asked.is_trial and answer.get("type") in _SKIPPED_BY_TUNERS:
            verdict, text = "undecided", f"a tuner skips it: {text}"
        self._settle(asked, verdict, text, frames, float(answer.get("seconds", 0.0)))

    def _settle(
        self,
        asked: _Asked,
        verdict: Verdict,
        text: str,
        frames: tuple[Frame, ...] = (),
        seconds: float = 0.0,
    ) -> None:
        answer = replace(asked.answer, verdict=verdict, text=text, frames=frames, seconds=seconds)
        self.answers.append(answer)
        if answer.differs:
            self._found(self._finding(asked, answer))

    def _finding(self, asked: _Asked, answer: Answer) -> Fault:
        who = f"Triton {self.version} for {self.target}"
        source = asked.src.fn.kernel_source
        here = (Frame(source.file, source.definition.lineno, answer.kernel),)
        if answer.refused:
            return Fault(
                kind="triton-accepts",
                kernel=answer.kernel,
                frames=getattr(asked.error, "frames", ()) or here,
                message=f"{who} compiles what tkdebug refuses: {answer.refused}",
                column=getattr(asked.error, "column", 0),
                severity="warning",
            )
        return Fault(
            kind="triton-refuses",
            kernel=answer.kernel,
            frames=answer.frames or here,
            message=f"{who} refuses what tkdebug compiles: {answer.text}",
            hint=f"under Triton this signature does not launch: {answer.signature}",
        )


def asking(python: str) -> tuple[TritonAsker, Callable[[], None]]:
    """Ask a Triton about all kernels that are compiled from now on.

    Args:
        python: the Python that has it.

    Returns:
        The asker, and a function that ends it: it waits for answers, and reports the result.

    Raises:
        UsageError: that Python has no Triton that can be asked.
    """
    path, installed = triton_of(python, "--ask-triton")
    asker = TritonAsker(path, installed.version)
    before, COMPILE_HOOKS.asker = COMPILE_HOOKS.asker, asker

    def end() -> None:
        COMPILE_HOOKS.asker = before
        asker.conclude()

    return asker, end


def asked_once(python: str, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """Return a Triton's answer to one question, by a process of its own.

    Args:
        python: the Python that has it.
        question: as `_Worker.ask` takes it.
        limit_s: how long it may take.

    Raises:
        UsageError: there is no answer.
    """
    try:
        worker = _Worker(python)
    except _NoAnswerError as error:
        raise UsageError(f"Triton gives no answer: {error}") from None
    try:
        if worker.error:
            raise UsageError(worker.error)
        return worker.ask({"capability": None, **question, "limit_s": int(limit_s)}, limit_s)
    except _NoAnswerError as error:
        raise UsageError(f"Triton gives no answer: {error}") from None
    finally:
        worker.close()


class _NoAnswerError(Exception):
    """The worker returned no answer.

    Attributes:
        crashed: whether the compiler broke down over the question.
    """

    def __init__(self, reason: str, crashed: bool = False) -> None:
        super().__init__(reason)
        self.crashed = crashed


class _Worker:
    """A process of an installed Triton.

    Args:
        python: the interpreter.

    Attributes:
        error: why it cannot compile; "" if it can.

    Raises:
        _NoAnswerError: it does not start.
    """

    def __init__(self, python: str) -> None:
        self._cache = TemporaryFolder("triton")
        self._number = 0
        try:
            self._process = subprocess.Popen(
                [python, str(_WORKER), str(self._cache.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=foreign_environment(),
                encoding="utf-8",
            )
        except OSError as error:
            self._cache.remove()
            raise _NoAnswerError(f"{python} does not start: {error.strerror}") from None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="tkdebug-triton-out", daemon=True).start()
        try:
            why_not = self._next(_START_LIMIT_S).get("error")
        except _NoAnswerError:
            self.close()
            raise
        self.error = f"{python} cannot import triton: {why_not}" if why_not else ""

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with contextlib.suppress(ValueError):  # closed meanwhile
            while line := stream.readline(_MAX_ANSWER_CHARS):
                self._lines.put(line)
        self._lines.put("")

    def _next(self, limit_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise _NoAnswerError(f"no answer in {limit_s:.0f} s") from None
        if not line:
            raise self._ended()
        try:
            answer = json.loads(line)
        except ValueError:
            raise _NoAnswerError("its answer is no JSON") from None
        if not isinstance(answer, dict):
            raise _NoAnswerError("its answer is no object")
        return answer

    def _ended(self) -> _NoAnswerError:
        try:
            status = self._process.wait(_KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            return _NoAnswerError("its process closed its output")
        if -status in _CRASHES:
            return _NoAnswerError(f"its compiler crashed ({signal.Signals(-status).name})", True)
        return _NoAnswerError(f"its process ended with status {status}")

    def ask(self, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer to a question.

        Args:
            question: plain data.
            limit_s: how long it may take.

        Raises:
            _NoAnswerError: there is no answer, and the process is of no more use.
        """
        self._number += 1
        text = json.dumps({**question, "number": self._number})
        if len(text) > _MAX_QUESTION_CHARS:
            return {"verdict": "undecided", "text": "the kernel's text is too long"}
        stream = self._process.stdin
        assert stream is not None
        try:
            stream.write(text + "\n")
            stream.flush()
        except OSError:
            raise self._ended() from None
        answer = self._next(limit_s)
        is_known = answer.get("verdict") in get_args(Verdict)
        if answer.get("number") != self._number or not is_known:
            raise _NoAnswerError("its answer is none to what it was asked")
        return answer

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and delete the files that it has written."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._cache.remove()
