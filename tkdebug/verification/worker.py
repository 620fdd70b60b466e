"""The process in which a candidate runs: `python -m tkdebug.verification.worker REQUEST FD`.

It answers on a pipe, a JSON object a line; stdout and stderr are the candidate's. It ends when its
parent goes, and when its processor time is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tkdebug.causes.rerun import on_one_thread
from tkdebug.checks import CHECK_NAMES
from tkdebug.compat import install
from tkdebug.errors import TkError, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.verification.inputs import Example
from tkdebug.verification.problem import CandidateError, Problem, load
from tkdebug.verification.records import Answer, Finding, Request
from tkdebug.verification.search import Runner, Search
from tkdebug.verification.tricks import Snapshot

Emit = Callable[[dict[str, object]], None]
# Processor time beyond the budget, for imports.
_IMPORTS_S = 15
_MEMORY_SHARE = 0.75


def examine(request: Request, emit: Emit = lambda record: None) -> Answer:
    """Verify in this process, and return the answer.

    Args:
        request: what is verified.
        emit: takes the answer as it grows, and each case before it runs.

    Raises:
        UsageError: the reference or the example inputs are not there.
    """
    answer = Answer.new(request)
    answer.modes = [request.mode]
    with _installed(request.mode):
        emit({"ready": True})
        snapshot = Snapshot()
        try:
            problem = load(request, snapshot.add)
        except CandidateError as error:
            _import_failed(answer, error)
            answer.judge()
            return answer
        looked_at(problem, request, answer, snapshot, emit)
    return answer


def examine_function(
    candidate: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Callable[[], Sequence[Any]],
    init: Sequence[Any],
    request: Request,
) -> Answer:
    """Verify a function or class of this process, and return the answer.

    Args:
        candidate: what is verified.
        reference: says what is right.
        inputs: gives the example's arguments.
        init: arguments of classes.
        request: how; names the candidate.
    """
    answer = Answer.new(request)
    answer.modes = [request.mode]
    with _installed(request.mode):
        example = Example(inputs())
        problem = Problem(candidate, reference, example, list(init), request.file, "cuda")
        snapshot = Snapshot()
        snapshot.add(reference)
        looked_at(problem, request, answer, snapshot, lambda record: None)
    return answer


@contextlib.contextmanager
def _installed(mode: Any) -> Iterator[None]:
    """Have tkdebug in force in a `with` block, with memory marked for all checks.

    The calls choose which checks are in force.

    Raises:
        UsageError: there is no GPU on which kernels could run natively.
    """
    reason = platform_in_force().obstacle() if mode == "native" else None
    if reason is not None:
        raise UsageError(f"--mode native: {reason}")
    checked = "all" if mode == "native" else KNOBS.check_launches
    with (
        KNOBS.scope(check_launches=checked),
        install(mode, quick=True, checks=CHECK_NAMES),
        on_one_thread(),
        HOOKS.alone(Hook()),
    ):
        yield


def looked_at(
    problem: Problem, request: Request, answer: Answer, snapshot: Snapshot, emit: Emit
) -> None:
    """Fill an answer, with tkdebug in force.

    Args:
        problem: what is verified.
        request: how.
        answer: of the request.
        snapshot: of functions, before the candidate was imported.
        emit: as for `examine`.
    """

    def report(answer: Answer) -> None:
        emit({"answer": answer.as_json()})

    patched = snapshot.finding(problem.file, "the file, when it is imported,")
    if patched is not None:
        answer.findings.append(patched)
    remembered: Any = HOOKS.follower
    runner = Runner(problem, request, remembered, lambda case: emit({"at": case.as_json()}))
    Search(runner, answer, report).run()
    if patched is None:
        late = snapshot.finding(problem.file, "a call")
        if late is not None:
            answer.findings.insert(0, late)
    answer.judge()


def _import_failed(answer: Answer, error: CandidateError) -> None:
    cause = error.__cause__
    assert cause is not None
    text = f"{error}: {type(cause).__name__}: {cause}"
    # What is not installed here says nothing of the kernel.
    if isinstance(cause, ImportError):
        answer.why = text
    line = getattr(cause, "lineno", None)
    answer.findings.append(Finding("import-error", text, not answer.why, None, answer.file, line))


def main() -> None:
    """Verify what the command line asks for."""
    request_text, descriptor = sys.argv[1:3]
    data = json.loads(request_text)
    request = Request(**{**data, "shard": tuple(data["shard"])})
    _limit(request)
    pipe = os.fdopen(int(descriptor), "w")
    lock = threading.Lock()
    # The answer's own functions, whatever a candidate does to modules.
    dump, write, flush, leave = json.dumps, pipe.write, pipe.flush, os._exit

    def emit(record: dict[str, object]) -> None:
        with lock, contextlib.suppress(OSError, ValueError):
            write(dump(record) + "\n")
            flush()

    try:
        answer = examine(request, emit)
        emit({"answer": answer.as_json(), "is_final": True})
    except UsageError as error:
        emit({"error": str(error)})
    except TkError as error:
        emit({"error": str(error)})
    leave(0)


def _limit(request: Request) -> None:
    """End this process with its parent, and after its processor time."""
    watcher = threading.Thread(target=_end_with_parent, daemon=True)
    watcher.start()
    try:
        import resource
    except ImportError:
        return  # on Windows the parent's clock alone ends it
    most = int(request.seconds) + _IMPORTS_S
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    if request.mode == "native":
        return  # the driver reserves more addresses than there is memory
    with contextlib.suppress(ValueError, OSError):
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory = int(pages * _MEMORY_SHARE)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _end_with_parent() -> None:
    # The parent holds the other end of stdin, and writes nothing.
    with contextlib.suppress(OSError, ValueError):
        os.read(0, 1)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
