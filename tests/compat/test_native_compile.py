"""Native torch.compile: compiles begun before they are wanted, launches by position.

That the kernels of whole models compile, and are launched with the arguments that Inductor passes,
is `test_compiled_models`' with `--native`.
"""

from types import SimpleNamespace

import pytest
import torch

import tkdebug.language as tl
from tkdebug import compat
from tkdebug.compat.inductor.compiles import INDUCTOR_COMPILES, CodePool, Wanted, wanted_for
from tkdebug.compat.inductor.native import _lines_of
from tkdebug.compat.replacements import Replacements
from tkdebug.compat.triton_api.compiler import ASTSource, compile
from tkdebug.compat.triton_api.launch_hooks import HookChain
from tkdebug.errors import CompileError
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked.checked_kernel import CheckedKernel
from tkdebug.runtime.device.modes import NextAction
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.jit.function import jit
from tkdebug.runtime.launch import launch_writer
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


def test_launch_by_position_takes_addresses(kernel):
    launch(kernel, 4096, torch.ones(8), 64, None, 64)
    assert [passed[4] for passed in kernel.submitted] == [4096]


def test_launch_by_position_that_is_packed_is_kept_with_its_caller(kernel, monkeypatch):
    flights, noted = InFlight(), []
    flights.is_on = True
    monkeypatch.setattr(launch_writer, "IN_FLIGHT", flights)
    hook = Hook(enter=lambda of, record: None)
    HOOKS.add(hook)
    note = {kernel: lambda *launch: noted.append(launch[1:5])}
    HOOKS.pack_natively(hook, SimpleNamespace(notes=note, time_of=lambda launch: None))
    x = torch.ones(8)
    try:
        launch(kernel, x, x, 64, None, 64, grid=(1, 1, 1))
    finally:
        HOOKS.remove(hook)
    (flight,) = flights.latest
    assert noted == [(1, 1, 1, 7)]
    assert flight.values == (x.data_ptr(), x.data_ptr(), 64, None)
    assert flight.caller.function == "launch"


def test_launch_by_position_is_made_by_what_is_looked_at(kernel):
    class Looked(CheckedKernel):
        def __init__(self):
            self.next_action, self.seen = lambda: action, []

        def launch_seen(self, *launched):
            self.seen.append(launched)

    action, looked, x = NextAction.LOOK, Looked(), torch.ones(8)
    kernel.checked_by = looked
    launch(kernel, x, x, 64, None, 64)
    action = NextAction.SUBMIT
    launch(kernel, x, x, 64, None, 64)
    passed = (x.data_ptr(), x.data_ptr(), 64, None)
    assert looked.seen == [((2, 1, 1), 7, (x, x, 64, None, 64), passed)]
    assert kernel.submitted == [(2, 1, 1, 7, *passed)]


class Autotuner:
    """The part of Inductor's autotuner that a pool looks at."""

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
