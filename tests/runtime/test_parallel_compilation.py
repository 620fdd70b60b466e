"""Candidates of a tuner, compiled side by side before the first is wanted."""

import concurrent.futures
import os
import signal
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from native_support import needs_codegen

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.targets.nvptx import compile
from tkdebug.compiler.targets.nvptx.codegen import generation as code_generation
from tkdebug.compiler.targets.nvptx.codegen import worker_process
from tkdebug.errors import CompileError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.compile.parallel_compilation import CompileOnce
from tkdebug.runtime.errors import NoDeviceError, PointerError
from tkdebug.runtime.launch import launch_writer
from tkdebug.runtime.launch.native_kernel import NativeKernel
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

pytestmark = needs_codegen
BLOCKS = (64, 128, 256)


def add_one(x, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.static_assert(BLOCK != 32 and BLOCK != 16, f"not {BLOCK}")
    tl.store(x + offs, tl.load(x + offs, mask=offs < n) + 1, mask=offs < n)


def configs(*blocks, pre_hook=None):
    return [tkdebug.Config({"BLOCK": block}, pre_hook=pre_hook) for block in blocks]


def tuned(chosen, **options):
    return tkdebug.autotune(chosen, ["n"], **options)(tkdebug.jit(add_one))


class Generation:
    """Watches code generation, and has calls wait for each other where they can.

    Attributes:
        kernels: LLVM texts in the order in which code was asked for.
        most: how many were asked for at once at most.
    """

    def __init__(self, together):
        self.kernels = []
        self.most = 0
        self._together = together
        self._under_way = 0
        self._changed = threading.Condition()

    def __call__(self, llvm_ir, *arguments, **keywords):
        with self._changed:
            self.kernels.append(llvm_ir)
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._together, timeout=60)
        try:
            return code_generation.generate(llvm_ir, *arguments, **keywords)
        finally:
            with self._changed:
                self._under_way -= 1


@pytest.fixture(autouse=True)
def native(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "POOL", SimpleNamespace(size=2))
    with tkdebug.mode("native"), scope(cache_dir=tmp_path / "cache"):
        yield


@pytest.fixture
def generation(monkeypatch):
    watched = Generation(together=2)
    monkeypatch.setattr(compile, "generate", watched)
    return watched


@pytest.fixture
def serial_generation(monkeypatch):
    watched = Generation(together=1)
    monkeypatch.setattr(compile, "generate", watched)
    return watched


@pytest.fixture
def launched(monkeypatch):
    """Native launches of CPU tensors, which only note the kernel."""
    seen = []

    def submit(kernel, *grid_stream_and_values):
        seen.append(kernel)

    monkeypatch.setattr(NativeKernel, "_load_and_submit", submit)
    monkeypatch.setattr(launch_writer, "_getters", lambda: ((lambda: -1), (lambda index: 0)))
    return seen


@contextmanager
def heard(**hooks):
    hook = Hook(**hooks)
    HOOKS.add(hook)
    try:
        yield
    finally:
        HOOKS.remove(hook)


def constants(kernels):
    return [kernel.src.constants["BLOCK"] for kernel in kernels]


def warm_up(tuner):
    return tuner.warmup(torch.float32, 1000, grid=(1,))


def test_warm_up_generates_code_side_by_side(generation):
    kernels = warm_up(tuned(configs(*BLOCKS)))
    assert generation.most == 2
    assert constants(kernels) == list(BLOCKS)
    assert len(generation.kernels) == len(BLOCKS)


def test_trials_find_all_kernels_compiled(generation, launched):
    compiled_before = []

    def bench(call, quantiles):
        compiled_before.append(len(generation.kernels))
        call()
        return [1.0, 1.0, 1.0]

    tuner = tuned(configs(*BLOCKS), do_bench=bench)
    tuner[(1,)](torch.zeros(1000), 1000)
    assert generation.most == 2
    assert compiled_before == [3, 3, 3]
    assert len(generation.kernels) == 3
    assert constants(launched) == [*BLOCKS, BLOCKS[0]]


def test_code_is_that_of_one_compile_after_another():
    with scope(always_compile=True):
        ahead = warm_up(tuned(configs(*BLOCKS)))
        single = tkdebug.jit(add_one)
        for block, kernel in zip(BLOCKS, ahead, strict=True):
            alone = single.warmup(torch.float32, 1000, BLOCK=block, grid=(1,), num_warps=4)
            assert kernel.asm["ptx"] == alone.asm["ptx"]
            assert kernel.asm["cubin"] == alone.asm["cubin"]


def test_compiles_are_reported_in_order_of_configurations(generation):
    events = []
    with heard(compiled=events.append):
        warm_up(tuned(configs(*BLOCKS)))
    assert generation.most == 2
    assert [event.signature for event in events] == [
        f"(x: *fp32, n: i32, BLOCK: constexpr = {block})" for block in BLOCKS
    ]
    assert all(event.passes for event in events)


