"""Real launches of a kernel written in PTX, so that they do not depend on code generation."""

import threading

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.targets.nvptx.codegen.generation import assemble
from tkdebug.compiler.targets.nvptx.compile import CompiledModule
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.compile.native_compilation import NativeCompilation
from tkdebug.runtime.errors import OutOfResources, PointerError

pytestmark = pytest.mark.gpu

# out[i] = x[i] * factor + n for each i below n, one thread an element.
PTX = """
.version 8.0
.target {target}
.address_size 64
.visible .entry saxpy(
    .param .u64 x, .param .u64 out, .param .u32 n, .param .f32 factor)
.reqntid 128
{{
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .f32 %f<6>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [n];
    ld.param.f32 %f1, [factor];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r2, 128, %r3;
    setp.ge.s32 %p1, %r4, %r1;
    @%p1 ret;
    mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    cvt.rn.f32.s32 %f3, %r1;
    fma.rn.f32 %f4, %f2, %f1, %f3;
    st.global.f32 [%rd5], %f4;
    ret;
}}
"""
# Dynamic shared memory by BLOCK.
SHARED_BYTES = {32: 1 << 20, 64: 96 << 10}


def handwritten(compilation):
    """Stands for code generation: the PTX above, whatever the kernel's body is."""
    target, module = compilation._target, compilation._lowered.module.module
    code = assemble(PTX.format(target=target.name), "saxpy", target)
    shared = SHARED_BYTES.get(compilation._src.constants["BLOCK"], 0)
    compilation._compiled = CompiledModule(
        "saxpy", lambda: module, "", target, None, shared, 4, (), code=code
    )


@pytest.fixture(autouse=True)
def saxpy(monkeypatch):
    """A jit function that compiles to the PTX above."""
    monkeypatch.setattr(NativeCompilation, "_generate", handwritten)

    @tkdebug.jit
    def saxpy(x, out, n, factor, BLOCK: tl.constexpr = 128):
        pass

    with tkdebug.mode("native"):
        yield saxpy


@pytest.fixture
def x():
    return torch.arange(1000, dtype=torch.float32, device="cuda")


def check(out, x, n, factor):
    expected = torch.zeros_like(out)
    expected[:n] = x[:n].cpu().to(out.device) * factor + n
    torch.testing.assert_close(out, expected)


def test_launch(saxpy, x):
    for n, factor in ((1000, 2.0), (500, -1.5), (16, 3)):
        out = torch.zeros_like(x)
        kernel = saxpy[lambda meta: (tkdebug.cdiv(meta["n"], meta["BLOCK"]),)](
            x, out, n, float(factor)
        )
        check(out, x, n, factor)
    assert kernel.n_regs > 0
    assert kernel.n_spills == 0
    assert kernel.metadata.shared == 0
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert isinstance(kernel.function, int)


def test_auto_is_native(saxpy, x):
    from tkdebug.knobs import scope

    with scope(mode="auto"), tkdebug.mode("auto"):
        assert tkdebug.current_mode() == "native"


def test_large_addresses_and_views(saxpy, x):
    out = torch.zeros(1000, device="cuda")
    saxpy[(8,)](x[3:], out[1:], 900, 1.0)
    torch.testing.assert_close(out[1:901], x[3:903] + 900)


def test_current_stream(saxpy, x):
    stream = torch.cuda.Stream()
    out = torch.zeros_like(x)
    # Compiled before, so that the launch comes well within the sleep.
    saxpy[(8,)](x, out, 1000, 0.0)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        saxpy[(8,)](x, out, 1000, 2.0)
        done = torch.cuda.Event()
        done.record()
        assert not done.query()
    stream.synchronize()
    check(out, x, 1000, 2.0)


def test_launch_in_a_fresh_thread(saxpy, x):
    out = torch.zeros_like(x)
    saxpy[(8,)](x, out, 0 + 16, 2.0)
    torch.cuda.synchronize()
    failures = []

    def work():
        try:
            with tkdebug.mode("native"):
                saxpy[(8,)](x, out, 1000, 2.0)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    torch.cuda.synchronize()
    check(out, x, 1000, 2.0)


def test_graph_capture(saxpy, x):
    out = torch.zeros_like(x)
    saxpy[(8,)](x, out, 1000, 2.0)
    hook = Hook(enter=lambda kernel, record: None, timed=True)
    for hooked in (False, True):
        if hooked:
            HOOKS.add(hook)
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                saxpy[(8,)](x, out, 1000, 2.0)
                saxpy[(8,)](out, out, 1000, 0.5)
        finally:
            HOOKS.remove(hook)
        out.zero_()
        graph.replay()
        torch.testing.assert_close(out, (x * 2 + 1000) * 0.5 + 1000)


def test_zero_sized_grid(saxpy, x):
    out = torch.zeros_like(x)
    saxpy[(0,)](x, out, 1000, 2.0)
    assert out.count_nonzero() == 0


