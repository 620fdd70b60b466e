"""The pytest side of `run.py`: upstream's test files under tkdebug, and a record of their outcomes.

What upstream's tests take from upstream's own package and only tests need is loaded from the
checkout, under the `triton` that tkdebug provides. Results go to one JSON line per test.
Without tkdebug in the process (a run for comparison) only the record remains.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import json
import linecache
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import not_applicable
import pytest

CHECKOUT = Path(os.environ["TKDEBUG_TEST_CHECKOUT"])
RECORD = Path(os.environ["TKDEBUG_TEST_RECORD"])
MODE = os.environ.get("TKDEBUG_TEST_MODE", "interpret")
# By lines, so that the tests before one that takes the process down are recorded.
_RECORD = RECORD.open("a", buffering=1, encoding="utf-8")

# Modules of upstream's package that its tests import and kernels' authors do not.
_FROM_CHECKOUT = ("triton._internal_testing",)
# Modules that lead into libtriton: they import, and a test that uses them is skipped.
_LIBTRITON = {
    "triton._filecheck": "compares the text of libtriton's IR",
}

# Skips and expected failures for what upstream's interpreter lacks; tkdebug's has it.
_WAIVED_SKIPS = re.compile(
    r"not supported in the interpreter$"
    r"|Only test atomic bfloat16/float16 ops on GPU$"
    r"|bfloat16 compare not supported before sm90$"
)


class SkippingLoader(Loader):
    """Makes a module whose every function skips the test that calls it."""

    def __init__(self, why: str) -> None:
        self.why = why

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Answer every name."""

        def skip(*arguments: Any, **keywords: Any) -> None:
            pytest.skip(self.why)

        def answer(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return skip

        vars(module)["__getattr__"] = answer


class CheckoutFinder(MetaPathFinder):
    """Finds the modules of `_FROM_CHECKOUT` in the checkout, and those of `_LIBTRITON`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of such a module; None for every other."""
        if fullname in _LIBTRITON:
            return ModuleSpec(fullname, SkippingLoader(_LIBTRITON[fullname]))
        if fullname not in _FROM_CHECKOUT:
            return None
        file = CHECKOUT.joinpath("python", *fullname.split(".")).with_suffix(".py")
        return spec_from_file_location(fullname, file)


_SOURCES = itertools.count()
_DONE = itertools.count(1)
_FREEZE_EVERY = 250

# What is imported and collected stays: garbage collections begin after it.
gc.disable()


def exec_with_source(source: str | CodeType, *namespaces: Any) -> None:
    """`exec` whose functions keep their source text, which compiling a kernel needs."""
    if isinstance(source, str):
        name = f"<kernel {next(_SOURCES)}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        source = compile(source, name, "exec")
    builtins.exec(source, *namespaces)


def _sum_in_fp32(product: Any) -> Any:
    """Return a product of matrices that sums halves in fp32, as references are computed on a GPU.

    That of the CPU is farther off where large terms cancel.
    """

    def matmul(a: Any, b: Any) -> Any:
        if a.is_cuda or a.dtype.itemsize != 2 or a.dtype != b.dtype:
            return product(a, b)
        return product(a.float(), b.float()).to(a.dtype)

    return matmul


def _note_definition(kernel: Any) -> None:
    """The source place of a kernel that upstream's interpreter notes when it rewrites it."""
    line = kernel.kernel_source.definition.lineno
    kernel.rewriter = SimpleNamespace(def_file_lineno=line)


def adapt(module: ModuleType) -> None:
    """Give a test module its stand-ins for what depends on upstream's way of interpreting."""
    import triton

    vars(module)["exec"] = exec_with_source
    if module.__name__.endswith("test_line_info"):
        triton.JITFunction.rewrite = _note_definition
    if module.__name__.endswith("test_conversions") and MODE == "interpret":
        # All 2**32 values of a type in 256 slices is a GPU's work; these are 3 of the slices.
        vars(module)["range"] = lambda count: range(0, count, 100)
    if hasattr(module, "InterpreterError"):
        # tkdebug compiles before it interprets, so these are compile errors in both modes.
        vars(module)["InterpreterError"] = triton.CompilationError


def fresh_knobs(skipped_attr: Any = None) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Upstream's `_fresh_knobs_impl`, which takes knobs apart by upstream's own classes.

    Returns:
        A function that gives the knobs, and one that undoes what was changed since.
    """
    from triton import knobs

    scopes = ExitStack()

    def begin() -> Any:
        scopes.enter_context(knobs.runtime.scope())
        return knobs

    return begin, scopes.close


def _skip_unless_waived(skip: Any) -> Any:
    def answer(reason: str = "", *arguments: Any, **keywords: Any) -> None:
        if not _WAIVED_SKIPS.search(reason):
            skip(reason, *arguments, **keywords)

    vars(answer).update(vars(skip))
    return answer


def _tkdebug_is_in_place() -> bool:
    return "tkdebug.pytest_plugin" in sys.modules


def pytest_load_initial_conftests() -> None:
    """Put the checkout's modules and the waived skips in place."""
    if _tkdebug_is_in_place():
        sys.meta_path.insert(0, CheckoutFinder())
        pytest.skip = _skip_unless_waived(pytest.skip)
        pytest.xfail = _skip_unless_waived(pytest.xfail)
        import torch
        import triton.runtime.cache
        from triton import knobs

        torch.matmul = _sum_in_fp32(torch.matmul)
        # A file of tests imports these, of which two of its tests make use.
        for name in ("FileCacheManager", "RemoteCacheManager"):
            setattr(triton.runtime.cache, name, None)

        from tkdebug.linemap.nvidia.tools import find_nvdisasm

        # The tests ask whether the assembler is new enough for descriptors on this GPU, and
        # disassemble cubins.
        knobs.nvidia = SimpleNamespace(ptxas=SimpleNamespace(version="12.8", path=""))
        if MODE == "native" and (nvdisasm := find_nvdisasm()) is not None:
            knobs.nvidia.nvdisasm = SimpleNamespace(path=str(nvdisasm))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what does not apply, and adapt the modules of the rest."""
    taken = {item: not_applicable.reason(item.nodeid, MODE) for item in items}
    if os.environ.get("TKDEBUG_TEST_ALL") != "1":
        items[:] = [item for item in items if taken[item] is None]
        config.hook.pytest_deselected(items=[item for item, why in taken.items() if why])
    part, parts = map(int, os.environ.get("TKDEBUG_TEST_SAMPLE", "1/1").split("/"))
    config.hook.pytest_deselected(items=[x for n, x in enumerate(items) if n % parts != part - 1])
    items[:] = items[part - 1 :: parts]
    if getattr(config, "workerinput", {}).get("workerid", "gw0") == "gw0":
        for item, why in taken.items():
            if why:
                _write({"id": item.nodeid, "outcome": "not applicable", "reason": why})
    if _tkdebug_is_in_place():
        from triton import _internal_testing

        _internal_testing._fresh_knobs_impl = fresh_knobs
        tests = str(CHECKOUT / "python" / "test")
        for module in list(sys.modules.values()):
            if str(getattr(module, "__file__", None)).startswith(tests):
                adapt(module)


def pytest_collection_finish() -> None:
    """Keep what was collected out of garbage collections: they would blur the times of both."""
    _freeze()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Keep the reports out of them, too, of which pytest holds on to three for each test."""
    if next(_DONE) % _FREEZE_EVERY == 0:
        _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record each test once; workers leave it to the process they report to."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when != "call" and report.outcome == "passed":
        return
    row = {"id": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 4)}
    if hasattr(report, "wasxfail"):
        row["outcome"] = "expected failure" if report.outcome == "skipped" else "passed"
        row["reason"] = report.wasxfail
    elif report.outcome == "skipped":
        row["reason"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    elif report.outcome == "failed":
        row["reason"] = _first_line(report)
        row["text"] = report.longreprtext[-6000:]
    _write(row)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record files that could not be collected."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        text = report.longreprtext
        _write({"id": report.nodeid, "outcome": "failed", "reason": text[-300:], "text": text})


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    lines = [line for line in str(text).splitlines() if line.strip()]
    return " / ".join(lines[:3])[:400]


def _write(row: dict[str, Any]) -> None:
    _RECORD.write(json.dumps(row) + "\n")
