"""`torch.compile` where a CUDA device is usable: Inductor's kernels are compiled by tkdebug.

Inductor asks `triton.compile` for each kernel and launches the result; that much is upstream's
interface. This package adds the rest: kernels are compiled in this process, as sessions hear of
them here, generated code names the model's lines, and a user's kernels in a graph are checked as
others are. Without a device, `cuda_standin.compiling` has Inductor's kernels interpreted.
"""

# ruff: noqa: SLF001 (torch's compiler has only private names for what is replaced here)
from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from tkdebug.compat.inductor.compiles import WANTED, CodePool, Wanted, wanted_for
from tkdebug.compat.inductor.model_lines import (
    calling_frame,
    forget_triton,
    launched_from,
    note_lines,
)
from tkdebug.compat.inductor.user_kernels import analyse_user_kernels
from tkdebug.compat.replacements import Replacements, set_option
from tkdebug.errors import UnsupportedError
from tkdebug.runtime.device.modes import timed_launches


def prepare(replacements: Replacements) -> None:
    """Replace the functions of torch's compiler that launch or cache kernels.

    Raises:
        ImportError: torch has other modules.
        AttributeError: torch has other names.
    """
    forget_triton()
    replacements.on_restore(forget_triton)
    _compile_here(replacements)
    look_unnoted(replacements)
    _compile_for(replacements)
    _key_by_lines(replacements)
    analyse_user_kernels(replacements)
    note_lines(replacements)


def _compile_here(replacements: Replacements) -> None:
    """Make torch compile kernels in this process and launch them by tkdebug."""
    from torch._inductor import async_compile, config

    @functools.lru_cache(1)
    def pool() -> CodePool:
        return CodePool(async_compile.get_compile_threads())

    replacements.set(async_compile.AsyncCompile, "process_pool", staticmethod(pool))
    # Torch's own launcher takes a cubin, of which sessions, checks and crashes would not hear.
    set_option(replacements, config, "use_static_cuda_launcher", False)


def _compile_for(replacements: Replacements) -> None:
    """Mark compiles and launches with their purpose: whose kernel, which device, a benchmark."""
    import torch
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    begin: Any = CachingAutotuner.__init__
    precompile: Any = CachingAutotuner._precompile_config
    bench: Any = CachingAutotuner.bench
    run: Any = CachingAutotuner.run

    @functools.wraps(begin)
    def of_user(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        if self.custom_kernel:
            # An attribute of the few, so that the launches of others cost no more.
            vars(self)["run"] = functools.partial(_run_from_line, functools.partial(run, self))

    @functools.wraps(precompile)
    def on_its_device(self: Any, config: Any) -> Any:
        if self.inductor_meta.get("store_cubin"):
            raise UnsupportedError(
                "kernels of Inductor's C++ wrapper and of ahead-of-time packages are not "
                "launched by tkdebug; leave cpp_wrapper out, or compile the package without tkdebug"
            )
        wanted = WANTED.get() or Wanted(bool(self.custom_kernel))
        with torch.cuda.device(self.triton_meta.get("device") or 0), wanted_for(wanted):
            return precompile(self, config)

    @functools.wraps(bench)
    def unchecked(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with timed_launches():
            return bench(self, *arguments, **keywords)

    replacements.set(CachingAutotuner, "__init__", of_user)
    replacements.set(CachingAutotuner, "_precompile_config", on_its_device)
    replacements.set(CachingAutotuner, "bench", unchecked)


def _run_from_line(run: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    with launched_from(calling_frame()):
        return run(*arguments, **keywords)


def _key_by_lines(replacements: Replacements) -> None:
    """Add the model's lines, which generated code names, to the keys of Inductor's caches."""
    from torch._inductor.codecache import CacheBase, FxGraphHashDetails

    # Its result names the Triton that was there before, if something was compiled with that.
    CacheBase.get_system.cache_clear()
    replacements.on_restore(CacheBase.get_system.cache_clear)

    begin: Any = FxGraphHashDetails.__init__

    @functools.wraps(begin)
    def with_lines(self: Any, gm: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, gm, *arguments, **keywords)
        self.tkdebug_lines = _lines_of(gm)

    replacements.set(FxGraphHashDetails, "__init__", with_lines)


def _lines_of(graph: Any) -> str:
    """A digest of the lines of a graph's nodes."""
    traces = "\n".join(str(node.meta.get("stack_trace")) for node in graph.graph.nodes)
    return hashlib.sha256(traces.encode()).hexdigest()


def look_unnoted(replacements: Replacements) -> None:
    """Let Inductor read addresses of inputs without the functions that note such reads."""
    import torch
    from torch._inductor import compile_fx, cudagraph_trees, utils

    copy_misaligned: Any = utils.copy_misaligned_inputs
    data_ptr = torch._C.TensorBase.data_ptr
    alignment = utils.ALIGNMENT

    @functools.wraps(copy_misaligned)
    def copied(inputs: list[Any], places: Sequence[int], *rest: Any, **options: Any) -> Any:
        try:
            for place in places:
                if data_ptr(inputs[place]) % alignment:
                    break
            else:
                return [], []
        except TypeError:
            pass  # no tensor, which torch says itself
        return copy_misaligned(inputs, places, *rest, **options)

    for module in (utils, compile_fx, cudagraph_trees):
        replacements.set(module, "copy_misaligned_inputs", copied)
