"""pytest in a forked child: with a mutant for a module, or noting which functions tests call.

The parent imports what takes long (torch, pytest, hypothesis) but nothing of tkdebug, so a child
starts at once and imports the mutant like any module. Nothing is written to the tree. A child has
its own session and directory, so one that hangs is killed with all that it started. Processes that
tests start import the module as it is.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hypothesis
import numpy  # noqa: F401  # Before the fork, as are those below: children need not import them.
import pytest
import torch  # noqa: F401
from mutants import Mutant, function_lines, mutated

REPOSITORY = Path(__file__).resolve().parents[2]
_MEMORY_BYTES = 12 << 30
_POLL_S = 0.02
# Always the same examples, none kept, and no time spent on making a failing one small.
hypothesis.settings.register_profile(
    "mutation",
    database=None,
    derandomize=True,
    deadline=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
_OPTIONS = ("-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutation")


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of a child.

    Attributes:
        status: its exit status; None where time ran out, negative for a signal.
        left: what it left behind for its parent.
        output: what it printed.
    """

    status: int | None
    left: str
    output: str


@dataclass(frozen=True, slots=True)
class Test:
    """A recorded test.

    Attributes:
        name: its node id.
        seconds: it took, recording included.
    """

    name: str
    seconds: float


def source_path(module: str) -> Path:
    """The file of a module of this repository."""
    return REPOSITORY.joinpath(*module.split(".")).with_suffix(".py")


def run_mutant(mutant: Mutant, tests: Sequence[Test], timeout_s: float) -> Ended:
    """Run tests, in this order, until one fails; `left` is the one that did."""
    files = list(dict.fromkeys(test.name.split("::")[0] for test in tests))
    source = source_path(mutant.module).read_text()

    def work(directory: Path) -> int:
        sys.meta_path.insert(0, _MutantFinder(mutant.module, mutated(source, mutant)))
        chosen = _Chosen([test.name for test in tests], directory / "left")
        return _pytest(["-x", *files], directory, chosen)

    return _forked(work, timeout_s)


def record(files: Sequence[str], timeout_s: float) -> Ended:
    """Run test files; `left` is JSON, `[[test, seconds, [function, …]], …]` of those that pass."""

    def work(directory: Path) -> int:
        recorder = _Recorder()
        status = _pytest(list(files), directory, recorder)
        (directory / "left").write_text(json.dumps(recorder.passed()))
        return status

    return _forked(work, timeout_s)


def _pytest(arguments: list[str], directory: Path, plugin: object) -> int:
    return int(pytest.main([*_OPTIONS, f"--basetemp={directory / 'tmp'}", *arguments], [plugin]))


def _forked(work: Callable[[Path], int], timeout_s: float) -> Ended:
    loaded = [name for name in sys.modules if name.split(".")[0] == "tkdebug"]
    assert not loaded, f"children would not import these again: {loaded}"
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            _in_child(work, directory)
        status = _wait(process, timeout_s)
        left = directory / "left"
        return Ended(
            status,
            left.read_text() if left.exists() else "",
            (directory / "output").read_text(errors="replace"),
        )


def _in_child(work: Callable[[Path], int], directory: Path) -> None:
    status = 70
    try:
        os.setsid()
        output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        os.chdir(REPOSITORY)
        sys.path.insert(0, str(REPOSITORY))
        os.environ["PYTHONPATH"] = str(REPOSITORY)
        # A kernel that the unchanged compiler left in the user's cache would hide the mutant.
        os.environ["TKDEBUG_CACHE_DIR"] = str(directory / "cache")
        status = work(directory)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(process: int, timeout_s: float) -> int | None:
    end = time.monotonic() + timeout_s
    status: int | None = None
    while time.monotonic() < end:
        ended, code = os.waitpid(process, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
            break
        time.sleep(_POLL_S)
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if status is None:
        os.waitpid(process, 0)
    return status


class _MutantFinder(MetaPathFinder):
    """Finds one module, and gives it the code of a mutant."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module = module
        self.loader = _MutantLoader(module, tree)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        return spec_from_file_location(fullname, source_path(fullname), loader=self.loader)


class _MutantLoader(SourceFileLoader):
    def __init__(self, module: str, tree: ast.Module) -> None:
        super().__init__(module, str(source_path(module)))
        self.tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)


class _Chosen:
    """Runs the chosen tests in the order of the choice, and notes the first that fails."""

    def __init__(self, names: Sequence[str], left: Path) -> None:
        self.ranks = {name: rank for rank, name in enumerate(names)}
        self.left = left

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.ranks),
            key=lambda item: self.ranks[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.left.exists():
            self.left.write_text(report.nodeid)


class _Recorder:
    """Notes the functions of tkdebug that each test calls in this process."""

    def __init__(self) -> None:
        self.codes: dict[int, CodeType] = {}
        self.seconds: dict[str, float] = {}
        self.outcomes: dict[str, set[str]] = {}
        self.calls: dict[str, dict[int, CodeType]] = {}
        self.lines: dict[str, dict[int, str]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        codes = self.calls.setdefault(item.nodeid, {})

        def on_call(frame: FrameType, event: str, argument: object) -> None:
            # By identity: hashing a code object reads all of it.
            codes[id(frame.f_code)] = frame.f_code

        start = time.perf_counter()
        threading.settrace(on_call)
        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.seconds[item.nodeid] = time.perf_counter() - start

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes.setdefault(report.nodeid, set()).add(report.outcome)

    def passed(self) -> list[tuple[str, float, list[str]]]:
        return [
            (name, round(self.seconds[name], 3), sorted(self._functions(codes.values())))
            for name, codes in self.calls.items()
            if self.outcomes.get(name) == {"passed"}
        ]

    def _functions(self, codes: Any) -> set[str]:
        found = set()
        for code in codes:
            path = Path(code.co_filename)
            if not path.is_relative_to(REPOSITORY / "tkdebug") or not path.exists():
                continue
            if code.co_filename not in self.lines:
                self.lines[code.co_filename] = function_lines(path.read_text())
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            # What is at module level, tables and lambdas, concerns each test of the module.
            found.add(f"{module}:")
            if name := self.lines[code.co_filename].get(code.co_firstlineno):
                found.add(f"{module}:{name}")
        return found
