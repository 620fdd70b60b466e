import pickle
from functools import partial

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.tensor import constexpr
from tkdebug.errors import CompileError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.compile.compilation import tell_compile_error
from tkdebug.runtime.device.driver import driver
from tkdebug.runtime.errors import AutotunerError
from tkdebug.runtime.tune.autotune import Autotuner
from tkdebug.runtime.upstream_hooks import TUNE_HOOKS

CONFIGS = [
    tkdebug.Config({"BLOCK": 32}, num_warps=2),
    tkdebug.Config({"BLOCK": 128}, num_warps=8, num_stages=4),
]


def kernel(x, n, BLOCK: constexpr):
    pass


def tuned(configs=CONFIGS, key=("n",), **options):
    return tkdebug.autotune(configs, key, **options)(tkdebug.jit(kernel))


class Timed(Autotuner):
    """A tuner that times, with a kernel that only notes its keywords."""

    def __init__(self, **options):
        self.calls = []

        class Kernel:
            fn = staticmethod(kernel)

            def run(_, *args, **kwargs):
                self.calls.append(kwargs)

        Kernel.fn = kernel
        instance = Kernel()
        instance.fn = kernel
        positional = {"reset_to_zero": None, "restore_value": None}
        super().__init__(instance, ["x", "n", "BLOCK"], CONFIGS, ["n"], **{**positional, **options})


@pytest.fixture
def x():
    return torch.ones(4)


def test_config_equality_hash_and_text():
    one, same = tkdebug.Config({"B": 1}), tkdebug.Config({"B": 1})
    assert one == same
    assert hash(one) == hash(same)
    assert one != tkdebug.Config({"B": 1}, num_warps=8)
    assert one != tkdebug.Config({"B": 1}, pre_hook=print)
    assert str(one) == "B: 1, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    assert one.all_kwargs() == {"B": 1, "num_warps": 4, "num_ctas": 1, "num_stages": 3}


def test_config_pickles():
    assert pickle.loads(pickle.dumps(CONFIGS[1])) == CONFIGS[1]


