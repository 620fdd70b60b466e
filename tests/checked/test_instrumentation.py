"""Plugins measure the same in interpreted Tile IR, in GPU IR, and on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from check_support import copy_of, gpu_ir, launches
from watch_support import BUDGET
from watched_kernels import elementwise, matmul

import tkdebug
from tkdebug import knobs
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.passes.expand_watches import ExpandWatches
from tkdebug.compiler.passes.insert_checks import check_plan
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.sites.watches import records_words
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.watching.records import WatchedLaunch, seen_natively
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.instrumentation import measuring
from tkdebug.runtime.instrumentation.measuring import Kernel, measure
from tkdebug.runtime.instrumentation.plugin import Instrumentation, SeenOp
from tkdebug.watches.records import Instrumented

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"


@dataclass(frozen=True)
class Dots:
    products: int
    largest: float


class DotOperands(Instrumentation):
    """Measures the operands of products in Tile IR."""

    programs = "1"
    record = Dots

    def wants(self, op: Operation) -> bool:
        return tt.Dot.matches(op)

    def values(self, op: Operation):
        return (tt.Dot(op).a,)

    def measure(self, seen: SeenOp) -> Dots:
        (a,) = seen.values
        assert (seen.gpu_op, a.shape, a.dtype) == (None, (64, 32), torch.float64)
        return Dots(a.shape[0] * a.shape[1] * 32, float(a.max()))


class FakePlugin:
    """A plugin that is there without a distribution."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""

    def fail(self, reason: object) -> None:
        self.problem = self.problem or repr(reason)


def forget() -> None:
    """Kernels are compiled for the plugins that there were."""
    for kernel in (matmul, elementwise):
        kernel.kernels.clear()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakePlugin]]:
    added: list[tuple[FakePlugin, Instrumentation]] = []
    monkeypatch.setattr(measuring, "loaded", lambda group, kind: added)

    def install(name: str, instrumentation: Instrumentation) -> FakePlugin:
        plugin = FakePlugin(name)
        added.append((plugin, instrumentation))
        measuring.instrumentations.cache_clear()
        forget()
        return plugin

    yield install
    measuring.instrumentations.cache_clear()
    forget()


@pytest.fixture
def sectors(monkeypatch: pytest.MonkeyPatch, install: Callable[..., FakePlugin]) -> FakePlugin:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from tkdebug_example.warp_sectors import PLUGIN

    yield install("sectors", PLUGIN)
    for name in [name for name in sys.modules if name.startswith("tkdebug_example")]:
        del sys.modules[name]


@pytest.fixture
def reported() -> Iterator[list[object]]:
    records: list[object] = []
    hook = Hook(record=records.append)
    HOOKS.add(hook)
    yield records
    HOOKS.remove(hook)


def run_matmul(device: str = "cpu") -> None:
    torch.manual_seed(0)
    a, b = torch.randn(128, 96).half(), torch.randn(96, 32).half()
    c = torch.zeros(128, 32)
    a, b, c = a.to(device), b.to(device), c.to(device)
    matmul[(2,)](a, b, c, 96, M=64, N=32, BK=32)


def measured(records: list[object]) -> list[Instrumented]:
    return [one for one in records if isinstance(one, Instrumented)]


def lines(found: list[Instrumented]) -> list[tuple[object, ...]]:
    return [(one.plugin, one.op, one.frames, one.seen, one.measured, one.totals) for one in found]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_sectors_of_gpu_ir_are_those_of_tile_ir(target, sectors, reported) -> None:
    with knobs.scope(instrumentations=("sectors",), cross_compile=target):
        launch = launches(run_matmul)[-1]
    interpreted = measured(reported)
    assert sectors.problem == ""
    assert [(one.op, one.measured) for one in interpreted] == [
        ("tt.load", 6),
        ("tt.load", 6),
        ("tt.store", 2),
    ]
    # 2 programs x 3 rounds, 4 warps; rows of 32 halves are 2 sectors.
    assert interpreted[0].totals == {"accesses": 24, "elements": 12288, "sectors": 768}
    reported.clear()
    module = copy_of(launch)
    plan = check_plan(module, BUDGET)
    assert plan is not None
    PassManager((ExpandWatches(BUDGET),), verify_each=True, print_after=()).run(module)
    module = gpu_ir(module, target)
    counters = torch.zeros(len(plan.watches), dtype=torch.int64)
    records = torch.zeros(records_words(plan.watches, BUDGET), dtype=torch.int64)
    assert run_module(module, [*launch.values, counters, records], launch.grid) == []
    at = WatchedLaunch("matmul", 0, launch.grid)
    data = records.numpy().tobytes()
    seen = seen_natively(plan, at, counters.tolist(), lambda first, n: data[first : first + n])
    divisors = tt.Func(plan.module.function).arg_divisibility
    measure(seen.captured, Kernel(plan.module, target, 4, divisors), at)
    assert lines(measured(reported)) == lines(interpreted)


def test_tile_ir_is_measured_in_the_programs_that_are_asked_for(install, reported) -> None:
    plugin = install("dots", DotOperands())
    with tkdebug.mode("interpret"), knobs.scope(instrumentations=("dots",)):
        run_matmul()
    assert plugin.problem == ""
    (found,) = measured(reported)
    assert (found.op, found.seen, found.measured) == ("tt.dot", 3, 3)
    assert found.totals["products"] == 3 * 64 * 32 * 32
    assert found.frames[-1].function == "matmul"


def test_what_does_not_fit_is_counted(install, reported) -> None:
    install("dots", DotOperands())
    with (
        tkdebug.mode("interpret"),
        knobs.scope(instrumentations=("dots",), watch_buffer_bytes=2 * (64 * 32 * 2 + 16)),
    ):
        run_matmul()
    (found,) = measured(reported)
    assert (found.seen, found.measured) == (3, 2)


@pytest.mark.parametrize("method", ["wants", "values", "measure"])
def test_plugin_that_raises_is_skipped(method, install, reported) -> None:
    class Broken(DotOperands):
        pass

    def broken(self, argument):
        raise RuntimeError("broken")

    setattr(Broken, method, broken)
    plugin = install("broken", Broken())
    with tkdebug.mode("interpret"), knobs.scope(instrumentations=("broken",)):
        run_matmul()
    assert "broken" in plugin.problem
    assert measured(reported) == []


def test_other_record_than_declared_is_refused(install, reported) -> None:
    class Other(DotOperands):
        def measure(self, seen: SeenOp):
            return 3

    plugin = install("other", Other())
    with tkdebug.mode("interpret"), knobs.scope(instrumentations=("other",)):
        run_matmul()
    assert "measure gave a int, expected a Dots" in plugin.problem
    assert measured(reported) == []


@pytest.mark.gpu
def test_gpu_measures_what_interpreted_kernels_do(sectors, install, reported) -> None:
    install("dots", DotOperands())
    found = []
    major, minor = torch.cuda.get_device_capability()
    for mode, device in (("interpret", "cpu"), ("native", "cuda")):
        with (
            tkdebug.mode(mode),
            knobs.scope(instrumentations=("sectors", "dots"), cross_compile=None),
        ):
            run_matmul(device)
            x = torch.randn(1000, device=device)
            elementwise[(8,)](x, x, 1000, BLOCK=128)
            from tkdebug.runtime.checked.checked_launches import CHECKED

            CHECKED.settle()
            found.append(lines(measured(reported)))
            reported.clear()
    assert sectors.problem == ""
    assert (major, minor) >= (8, 0)
    assert len(found[0]) == 6
    assert found[1] == found[0]
