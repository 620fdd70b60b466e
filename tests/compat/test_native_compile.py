"""What torch.compile natively takes: compiles begun before they are wanted, launches by position.

That the kernels of whole models compile, and are launched with the arguments that Inductor passes,
is `test_compiled_models`' with `--native`.
"""

from types import SimpleNamespace

import pytest
import torch

import tkdebug.language as tl
from tkdebug import compat
from tkdebug.compat.inductor.compiles import INDUCTOR_COMPILES, CodePool, Wanted, wanted_for
from tkdebug.compat.inductor.direct_runs import LauncherParts, direct_run, settled
from tkdebug.compat.inductor.native import _lines_of
from tkdebug.compat.replacements import Replacements
from tkdebug.compat.triton_api.compiler import ASTSource, compile
from tkdebug.compat.triton_api.launch_hooks import HookChain
from tkdebug.errors import CompileError
from tkdebug.hook_chain import HOOKS, Hook
from tkdebug.knobs import KNOBS
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.jit.function import jit
from tkdebug.runtime.launch import positional_run
from tkdebug.runtime.launch.launches_in_flight import InFlight


@jit
def scaled(X, OUT, n, unused, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i, i < n) * 2, i < n)


@jit
def wrong(X, BLOCK: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK), tl.zeros((3,), tl.float32))


def compiled(fn=scaled, warps=4):
    signature = {"X": "*fp32", "OUT": "*fp32", "n": "i32", "unused": "constexpr"}
    source = ASTSource(fn, signature, {"BLOCK": 64, "unused": None})
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


@pytest.fixture
def kernel():
    kernel = compiled()
    kernel.function = 1
    kernel.submitted = []
    kernel.submit = lambda *passed: kernel.submitted.append(passed)
    return kernel


def launch(kernel, *values, grid=(2, 1, 1)):
    kernel.run(*grid, 7, kernel.function, None, None, None, None, *values)


def test_launch_by_position_passes_addresses_and_leaves_constants_out(kernel):
    x, out = torch.ones(8), torch.nn.Parameter(torch.ones(8))
    launch(kernel, x, out, 8, None, 64)
    assert kernel.submitted == [(2, 1, 1, 7, x.data_ptr(), out.data_ptr(), 8, None)]


def test_launch_by_position_of_an_empty_grid_is_none(kernel):
    launch(kernel, torch.ones(8), torch.ones(8), 0, None, 64, grid=(0, 1, 1))
    assert kernel.submitted == []


def test_hooks_hear_of_a_launch_by_position(kernel):
    seen = []
    hook = Hook(enter=lambda of, record: seen.append((of is kernel, record.kernel, record.grid)))
    HOOKS.add(hook)
    try:
        launch(kernel, torch.ones(8), torch.ones(8), 8, None, 64)
    finally:
        HOOKS.remove(hook)
    assert seen == [(True, "scaled", (2, 1, 1))]
    assert len(kernel.submitted) == 1


def settled_run(kernel, run=None):
    """A run of `scaled` on programs of 64, as Inductor's launchers compute them."""
    grid = ("half = n // 2",), "-(half // -32)", "1", "1"
    arguments = ("X", "OUT", "n", "unused", "64")
    parts = LauncherParts(kernel, grid, ("X", "OUT", "n", "unused"), arguments, {})
    return direct_run(parts, run)


def test_settled_run_submits_as_a_launch_by_position_does(kernel):
    x, out = torch.ones(8), torch.nn.Parameter(torch.ones(8))
    run = settled_run(kernel)
    run(x, out, 130, None, stream=7)
    run(x, out, 0, None, stream=7)
    launch(kernel, x, out, 130, None, 64, grid=(3, 1, 1))
    first, by_position = kernel.submitted
    assert first == by_position == (3, 1, 1, 7, x.data_ptr(), out.data_ptr(), 130, None)


def test_settled_run_takes_addresses(kernel):
    settled_run(kernel)(4096, torch.ones(8), 64, None, stream=7)
    assert [passed[4] for passed in kernel.submitted] == [4096]


def test_hooks_hear_of_a_settled_run(kernel):
    seen = []
    run = settled_run(kernel)
    hook = Hook(enter=lambda of, record: seen.append((record.grid, record.values[2:])))
    HOOKS.add(hook)
    try:
        run(torch.ones(8), torch.ones(8), 64, None, stream=7)
    finally:
        HOOKS.remove(hook)
    run(torch.ones(8), torch.ones(8), 64, None, stream=7)
    assert seen == [((1, 1, 1), (64, None, 64))]
    assert len(kernel.submitted) == 2


