"""Upstream's functions around compiles, loads and tuning, which scripts set by `triton.knobs`.

Responsible for when they are called and with what; `compat` has the knobs that set them.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tkdebug.runtime.arguments.specialize import constant_key

if TYPE_CHECKING:
    from tkdebug.records.events import KernelCompiled
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.jit.function_source import KernelFunction
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

CompileFunction = Callable[..., object]
Compile = Callable[["Specialization"], "CompiledKernel"]
_REPR_OPTIONS = (
    *("num_warps", "num_ctas", "num_stages"),
    *("enable_fp_fusion", "launch_cooperative_grid"),
)
LoadFunction = Callable[..., object]
TuneListener = Callable[..., object]


class CompilerAsker(Protocol):
    """Another compiler, as a second opinion."""

    def around(self, compile: Compile, alignment: tuple[Hashable, ...]) -> Compile:
        """Return `compile`, after which that compiler is asked about the same kernel."""

    def wait(self, limit_s: float) -> int:
        """Wait for its answers, and return how many are still missing."""


class JitFunctionInfo(NamedTuple):
    """The function that is compiled, as the hooks get it."""

    module: str
    name: str
    jit_function: KernelFunction


@dataclass
class CompileHooks:
    """The functions that are called around compiles.

    Attributes:
        before: called for a specialisation that is not in the cache; when it returns something
            true the compile is skipped and the launch does nothing.
        after: called when the kernel is compiled.
        listener: called with each compiled kernel and its artifacts.
        asker: asks another compiler about compiled kernels.
    """

    before: CompileFunction | None = None
    after: CompileFunction | None = None
    listener: Callable[[CompiledKernel, KernelCompiled], None] | None = None
    asker: CompilerAsker | None = None

    def skips(self, src: Specialization, key: Hashable, is_warmup: bool) -> bool:
        """Call `before`, and return whether it replaces the compile."""
        if self.before is None:
            return False
        return bool(self.before(**_keywords(src, key, is_warmup)))

    def compiled(self, src: Specialization, key: Hashable, is_warmup: bool) -> None:
        """Call `after`."""
        if self.after is not None:
            self.after(**_keywords(src, key, is_warmup))


COMPILE_HOOKS = CompileHooks()


def _keywords(src: Specialization, key: Hashable, is_warmup: bool) -> dict[str, Any]:
    fn, options = src.fn, src.options
    shown = {name: getattr(options, name) for name in _REPR_OPTIONS}
    types = ", ".join(f"{name}: {kind}" for name, kind in src.signature.items())
    settings = ", ".join(f"{name}={value}" for name, value in shown.items())
    constants = {(fn.arg_names.index(name),): value for name, value in src.constants.items()}
    return {
        "key": key,
        "repr": f"{fn.__qualname__}[{settings}]({types})",
        "fn": JitFunctionInfo(fn.module, fn.__qualname__, fn),
        "compile": {
            "key": key,
            "signature": src.signature,
            "device": 0,
            "constants": constants,
            **shown,
            "extern_libs": options.extern_libs,
            "configs": [src.attrs],
            "specialization_data": _specialization_data(src),
            "is_warmup": is_warmup,
        },
        "is_manual_warmup": is_warmup,
        "already_compiled": False,
    }


def _specialization_data(src: Specialization) -> str:
    """Return the specialisation as JSON, the same for equal specialisations."""
    return json.dumps(
        {
            "name": f"{src.fn.module}.{src.fn.__qualname__}",
            "signature": {name: str(kind) for name, kind in src.signature.items()},
            "constants": {name: repr(constant_key(v)) for name, v in src.constants.items()},
            "options": {name: repr(value) for name, value in src.options.as_dict().items()},
        }
    )


class Loadable(Protocol):
    """A kernel as the hooks get it."""

    module: Any
    function: Any
    name: str
    hash: str


@dataclass
class LoadHooks:
    """The functions that are called around loads of kernels; None for none.

    Attributes:
        before: called before a kernel is loaded on a device, its handles still None.
        after: called with its handles.
        freed: called with the handles of a kernel that nobody can launch any more.
    """

    before: LoadFunction | None = None
    after: LoadFunction | None = None
    freed: LoadFunction | None = None

    def loading(self, kernel: Loadable) -> None:
        """Call `before`."""
        _call_with_kernel(self.before, kernel)

    def loaded(self, kernel: Loadable) -> None:
        """Call `after`, and call `freed` once the kernel is gone."""
        _call_with_kernel(self.after, kernel)
        module, function = kernel.module, kernel.function
        freed = weakref.finalize(
            kernel, self._told_freed, module, function, kernel.name, {}, kernel.hash
        )
        # Not when the process ends: the driver takes everything down by itself.
        freed.atexit = False

    def _told_freed(self, *handles: object) -> None:
        if self.freed is not None:
            self.freed(*handles)


LOAD_HOOKS = LoadHooks()


def _call_with_kernel(function: LoadFunction | None, kernel: Loadable) -> None:
    if function is not None:
        # In upstream's order: module, function, name, files by stage, hash. There are no files.
        function(kernel.module, kernel.function, kernel.name, {}, kernel.hash)


@dataclass
class TuneHooks:
    """The function that is called after a tuner has timed configurations.

    Attributes:
        listener: called with keywords fn, key, best_config, configs_timings (each config's times in
            ms by quantile), duration (in s) and cache_hit, when configurations have been timed.
    """

    listener: TuneListener | None = None


TUNE_HOOKS = TuneHooks()