def test_host_tensor_is_refused_and_pinned_is_not(saxpy, x):
    out = torch.zeros_like(x)
    with pytest.raises(PointerError, match=r"argument `x` is on cpu.*cpu tensor"):
        saxpy[(8,)](x.cpu(), out, 1000, 2.0)
    saxpy[(8,)](x.cpu().pin_memory(), out, 1000, 2.0)
    check(out, x, 1000, 2.0)


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_tensor_of_another_device(saxpy, x):
    with torch.cuda.device(1):
        other = torch.arange(1000, dtype=torch.float32, device="cuda:1")
        out = torch.zeros_like(other)
        saxpy[(8,)](other, out, 1000, 2.0)
        check(out, other, 1000, 2.0)
    out = torch.zeros_like(x)
    if torch.cuda.can_device_access_peer(0, 1):
        # torch enables the access with the first copy.
        out.copy_(other)
        saxpy[(8,)](other, out, 1000, 2.0)
        check(out, other, 1000, 2.0)
        return
    with pytest.raises(PointerError, match="cuda:1"):
        saxpy[(8,)](other, out, 1000, 2.0)


def test_too_much_shared_memory(saxpy, x):
    with pytest.raises(OutOfResources, match=r"shared memory, Required: 1048576"):
        saxpy[(8,)](x, x, 1000, 2.0, BLOCK=32)


def test_shared_memory_beyond_48_kib_is_opted_into(saxpy, x):
    out = torch.zeros_like(x)
    kernel = saxpy[(8,)](x, out, 1000, 2.0, BLOCK=64)
    assert kernel.metadata.shared == 96 << 10
    check(out, x, 1000, 2.0)


def test_hooks_get_device_time_without_a_wait(saxpy, x):
    records = []
    hook = Hook(
        exit=lambda kernel, record: records.append((record, record.device_ns())), timed=True
    )
    out = torch.zeros_like(x)
    saxpy[(8,)](x, out, 1000, 2.0)
    HOOKS.add(hook)
    try:
        torch.cuda._sleep(100_000_000)
        saxpy[(8,)](x, out, 1000, 2.0)
    finally:
        HOOKS.remove(hook)
    ((record, at_exit),) = records
    assert at_exit is None
    assert record.mode == "native"
    assert record.grid == (8, 1, 1)
    assert record.duration_ns < 50_000_000
    torch.cuda.synchronize()
    assert 0 <= record.device_ns() < 1_000_000
    assert record.arguments[0].shape == (1000,)


def test_recorder_stores_device_times(saxpy, x, tmp_path):
    import sqlite3

    from tkdebug.instrument.recorder import Recorder

    out = torch.zeros_like(x)
    with Recorder(tmp_path / "run.tkd", mode="native", output=False):
        for _ in range(100):
            saxpy[(8,)](x, out, 1000, 2.0)
    rows = sqlite3.connect(tmp_path / "run.tkd").execute(
        "SELECT mode, duration_ns, error FROM launches"
    )
    found = rows.fetchall()
    assert len(found) == 100
    assert all(mode == "native" and 0 < ns < 10_000_000 and not error for mode, ns, error in found)


def test_compiled_kernel_launches_again(saxpy, x):
    out = torch.zeros_like(x)
    kernel = saxpy.warmup(x, out, 1000, 2.0, grid=(8,))
    kernel[(8,)](x, out, 1000, 2.0, 128)
    check(out, x, 1000, 2.0)


def test_do_bench_times_a_native_launch(saxpy, x):
    from tkdebug.runtime.benchmark.testing import do_bench, do_bench_cudagraph

    out = torch.zeros_like(x)
    assert 0 < do_bench(lambda: saxpy[(8,)](x, out, 1000, 2.0), warmup=1, rep=5) < 1
    assert 0 < do_bench_cudagraph(lambda: saxpy[(8,)](x, out, 1000, 2.0), rep=5) < 1


def test_tuner_times_configs_and_skips_those_that_do_not_fit(x):
    @tkdebug.autotune([tkdebug.Config({"BLOCK": size}) for size in (32, 64, 128)], key=["n"])
    @tkdebug.jit
    def tuned(x, out, n, factor, BLOCK: tl.constexpr):
        pass

    out = torch.zeros_like(x)
    tuned[(8,)](x, out, 1000, 2.0)
    check(out, x, 1000, 2.0)
    times = {config.kwargs["BLOCK"]: time[0] for config, time in tuned.configs_timings.items()}
    assert times[32] == float("inf")
    assert 0 < times[64] < 1
    assert tuned.best_config.kwargs["BLOCK"] != 32


def test_device_properties():
    active = tkdebug.driver.active
    properties = active.utils.get_device_properties(0)
    device = torch.cuda.get_device_properties(0)
    assert properties["multiprocessor_count"] == device.multi_processor_count
    assert properties["warpSize"] == 32
    assert properties["max_shared_mem"] > 48 << 10
    assert active.get_current_target().arch == device.major * 10 + device.minor
    assert active.get_current_stream(0) == torch.cuda.current_stream().cuda_stream
