"""`@autotune`: a kernel whose configuration is chosen at the launch.

Responsible for the choice: which configurations are candidates, trying each, reporting it.
`do_bench` times candidates, `compile_in_parallel` compiles them.
Under interpret nothing is timed, since interpreted time says nothing of the GPU's: the first
configuration that survives pruning is taken, and stderr says so once per kernel.

Libraries subclass `Autotuner` and read its attributes, whose names are therefore upstream's.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any

from tkdebug.errors import CompileError
from tkdebug.knobs import KNOBS
from tkdebug.records.events import AutotuneChoice
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.benchmark import testing
from tkdebug.runtime.compile.compilation import TRYING
from tkdebug.runtime.compile.parallel_compilation import compile_in_parallel
from tkdebug.runtime.device.driver import driver
from tkdebug.runtime.device.modes import current_mode, timed_launches
from tkdebug.runtime.errors import (
    AutotunerError,
    ConflictingParametersError,
    OutOfResources,
    PTXASError,
    UnknownNameError,
)
from tkdebug.runtime.jit.function import JITFunction, KernelInterface
from tkdebug.runtime.launch.graph_capture import refuse_while_capturing
from tkdebug.runtime.launch.requests import requested
from tkdebug.runtime.tune.parameters import Config, Heuristics
from tkdebug.runtime.upstream_hooks import TUNE_HOOKS
from tkdebug.terminal.text import tell

_QUANTILES = (0.5, 0.2, 0.8)


class Autotuner(KernelInterface):
    """A kernel whose configuration is chosen per key.

    Attributes:
        fn: the kernel, or heuristics around it.
        base_fn: the Python function at the bottom.
        configs: the candidates.
        keys: names of the arguments whose change asks for a new choice.
        cache: the choice by key.
        best_config: the choice of the last launch.
        configs_timings: milliseconds (median, 20th and 80th percentile) by configuration, from the
            last benchmark. Configurations close to the fastest have times of other rounds, among
            which they were chosen (`timing`).
        nargs: positional arguments of the launch under way, by name.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., object] | None = None,
        post_hook: Callable[..., object] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: int | None = None,
        rep: int | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[tuple[object, ...], Config] = {}
        self.cache_results = cache_results
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, Any] = {}
        self.bench_time = 0.0
        self.nargs: dict[str, Any] | None = None
        self.restore_copies: dict[str, Any] = {}
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        self._refuse_unknown_names(fn)
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        self.pre_hook: Callable[..., object] = pre_hook or self._reset_and_save
        self.post_hook: Callable[..., object] = post_hook or self._restore
        pruning = prune_configs_by or {}
        self.perf_model = pruning.get("perf_model")
        self.configs_top_k = pruning.get("top_k", 1.0)
        self.early_config_prune = pruning.get("early_config_prune")
        self.base_fn = fn
        while not isinstance(self.base_fn, FunctionType):
            self.base_fn = self.base_fn.fn
        self.num_warmups = warmup
        self.num_reps = rep
        self.use_cuda_graph = use_cuda_graph
        self._do_bench = do_bench
        self._reported = False
        if warmup is not None or rep is not None or use_cuda_graph:
            self._do_bench = deprecated_timer(warmup, rep, use_cuda_graph)
        self._is_timer_given = self._do_bench is not None

    def _refuse_unknown_names(self, fn: Any) -> None:
        """Refuse names that are no parameters, which the key would silently lack."""
        if KNOBS.triton_version < "3.9":
            return
        listed = (
            ("key", self.keys),
            ("reset_to_zero", self.reset_to_zero),
            ("restore_value", self.restore_value),
        )
        for parameter, names in listed:
            unknown = [name for name in names if name not in self.arg_names]
            if unknown:
                name = getattr(fn, "__name__", "")
                raise UnknownNameError(
                    f"autotune of {name}: {parameter} contains names that are not kernel "
                    f"arguments: {', '.join(map(str, unknown))}; it has "
                    f"{', '.join(self.arg_names)}; Triton refuses them from 3.9 on, and left "
                    "them out of the key before: TKDEBUG_TRITON=3.8 does, too"
                )

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The timer of a configuration: called with a function and `quantiles`."""
        if self._do_bench is None:
            self._do_bench = driver.active.get_benchmarker()
        return self._do_bench

    def _reset_and_save(self, kwargs: dict[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if kwargs[name] is not None:
                kwargs[name].zero_()
        if not reset_only:
            saved = {name: kwargs[name] for name in self.restore_value}
            self.restore_copies = {n: v.clone() for n, v in saved.items() if v is not None}

    def _restore(self, kwargs: dict[str, Any], exception: BaseException | None) -> None:
        for name, copy in self.restore_copies.items():
            kwargs[name].copy_(copy)
        self.restore_copies = {}

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Choose a configuration for these arguments and launch with it."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        try:
            config = self._choose(args, {"grid": grid, "warmup": warmup, **kwargs})
            self.best_config = config
            self._refuse_conflicts(config, kwargs)
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            chosen = config.all_kwargs()
            with requested(self.fn, args, kwargs, grid, chosen, self.configs):
                return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **chosen)
        finally:
            self.nargs = None

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        if len(self.configs) == 1:
            return self.configs[0]
        key = self._key(kwargs)
        if key not in self.cache:
            candidates = self.prune_configs(kwargs)
            if len(candidates) == 1:
                self.cache[key] = candidates[0]
            elif current_mode(self.base_fn.__name__) == "interpret":
                self._refuse_in_captures()
                self.cache[key] = self._first_that_compiles(args, kwargs, candidates)
                self._tell_untimed(self.cache[key], candidates)
            else:
                self.cache[key] = self._benchmark(args, kwargs, candidates)
            chosen = self.cache[key]
            if len(candidates) == 1:
                # Nothing has been tried, so there is nothing to put back.
                return chosen
            self.pre_hook({**self._positional(), **kwargs, **chosen.all_kwargs()}, reset_only=True)
            self._announce(key, chosen)
        return self.cache[key]

    def _first_that_compiles(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], candidates: Sequence[Config]
    ) -> Config:
        """Choose for an interpreted kernel: timing leaves out what does not compile, too.

        Returns:
            The first of `candidates` that compiles; if none does, the first, so that the launch
            says why.
        """
        if _plain_kernel(self.fn) is None:
            return candidates[0]
        for config in candidates:
            self._refuse_conflicts(config, kwargs)
            current = {**kwargs, **config.all_kwargs(), "warmup": True}
            if config.pre_hook is not None:
                config.pre_hook({**self._positional(), **current})
            token = TRYING.set(True)
            try:
                self.fn.run(*args, **current)
                return config
            except CompileError as error:
                if KNOBS.print_autotuning:
                    print(f"Autotuning failed with {error}")
            finally:
                TRYING.reset(token)
        return candidates[0]

    def _positional(self) -> dict[str, Any]:
        return self.nargs or {}

    def _key(self, kwargs: Mapping[str, Any]) -> tuple[object, ...]:
        given = {**self._positional(), **kwargs}
        named = {name: value for name, value in given.items() if name in self.arg_names}
        key: list[object] = [named[name] for name in self.keys if name in named]
        key += [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
        return tuple(key)

    def _benchmark(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], candidates: Sequence[Config]
    ) -> Config:
        if self.cache_results:
            self._tell_once(
                "cache_results is not supported; configs are timed in each process anew"
            )
        started = time.perf_counter()
        with self._compiled_ahead(args, kwargs, candidates):
            timings = {config: self._bench(*args, config=config, **kwargs) for config in candidates}
            again = self._timed_again(args, kwargs, timings)
        self.bench_time = time.perf_counter() - started
        self.configs_timings = timings = timings | again
        # Times of before and of now are of different clocks.
        best = min(again or timings, key=lambda config: median_ms(timings[config]))
        if TUNE_HOOKS.listener is not None:
            TUNE_HOOKS.listener(
                fn=self._jit_function(),
                key=self._key(kwargs),
                best_config=best,
                configs_timings=timings,
                duration=self.bench_time,
                cache_hit=False,
            )
        if KNOBS.print_autotuning:
            # On stdout and in these words as upstream, whose users parse them.
            print(
                f"Triton autotuning for function {self.base_fn.__name__},\n"
                f"with key as {self._key(kwargs)},\n"
                f"finished after {self.bench_time:.2f}s,\n"
                f"best config selected: {best};"
            )
        return best

    def _timed_again(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], timings: Mapping[Config, Any]
    ) -> dict[Config, Any]:
        """Return new times of the configurations that are close to the fastest."""
        # The caller chooses the timer, and the number of its calls.
        if self._is_timer_given or self.do_bench is not testing.do_bench or KNOBS.quick:
            return {}
        # Libraries have a `_bench` of their own, which takes what this one takes.
        self._do_bench = briefly
        try:
            return timed_in_turn(timings, lambda one: self._bench(*args, config=one, **kwargs))
        finally:
            self._do_bench = None

    def _jit_function(self) -> Any:
        function = self.fn
        while not isinstance(function, JITFunction):
            function = function.fn
        return function

    def _compiled_ahead(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], candidates: Sequence[Config]
    ) -> AbstractContextManager[None]:
        """Compile in parallel the kernels that the trials in a `with` block launch."""
        kernel = _plain_kernel(self.fn)
        # Effects of one's hook must not reach one without a hook, which is tried first.
        hooked = [config.pre_hook is not None for config in candidates]
        if kernel is None or len(hooked) < 2 or any(hooked) != all(hooked):
            return nullcontext()
        return compile_in_parallel(kernel, self._bindings(args, kwargs, candidates))

    def _bindings(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], candidates: Sequence[Config]
    ) -> Iterator[Callable[[], Any]]:
        """Yield for each trial a launch of no programs, after its hook changed the arguments."""
        for config in candidates:
            self._refuse_conflicts(config, kwargs)
            current = {**kwargs, **config.all_kwargs(), "grid": (0,)}
            if config.pre_hook is not None:
                config.pre_hook({**self._positional(), **current, "grid": kwargs["grid"]})
            yield partial(self.fn.run, *args, **current)

    def _bench(self, *args: Any, config: Config, **meta: Any) -> Any:
        """Time one configuration, in ms by quantile; infinite if it cannot be compiled."""
        self._refuse_conflicts(config, meta)
        current = {**meta, **config.all_kwargs()}
        named = {**self._positional(), **current}

        def call() -> None:
            if config.pre_hook is not None:
                config.pre_hook(named)
            self.pre_hook(named)
            try:
                self.fn.run(*args, **current)
            except Exception as error:
                self.post_hook(named, exception=error)
                raise
            self.post_hook(named, exception=None)

        token = TRYING.set(True)
        try:
            if self._checks_trials():
                # For configurations that are not chosen, it is the only launch that is checked.
                call()
            with timed_launches():
                return self.do_bench(call, quantiles=_QUANTILES)
        except (OutOfResources, CompileError, PTXASError) as error:
            if KNOBS.print_autotuning:
                print(f"Autotuning failed with {error}")
            return [float("inf")] * len(_QUANTILES)
        finally:
            TRYING.reset(token)

    def _checks_trials(self) -> bool:
        """Whether a configuration is launched first to be checked, before it is timed."""
        is_native = current_mode(self.base_fn.__name__) == "native"
        return is_native and KNOBS.check_launches == "all" and self._do_bench is not briefly

    def _refuse_conflicts(self, config: Config, kwargs: Mapping[str, Any]) -> None:
        conflicts = sorted(kwargs.keys() & config.all_kwargs().keys())
        if conflicts:
            raise ConflictingParametersError(
                f"kernel {self.base_fn.__name__}: Conflicting meta-parameters: "
                f"{', '.join(conflicts)}. The launch gives what the tuner sets; leave it out of "
                "the call, or out of the configs"
            )

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The configurations left by `early_config_prune`, then the `top_k` of `perf_model`.

        Raises:
            AutotunerError: none is left, or top_k is neither an int nor a float up to 1.
        """
        pruned = list(self.configs)
        if self.early_config_prune is not None:
            pruned = list(self.early_config_prune(self.configs, self.nargs, **kwargs))
            if not pruned:
                raise AutotunerError(
                    f"kernel {self.base_fn.__name__}: no valid autotuner configs after pruning; "
                    "`early_config_prune` should return at least one"
                )
        if self.perf_model is None:
            return pruned
        keep = self._top_k()
        if len(pruned) <= keep:
            return pruned
        estimates = {
            config: self.perf_model(**self._positional(), **kwargs, **config.all_kwargs())
            for config in pruned
        }
        return sorted(estimates, key=lambda config: estimates[config])[:keep]

    def _top_k(self) -> int:
        top_k = self.configs_top_k
        if isinstance(top_k, float) and top_k <= 1.0:
            # At least one, where upstream would round down to none and fail.
            return max(1, int(len(self.configs) * top_k))
        if isinstance(top_k, int):
            return top_k
        raise AutotunerError(
            f"kernel {self.base_fn.__name__}: top_k: got {top_k!r}, "
            "expected a float up to 1.0 or an int"
        )

    def _refuse_in_captures(self) -> None:
        # Upstream may find the choice on disk with cache_results.
        if not self.cache_results:
            refuse_while_capturing(
                f"kernel {self.base_fn.__name__} is tuned, which waits for the device",
                "launch it once before the capture",
            )

    def _tell_untimed(self, config: Config, candidates: Sequence[Config]) -> None:
        if not KNOBS.quick:
            compiles = " and compiles" if config is not candidates[0] else ""
            self._tell_once(
                f"not timed, as it is interpreted; takes the first of {len(self.configs)} configs "
                f"that survives pruning{compiles} ({config.brief})"
            )

    def _tell_once(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            tell(f"autotune of {self.base_fn.__name__}: {text}")

    def _announce(self, key: tuple[object, ...], config: Config) -> None:
        timings = {str(c): median_ms(timing) for c, timing in self.configs_timings.items()}
        HOOKS.autotuned(AutotuneChoice(self.base_fn.__name__, str(key), str(config), timings))

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile every configuration that survives pruning, and return the kernels."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        try:
            warm_ups = [
                partial(self.fn.warmup, *args, grid=grid, **kwargs, **config.all_kwargs())
                for config in self.prune_configs(kwargs)
            ]
            with self._warmed_up_ahead(warm_ups):
                return [warm_up() for warm_up in warm_ups]
        finally:
            self.nargs = None

    def _warmed_up_ahead(
        self, warm_ups: Sequence[Callable[[], Any]]
    ) -> AbstractContextManager[None]:
        """Compile in parallel what warm-ups in a `with` block compile."""
        kernel = _plain_kernel(self.fn)
        is_native = current_mode(self.base_fn.__name__) == "native"
        if kernel is None or len(warm_ups) < 2 or not is_native:
            return nullcontext()
        return compile_in_parallel(kernel, warm_ups)


def _plain_kernel(kernel: Any) -> JITFunction | None:
    """Return the jit function at the bottom, or None if a launch does more than launch it."""
    own = getattr(kernel, "run", None), getattr(kernel, "warmup", None)
    run, warmup = (getattr(method, "__func__", None) for method in own)
    if warmup is not KernelInterface.warmup:
        return None
    if run is Heuristics.run:
        return _plain_kernel(kernel.fn)
    is_plain = run is JITFunction.run and not kernel.pre_run_hooks
    return kernel if is_plain else None


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Decorator: choose among configurations when a key is first seen.

    Args:
        configs: the candidates.
        key: names of arguments whose change asks for a new choice.
        prune_configs_by: `early_config_prune(configs, named_args, **kwargs)`, which returns
            candidates worth trying; `perf_model(**arguments)`, an estimated time; `top_k`, the
            number of the estimated best to try, a fraction or a count.
        reset_to_zero: arguments zeroed before each trial.
        restore_value: arguments put back after each trial.
        pre_hook: called before each trial with (arguments, reset_only=…), instead of the two above.
        post_hook: called after each trial with (arguments, exception=…).
        warmup: deprecated; milliseconds.
        rep: deprecated; milliseconds.
        use_cuda_graph: deprecated.
        do_bench: times a call: `do_bench(call, quantiles=…)`.
        cache_results: not supported: timings are not kept on disk, and tkdebug says so.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn,
            fn.arg_names,
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate


# The GPU's clocks change while one configuration is timed after the other. Causal attention of head
# size 64 took 377 to 429 TFLOP/s by the same configuration on an H200, and the fastest of six was
# chosen in one of four runs. So close ones are timed again.
# The slowest time that is close, as a multiple of the fastest.
_CLOSE = 1.05
_ROUNDS = 3
# `do_bench` makes some ten calls at least, which of slower ones takes longer than the first time.
_SLOWEST_MS = 5.0
briefly = partial(testing.do_bench, warmup=5, rep=20)


def timed_in_turn(
    timings: Mapping[Config, Any], bench: Callable[[Config], Any]
) -> dict[Config, Any]:
    """Time the configurations that are close to the fastest again, in turn.

    Args:
        timings: the timings of each configuration.
        bench: times one, `briefly`.

    Returns:
        The median of each one's times in several turns; empty if only one is that fast, or all
            are slow.
    """
    least_ms = min(map(median_ms, timings.values()))
    close = [config for config in timings if median_ms(timings[config]) <= _CLOSE * least_ms]
    if len(close) < 2 or least_ms > _SLOWEST_MS:
        return {}
    rounds: dict[Config, list[Any]] = {config: [] for config in close}
    for _ in range(_ROUNDS):
        for config, found in rounds.items():
            found.append(bench(config))
    return {config: sorted(found, key=median_ms)[_ROUNDS // 2] for config, found in rounds.items()}


def median_ms(timing: Any) -> float:
    """Return the median of a configuration's times by quantile, or its only time."""
    return float(timing[0] if isinstance(timing, Sequence) else timing)


def deprecated_timer(
    warmup: int | None, rep: int | None, use_cuda_graph: bool
) -> Callable[[Callable[[], object], Sequence[float]], Any]:
    """Warn of deprecated options, and return the `do_bench` that they ask for.

    Args:
        warmup: milliseconds of warming up; None for the default.
        rep: milliseconds of timing; None for the default.
        use_cuda_graph: whether calls are replayed from a CUDA graph.
    """
    warnings.warn(
        "autotune: warmup, rep and use_cuda_graph are deprecated; pass do_bench=",
        DeprecationWarning,
        stacklevel=4,
    )
    rep_ms = 100 if rep is None else rep
    warmup_ms = 25 if warmup is None else warmup

    def bench(call: Callable[[], object], quantiles: Sequence[float]) -> Any:
        if use_cuda_graph:
            return testing.do_bench_cudagraph(call, rep=rep_ms, quantiles=quantiles)
        return testing.do_bench(call, warmup=warmup_ms, rep=rep_ms, quantiles=quantiles)

    return bench