def test_hook_after_a_compile_is_called_in_order(generation, monkeypatch):
    reported = []
    monkeypatch.setattr(
        COMPILE_HOOKS,
        "after",
        lambda **report: reported.append(report["compile"]["constants"]),
    )
    warm_up(tuned(configs(*BLOCKS)))
    assert generation.most == 2
    assert reported == [{(2,): block} for block in BLOCKS]


def test_nothing_is_compiled_ahead_of_a_hook_that_may_take_it(serial_generation, monkeypatch):
    steps = []

    def before(**report):
        steps.append(len(serial_generation.kernels))
        return report["compile"]["constants"] == {(2,): 128}

    monkeypatch.setattr(COMPILE_HOOKS, "before", before)
    kernels = warm_up(tuned(configs(*BLOCKS)))
    assert steps == [0, 1, 1]
    assert kernels[1] is None


def test_same_code_is_generated_once(serial_generation):
    stages = [tkdebug.Config({"BLOCK": 64}, num_stages=n) for n in (1, 2, 3)]
    events = []
    with heard(compiled=events.append):
        warm_up(tuned(stages))
    assert [event.cache_hit for event in events] == [False, True, True]


def test_warm_up_raises_what_fails_first_and_tells_of_it_alone(serial_generation):
    faults = []
    with heard(fault=faults.append), pytest.raises(CompileError, match="not 32"):
        warm_up(tuned(configs(64, 32, 16)))
    assert [fault.message.count("not 32") for fault in faults] == [1]


def tune(chosen, **options):
    def bench(call, quantiles):
        call()
        return [1.0, 1.0, 1.0]

    tuner = tuned(chosen, do_bench=bench, **options)
    tuner[(1,)](torch.zeros(1000), 1000)
    return tuner


def test_configuration_that_does_not_compile_loses(generation, launched, capsys):
    faults, outcomes = [], []
    with heard(fault=faults.append), scope(print_autotuning=True):
        tuner = tune(
            configs(32, 64, 128), post_hook=lambda named, exception: outcomes.append(exception)
        )
    assert tuner.configs_timings[tuner.configs[0]] == [float("inf")] * 3
    assert tuner.best_config is tuner.configs[1]
    assert capsys.readouterr().out.count("Autotuning failed with") == 1
    assert isinstance(outcomes[0], CompileError)
    assert outcomes[1:] == [None, None]
    assert faults == []


def test_configuration_that_llvm_refuses_is_compiled_once(generation, launched, monkeypatch):
    def refuse_second(llvm_ir, kernel, *rest, **keywords):
        code = generation(llvm_ir, kernel, *rest, **keywords)
        if llvm_ir == generation.kernels[1]:
            raise code_generation.CodegenError(kernel, "assemble", "no registers left")
        return code

    monkeypatch.setattr(compile, "generate", refuse_second)
    events = []
    with heard(compiled=events.append):
        tuner = tune(configs(*BLOCKS))
    assert len(generation.kernels) == 3
    lost = [config for config, ms in tuner.configs_timings.items() if ms[0] == float("inf")]
    assert len(lost) == 1
    failed = [event for event in events if event.error]
    assert len(events) == 3
    assert ["no registers left" in event.error for event in failed] == [True]
    assert f"= {lost[0].kwargs['BLOCK']})" in failed[0].signature


def copy_row(desc, out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.reshape(desc.load([0, 0]), [BLOCK]))


def set_block_shape(named):
    named["desc"].block_shape = [1, named["BLOCK"]]


def tune_copies(chosen, shape):
    shapes = []

    def bench(call, quantiles):
        call()
        shapes.append(list(desc.block_shape))
        return [1.0 / len(shapes)] * 3  # the last is the fastest

    x = torch.zeros(4, 256)
    desc = TensorDescriptor(x, x.shape, x.stride(), shape)
    tuner = tkdebug.autotune(chosen, ["n"], do_bench=bench)(tkdebug.jit(copy_row))
    tuner[(1,)](desc, torch.zeros(256), 1)
    return shapes


def test_each_kernel_is_bound_to_what_its_hook_made_of_the_arguments(generation, launched):
    shapes = tune_copies(configs(*BLOCKS, pre_hook=set_block_shape), [1, 1])
    assert shapes == [[1, block] for block in BLOCKS]
    assert generation.most == 2
    assert len(generation.kernels) == 3
    assert constants(launched)[:3] == list(BLOCKS)


def test_what_a_hook_leaves_behind_does_not_reach_an_earlier_trial(serial_generation, launched):
    chosen = [*configs(64), *configs(256, pre_hook=set_block_shape)]
    assert tune_copies(chosen, [1, 64]) == [[1, 64], [1, 256]]


