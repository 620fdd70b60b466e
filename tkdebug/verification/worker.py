"""The process in which a candidate runs: `python -m tkdebug.verification.worker REQUEST FD`.

It answers on a pipe, a JSON object a line; stdout and stderr are the candidate's. It ends when its
parent goes, and when its processor time is over.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.utils.benchmark

from tkdebug.causes.rerun import on_one_thread
from tkdebug.checks import CHECK_NAMES
from tkdebug.compat import install
from tkdebug.errors import TkError, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.process.tracebacks import is_own_file
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.verification.inputs import Example
from tkdebug.verification.problem import CandidateError, Problem, load
from tkdebug.verification.records import Answer, Finding, Request
from tkdebug.verification.runner import Runner
from tkdebug.verification.search import Search

Emit = Callable[[dict[str, object]], None]
# Processor time beyond the budget, for imports.
_IMPORTS_S = 15
_MEMORY_SHARE = 0.75
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


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
        request: how it is verified, and its name.
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
    """Install tkdebug for a `with` block, with memory tracked for every check.

    Each call of the candidate selects its own checks. Natively all launches are checked.

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
    """Verify a problem, and fill its answer; tkdebug has to be in force.

    Args:
        problem: what is verified.
        request: how it is verified.
        answer: the answer to the request.
        snapshot: the functions as they were before the candidate was imported.
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
    # A package that is not installed here says nothing about the kernel.
    if isinstance(cause, ImportError):
        answer.why = text
    line = getattr(cause, "lineno", None)
    answer.findings.append(Finding("import-error", text, not answer.why, None, answer.file, line))


# Functions that are replaced.


class Snapshot:
    """The functions that measure, compare and compute references, as before a candidate runs."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[Any, bool]] = {
            name: (owner, name in _WHOLE) for name, owner in _owners().items()
        }
        self._before = dict(self._functions())

    def add(self, owner: object) -> None:
        """Add the functions of the reference's module, or of the reference itself."""
        name = str(getattr(owner, "__name__", "the reference"))
        self._owners[name] = owner, True
        self._before.update(_of_owner(name, owner, True))

    def _functions(self) -> Iterator[tuple[str, tuple[object, object]]]:
        for name, (owner, is_whole) in self._owners.items():
            yield from _of_owner(name, owner, is_whole)
            if isinstance(owner, ModuleType):
                yield f"sys.modules[{name}]", (sys.modules.get(name), None)
        for name in ("stdout", "stderr"):
            yield f"sys.{name}", (getattr(sys, name), None)

    def changed(self) -> list[str]:
        """Return the names of functions that were replaced, or have other code now."""
        now = dict(self._functions())
        changed = []
        for name, (one, code) in self._before.items():
            found, its_code = now.get(name, (None, None))
            is_same = found is one and its_code is code
            if not is_same and not (found is not one and _is_of_library(found, name)):
                changed.append(name)
        return changed

    def finding(self, file: str, after: str) -> Finding | None:
        """Return a finding of functions that were replaced, or None.

        Args:
            file: the candidate's file.
            after: what replaced them, in words.
        """
        names = self.changed()
        if not names:
            return None
        shown = ", ".join(names[:5])
        shown += f" and {len(names) - 5} more" if len(names) > 5 else ""
        return Finding("patched", f"{after} replaces {shown}", True, None, file)


def _is_of_library(function: object, name: str) -> bool:
    """Whether a function is torch's or tkdebug's own of that name, put in place when needed."""
    code = getattr(function, "__code__", None)
    if code is None or getattr(function, "__name__", "") != name.rpartition(".")[2]:
        return False
    return is_own_file(code.co_filename) or code.co_filename.startswith(_TORCH)


def _of_owner(
    prefix: str, owner: Any, is_whole: bool
) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield the functions of an owner by name, each with its code.

    Args:
        prefix: the name of the owner.
        owner: a module, class or function.
        is_whole: whether names with two underscores, and methods of a module's classes, count.
    """
    if not isinstance(owner, type | ModuleType):
        yield prefix, (owner, getattr(owner, "__code__", None))
        return
    for name, value in list(vars(owner).items()):
        if not callable(value) or (name.startswith("__") and not is_whole):
            continue
        yield f"{prefix}.{name}", (value, getattr(value, "__code__", None))
        is_own = isinstance(value, type) and value.__module__ == getattr(owner, "__name__", "")
        if is_whole and is_own:
            yield from _of_owner(f"{prefix}.{name}", value, True)


# Owners whose names with two underscores, or whose classes, compare and call.
_WHOLE = frozenset(("torch.Tensor", "torch.nn.Module", "torch.testing._comparison"))


def _owners() -> dict[str, object]:
    import numpy
    import triton

    return {
        "torch": torch,
        "torch.testing": torch.testing,
        "torch.testing._comparison": torch.testing._comparison,  # noqa: SLF001
        "torch.nn.functional": torch.nn.functional,
        "torch.cuda": torch.cuda,
        "torch.cuda.Event": torch.cuda.Event,
        "torch.cuda.Stream": torch.cuda.Stream,
        "torch.Tensor": torch.Tensor,
        "torch.nn.Module": torch.nn.Module,
        "triton.testing": triton.testing,
        "numpy": numpy,
        "numpy.testing": numpy.testing,
        "time": time,
        "timeit": timeit,
        "math": math,
        "torch.utils.benchmark.Timer": torch.utils.benchmark.Timer,
        "threading.Thread": threading.Thread,
        "builtins": builtins,
    }


# The process.


def main() -> None:
    """Verify the request on the command line, write the answer to the pipe, and exit."""
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
    """Have this process end with its parent and after its processor time; limit its memory."""
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