def test_interpret_takes_first_config_and_says_so_once(launches, x, capsys):
    tuner = tuned()
    kernel = tuner[lambda meta: (meta["n"] // meta["BLOCK"],)](x, 64)
    tuner[(1,)](x, 128)
    assert launches[0].grid == (2, 1, 1)
    assert kernel.metadata.num_warps == 2
    assert tuner.best_config is CONFIGS[0]
    assert len(tuner.cache) == 2
    captured = capsys.readouterr()
    assert captured.err.count("tkdebug: autotune of kernel") == 1
    assert "BLOCK: 32" in captured.err
    assert captured.out == ""


@tkdebug.jit
def wide_block(x, n, BLOCK: constexpr):
    tl.static_assert(BLOCK > 32, "a wide block")
    tl.store(x + tl.arange(0, BLOCK), n, mask=tl.arange(0, BLOCK) < 4)


def test_interpret_leaves_out_configs_that_do_not_compile(x, capsys):
    tuner = tkdebug.autotune(CONFIGS, ["n"])(wide_block)
    tuner[(1,)](x, 64)
    assert tuner.best_config is CONFIGS[1]
    assert x.tolist() == [64.0] * 4
    captured = capsys.readouterr()
    assert "that survives pruning and compiles (BLOCK: 128" in captured.err
    assert "static assertion" not in captured.err


def test_interpret_reports_why_no_config_compiles(x):
    tuner = tkdebug.autotune([tkdebug.Config({"BLOCK": n}) for n in (16, 32)], ["n"])(wide_block)
    with pytest.raises(CompileError, match="static assertion failed: a wide block"):
        tuner[(1,)](x, 64)
    assert x.tolist() == [1.0] * 4


def test_key_includes_dtypes(launches, x):
    tuner = tuned()
    tuner[(1,)](x, 64)
    tuner[(1,)](x.half(), 64)
    tuner[(1,)](n=64, x=x)
    assert len(tuner.cache) == 2


def test_single_config_is_silent(launches, x, capsys):
    tuned(CONFIGS[:1])[(1,)](x, 64)
    assert capsys.readouterr().err == ""


def test_no_configs_gives_the_default(launches, x):
    tuner = tuned([])
    tuner[(1,)](x, 64, BLOCK=16)
    assert str(tuner.best_config).startswith("num_warps: 4")


@pytest.mark.parametrize("keywords", [{"BLOCK": 16}, {"num_warps": 4}])
def test_conflicts_are_named(launches, x, keywords):
    with pytest.raises(ValueError, match=f"Conflicting meta-parameters: {next(iter(keywords))}"):
        tuned()[(1,)](x, 64, **keywords)


def test_config_pre_hook_runs_before_each_launch(launches, x):
    seen = []
    tuner = tuned([tkdebug.Config({"BLOCK": 8}, pre_hook=seen.append)])
    tuner[(1,)](x, 64)
    tuner[(1,)](x, 64)
    assert [(args["n"], args["BLOCK"]) for args in seen] == [(64, 8), (64, 8)]


def test_early_config_prune(launches, x):
    def prune(configs, named_args, **kwargs):
        assert set(named_args) == {"x"}
        assert kwargs["n"] == 64
        return configs[1:]

    tuner = tuned(prune_configs_by={"early_config_prune": prune})
    tuner[(1,)](x, n=64)
    assert tuner.best_config is CONFIGS[1]


def test_prune_to_nothing(launches, x):
    tuner = tuned(prune_configs_by={"early_config_prune": lambda *a, **k: []})
    with pytest.raises(AutotunerError, match="at least one"):
        tuner[(1,)](x, 64)


@pytest.mark.parametrize("top_k", [1, 0.5, 0.1])
def test_perf_model_keeps_the_best(launches, x, top_k):
    def model(x, n, BLOCK, **rest):
        return -BLOCK

    tuner = tuned(prune_configs_by={"perf_model": model, "top_k": top_k})
    tuner[(1,)](x, 64)
    assert tuner.best_config is CONFIGS[1]


def test_bad_top_k(launches, x):
    tuner = tuned(prune_configs_by={"perf_model": lambda **k: 0, "top_k": 1.5})
    with pytest.raises(AutotunerError, match="top_k"):
        tuner[(1,)](x, 64)


def test_reset_to_zero_on_a_new_key(launches, x):
    tuned(reset_to_zero=["x"])[(1,)](x, 64)
    assert x.tolist() == [0, 0, 0, 0]


def test_reset_and_restore_skip_none(launches):
    tuned(reset_to_zero=["x"], restore_value=["x"])[(1,)](None, 64)
    assert len(launches) == 1


def test_warmup_compiles_every_config(launches, x):
    kernels = tuned().warmup(x, 64, grid=(1,))
    assert [kernel.metadata.num_warps for kernel in kernels] == [2, 8]
    assert launches == []


def test_autotuned_event(launches, x):
    events = []
    hook = Hook(autotuned=events.append)
    HOOKS.add(hook)
    try:
        tuned()[(1,)](x, 64)
    finally:
        HOOKS.remove(hook)
    (event,) = events
    assert event.kernel == "kernel"
    assert "torch.float32" in event.key
    assert event.config == str(CONFIGS[0])
    assert event.timings_ms == {}


def test_native_times_all_and_takes_the_fastest(x):
    times = iter([[3.0, 2.0, 4.0], [1.0, 1.0, 1.0]])

    def bench(call, quantiles):
        assert quantiles == (0.5, 0.2, 0.8)
        call()
        return next(times)

    tuner = Timed(do_bench=bench)
    with tkdebug.mode("native"):
        tuner[(1,)](x, 64)
        tuner[(1,)](x, 64)
    assert tuner.best_config is CONFIGS[1]
    assert list(tuner.configs_timings.values()) == [[3.0, 2.0, 4.0], [1.0, 1.0, 1.0]]
    assert [call["BLOCK"] for call in tuner.calls] == [32, 128, 128, 128]


class Script:
    """A default do_bench that takes its medians from lists by block.

    Attributes:
        tuner: that times by it.
        warmups: of each time.
    """

    def __init__(self, monkeypatch, times):
        self.warmups = []
        self.tuner = Timed()
        self.tuner.configs = [tkdebug.Config({"BLOCK": block}) for block in times]

        def do_bench(call, warmup=25, rep=100, quantiles=None):
            self.tuner.calls.clear()
            call()
            self.warmups.append(warmup)
            return [times[self.tuner.calls[0]["BLOCK"]].pop(0)] * 3

        monkeypatch.setattr("tkdebug.runtime.benchmark.testing.do_bench", do_bench)
        monkeypatch.setattr(type(driver.active), "get_benchmarker", lambda self: do_bench)
        briefly = partial(do_bench, warmup=5, rep=20)
        monkeypatch.setattr("tkdebug.runtime.tune.autotune.briefly", briefly)

    def chosen(self, x):
        with tkdebug.mode("native"):
            self.tuner[(1,)](x, 64)
        return self.tuner.best_config.kwargs["BLOCK"]


def test_native_times_close_configs_in_turn(x, monkeypatch):
    script = Script(monkeypatch, {32: [1.0, 1.06, 1.05, 1.9], 128: [1.04, 1.03, 1.02, 0.5]})
    assert script.chosen(x) == 128
    assert list(script.tuner.configs_timings.values()) == [[1.06] * 3, [1.02] * 3]
    assert script.warmups == [25, 25, 5, 5, 5, 5, 5, 5]


def test_native_chooses_among_those_that_were_close(x, monkeypatch):
    """The clocks have fallen since the third one was timed."""
    times = {32: [1.0, 1.08, 1.08, 1.08], 64: [1.02, 1.09, 1.09, 1.09], 128: [1.06]}
    assert Script(monkeypatch, times).chosen(x) == 32


@pytest.mark.parametrize(
    "times", [[1.0, 1.06], [1.0, float("inf")], [float("inf")] * 2, [400.0, 401.0]]
)
def test_native_times_configs_that_differ_or_are_slow_once(x, monkeypatch, times):
    script = Script(monkeypatch, {32: [times[0]], 128: [times[1]]})
    assert script.chosen(x) == 32
    assert script.warmups == [25, 25]


def test_native_times_by_what_a_caller_gives_once(x):
    warmups = []

    def do_bench(call, quantiles):
        warmups.append(quantiles)
        return [1.0] * 3

    with tkdebug.mode("native"):
        Timed(do_bench=do_bench)[(1,)](x, 64)
    assert len(warmups) == 2


def test_native_says_once_that_results_are_not_cached(x, capsys):
    tuner = Timed(do_bench=lambda call, quantiles: [1.0, 1.0, 1.0], cache_results=True)
    with tkdebug.mode("native"):
        tuner[(1,)](x, 64)
        tuner[(1,)](x, 65)
    assert capsys.readouterr().err == (
        "tkdebug: autotune of kernel: cache_results is not supported; configs are timed in each "
        "process anew\n"
    )


def test_native_restores_values_between_trials(x):
    def bench(call, quantiles):
        call()
        x.add_(0)
        return [float(x.sum())] * 3

    tuner = Timed(do_bench=bench, restore_value=["x"])
    tuner.fn.run = lambda *args, **kwargs: x.mul_(2)
    with tkdebug.mode("native"):
        tuner[(1,)](x, 64)
    assert x.tolist() == [2, 2, 2, 2]


def test_failing_trial_calls_post_hook_and_loses(x):
    outcomes = []

    def bench(call, quantiles):
        call()
        return [1.0, 1.0, 1.0]

    def run(*args, BLOCK, **kwargs):
        if BLOCK == 32:
            raise tkdebug.OutOfResources(300000, 232448, "shared memory")

    tuner = Timed(do_bench=bench, post_hook=lambda args, exception: outcomes.append(exception))
    tuner.fn.run = run
    with tkdebug.mode("native"):
        tuner[(1,)](x, 64)
    assert tuner.best_config is CONFIGS[1]
    assert isinstance(outcomes[0], tkdebug.OutOfResources)
    assert outcomes[1] is None


def test_config_that_does_not_compile_is_no_fault(x):
    faults = []
    hook = Hook(fault=faults.append)

    def bench(call, quantiles):
        call()
        return [1.0, 1.0, 1.0]

    def run(*args, BLOCK, **kwargs):
        if BLOCK == 32:
            error = tkdebug.CompileError("static assertion failed")
            tell_compile_error("kernel", error)
            raise error

    tuner = Timed(do_bench=bench)
    tuner.fn.run = run
    HOOKS.add(hook)
    try:
        with tkdebug.mode("native"):
            tuner[(1,)](x, 64)
        assert faults == []
        tell_compile_error("kernel", tkdebug.CompileError("outside of trials"))
    finally:
        HOOKS.remove(hook)
    assert tuner.best_config is CONFIGS[1]
    assert [fault.message for fault in faults] == ["outside of trials"]


def test_deprecated_timing_arguments_warn():
    with pytest.warns(DeprecationWarning, match="deprecated"):
        tuned(warmup=1, rep=1)


def test_base_fn_and_attributes():
    tuner = tuned()
    assert tuner.base_fn is kernel
    assert tuner.fn.fn is kernel
    assert tuner.arg_names == ["x", "n", "BLOCK"]
    assert tuner.keys == ["n"]


def test_heuristics_fill_parameters(launches, x):
    tuner = tkdebug.heuristics({"BLOCK": lambda args: tkdebug.next_power_of_2(args["n"])})(
        tkdebug.jit(kernel)
    )
    tuner[lambda meta: (meta["BLOCK"],)](x, 100)
    assert launches[0].grid == (128, 1, 1)


def test_heuristics_inside_autotune_see_the_config(launches, x):
    inner = tkdebug.heuristics({"n": lambda args: args["BLOCK"] * 2})(tkdebug.jit(kernel))
    tuner = tkdebug.autotune(CONFIGS, key=[])(inner)
    tuner[(1,)](x)
    assert launches[0].values[1:] == [64]
    assert tuner.base_fn is kernel


def test_interpret_view_through_autotune_and_heuristics(launches, x):
    both = tkdebug.heuristics({"n": lambda args: 7})(tuned())
    with tkdebug.mode("native"):
        both.interpret[(1,)](x)
    assert launches[0].values[1:] == [7]


@pytest.mark.parametrize("what", ["key", "reset_to_zero", "restore_value"])
def test_names_that_are_no_parameters_are_refused(what):
    names = {"key": [], what: ["n", "size"]}
    with pytest.raises(ValueError, match=rf"{what} contains names that are not kernel arg.*: size"):
        tuned(**names)
    with scope(triton_version="3.8"):
        tuned(**names)


def test_one_configuration_left_by_pruning_is_not_tried(x):
    pruning = {"early_config_prune": lambda configs, arguments, **rest: configs[1:]}
    tuner = Timed(prune_configs_by=pruning, reset_to_zero=["x"], do_bench=None)
    tuner.run(x, 3, grid=(1,))
    assert tuner.best_config is CONFIGS[1]
    assert len(tuner.calls) == 1
    assert x.tolist() == [1.0] * 4


def test_listener_hears_of_what_was_timed(x, monkeypatch):
    heard = []
    monkeypatch.setattr(TUNE_HOOKS, "listener", lambda **keywords: heard.append(keywords))
    monkeypatch.setattr(Timed, "_jit_function", lambda self: "function")
    tuner = Timed(do_bench=lambda call, quantiles: [float(bool(call())) + 1.0] * 3)
    with tkdebug.mode("native"):
        tuner.run(x, 3, grid=(1,))
    (report,) = heard
    assert report["fn"] == "function"
    assert report["best_config"] is CONFIGS[0]
    assert report["configs_timings"] == {config: [1.0, 1.0, 1.0] for config in CONFIGS}
    assert report["cache_hit"] is False
    assert report["duration"] > 0