def test_nothing_is_compiled_for_arguments_that_no_launch_can_have(serial_generation):
    # Tensors of the CPU; or no GPU at all.
    with pytest.raises((PointerError, NoDeviceError)):
        tune(configs(*BLOCKS))
    assert serial_generation.kernels == []


def test_kernels_that_hooks_launch_are_launched(serial_generation, launched):
    other = tkdebug.jit(add_one)
    y = torch.zeros(1000)
    tune(configs(64, 128, pre_hook=lambda named: other[(1,)](y, 1000, BLOCK=256)))
    # Twice before the trials, then before each, and before the launch.
    assert constants(launched) == [256, 256, 256, 64, 256, 128, 256, 64]


def test_kernels_that_heuristics_launch_are_launched(serial_generation, launched):
    other, y = tkdebug.jit(add_one), torch.zeros(1000)

    def count(named):
        other[(1,)](y, 1000, BLOCK=256)
        return 1000

    inner = tkdebug.heuristics({"n": count})(tkdebug.jit(add_one))
    tkdebug.autotune(configs(64, 128), [])(inner).warmup(torch.float32, grid=(1,))
    # Once for each configuration before the warm-ups, and for each of these.
    assert constants(launched) == [256, 256, 256, 256]


def test_heuristics_under_a_tuner_are_worked_out_of_each_configuration(generation, launched):
    inner = tkdebug.heuristics({"n": lambda named: named["BLOCK"] * 2})(tkdebug.jit(add_one))
    tuner = tkdebug.autotune(configs(*BLOCKS), [])(inner)
    kernels = tuner.warmup(torch.float32, grid=(1,))
    assert generation.most == 2
    assert constants(kernels) == list(BLOCKS)
    assert len(generation.kernels) == 3


def test_kernels_with_a_way_to_run_of_their_own_are_run_as_often_as_ever(serial_generation):
    class Counted(tkdebug.JITFunction):
        def run(self, *args, **kwargs):
            kernel = super().run(*args, **kwargs)
            runs.append(kernel.n_regs)
            return kernel

    runs = []
    tuner = tkdebug.autotune(configs(*BLOCKS), ["n"])(Counted(add_one))
    assert constants(warm_up(tuner)) == list(BLOCKS)
    assert len(runs) == 3
    assert serial_generation.most == 1


def test_dumped_stages_of_all_configurations_are_written(generation, tmp_path):
    with scope(dump_dir=tmp_path / "dump"):
        warm_up(tuned(configs(*BLOCKS)))
    assert generation.most == 2
    folders = list((tmp_path / "dump").iterdir())
    assert len(folders) == 3
    assert all((folder / "kernel.cubin").read_bytes()[:4] == b"\x7fELF" for folder in folders)


@pytest.mark.skipif(os.name != "posix", reason="pipes of other systems cannot be waited for")
def test_ctrl_c_ends_compiles_workers_and_threads(monkeypatch):
    pool = worker_process.WorkerPool(size=2)
    first, second, waiting, pids = threading.Event(), threading.Event(), threading.Event(), []
    monkeypatch.setattr(worker_process, "POOL", pool)
    monkeypatch.setattr(code_generation, "POOL", pool)
    # Workers that hear what they are asked, and never answer.
    monkeypatch.setattr(worker_process, "_BOOTSTRAP", "import sys; sys.stdin.buffer.read()")
    real_ask, real_wait = worker_process.WorkerProcess.ask, concurrent.futures.wait

    def ask(worker, *request):
        pids.append(worker.pid)
        (second if len(pids) > 1 else first).set()
        return real_ask(worker, *request)

    def wait(futures, timeout):
        waiting.set()
        return real_wait(futures, timeout)

    def interrupt():
        # Without the signal the test would wait for ever, whatever their results.
        first.wait(60)
        second.wait(60)
        waiting.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(worker_process.WorkerProcess, "ask", ask)
    monkeypatch.setattr(concurrent.futures, "wait", wait)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        warm_up(tuned(configs(*BLOCKS)))
    thread.join()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not [
        t for t in threading.enumerate() if t.name.startswith("tkdebug-parallel-compilation")
    ]


def in_threads(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_kernels_of_one_function_compile_side_by_side_and_each_once(monkeypatch):
    meeting, compiled, kernels = threading.Barrier(2), [], {}
    compiles = CompileOnce(kernels)

    def compile_kernel(src):
        compiled.append(src)
        meeting.wait(60)
        return SimpleNamespace(src=src)

    def want(key):
        compiles.kernel((key,), key, False, compile_kernel)

    in_threads(*[lambda key=key: want(key) for key in "abab"])
    assert sorted(compiled) == ["a", "b"]
    assert kernels["a",].src == "a"