def test_settled_run_that_is_packed_is_kept_with_its_caller(kernel, monkeypatch):
    flights, noted = InFlight(), []
    flights.watched = True
    monkeypatch.setattr(positional_run, "IN_FLIGHT", flights)
    hook = Hook(enter=lambda of, record: None)
    HOOKS.add(hook)
    note = {kernel: lambda *launch: noted.append(launch[1:5])}
    HOOKS.pack_natively(hook, SimpleNamespace(notes=note, time_of=lambda launch: None))
    x = torch.ones(8)
    try:
        settled_run(kernel)(x, x, 64, None, stream=7)
    finally:
        HOOKS.remove(hook)
    (flight,) = flights.latest
    assert noted == [(1, 1, 1, 7)]
    assert flight.values == (x.data_ptr(), x.data_ptr(), 64, None)
    assert flight.caller.function == "test_settled_run_that_is_packed_is_kept_with_its_caller"


def test_settled_run_leaves_to_torch_what_is_torchs(kernel, monkeypatch):
    torchs = []
    run = settled_run(kernel, lambda *arguments, **keywords: torchs.append(keywords))
    values = torch.ones(8), torch.ones(8), 64, None
    run(*values, stream=7, benchmark_run=True)
    monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", True)
    run(*values, stream=7)
    assert torchs == [{"stream": 7, "benchmark_run": True}, {"stream": 7}]
    assert kernel.submitted == []


def test_autotuner_settles_on_one_launcher_that_nothing_looks_at(kernel):
    launcher = SimpleNamespace(tkdebug_parts=SimpleNamespace(kernel=kernel), store_cubin=False)
    assert settled(SimpleNamespace(launchers=[launcher])) is launcher.tkdebug_parts
    assert settled(SimpleNamespace(launchers=[launcher, launcher])) is None
    assert settled(SimpleNamespace(launchers=[launcher], dump_launch_params=True)) is None
    assert settled(SimpleNamespace(launchers=[launcher], _cached_launcher=None)) is None
    assert settled(SimpleNamespace(launchers=[launcher], _cached_launcher=launcher)) is not None
    checked = {(): "a kernel whose launches are checked"}
    kernel.run_through(checked)
    assert settled(SimpleNamespace(launchers=[launcher])) is None
    checked[()] = kernel
    assert settled(SimpleNamespace(launchers=[launcher])) is not None


class Autotuner:
    """As much of Inductor's as a pool looks at."""

    custom_kernel = False

    def __init__(self, fn, warps):
        self.fn = fn
        self.configs = warps

    def _precompile_config(self, warps):
        return compiled(self.fn, warps)


def test_pool_has_code_generated_before_it_is_wanted():
    autotuner = Autotuner(scaled, (1, 2))
    pool = CodePool(2)
    done = pool.submit(lambda load: load(), lambda: autotuner)
    assert done.result(60)[0] is autotuner
    begun = list(INDUCTOR_COMPILES._begun.values())
    assert [each.options.num_warps for each in begun] == [1, 2]
    assert all(each.generated is not None for each in begun)
    with wanted_for(Wanted(False)):
        kernels = [autotuner._precompile_config(warps) for warps in (1, 2)]
    assert [kernel.binary for kernel in kernels] == [each.generated.binary() for each in begun]
    assert not INDUCTOR_COMPILES._begun
    pool.shutdown()


def test_pool_leaves_errors_to_who_wants_the_kernel():
    autotuner = Autotuner(wrong, (4,))
    pool = CodePool(1)
    assert pool.submit(lambda load: load(), lambda: autotuner).result(60)[0] is autotuner
    with wanted_for(Wanted(False)), pytest.raises(CompileError, match="power of 2"):
        autotuner._precompile_config(4)
    assert pool.submit(lambda: "ready").result() == "ready"
    pool.shutdown()


def test_where_launches_are_checked_the_bare_build_is_given():
    with KNOBS.scope(check_launches="all"), wanted_for(Wanted(True)):
        kernel = compiled()
    # Without a GPU there is no memory for tables.
    assert kernel.mode == "native"
    assert callable(kernel.run)


def test_chain_of_hooks_is_true_where_it_has_some():
    chain = HookChain()
    assert not chain
    chain.add(print)
    assert chain


def test_lines_of_a_graph_tell_its_code_apart():
    def graph(*traces):
        nodes = [SimpleNamespace(meta={"stack_trace": trace}) for trace in traces]
        return SimpleNamespace(graph=SimpleNamespace(nodes=nodes))

    assert _lines_of(graph("line 1", None)) == _lines_of(graph("line 1", None))
    assert _lines_of(graph("line 1", None)) != _lines_of(graph("line 2", None))


def test_replaced_attributes_come_back_last_first():
    owner = SimpleNamespace(kept=1)
    replacements = Replacements()
    for value in (2, 3):
        replacements.set(owner, "kept", value)
        replacements.set(owner, "new", value)
    seen = []
    replacements.on_restore(lambda: seen.append(owner.kept))
    replacements.restore()
    replacements.restore()
    assert (vars(owner), seen) == ({"kept": 1}, [3])


def test_torch_compile_comes_back_as_it_was():
    before = torch.compile
    with compat.install("native"):
        assert torch.compile is not before
        assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
    assert torch.compile is before
