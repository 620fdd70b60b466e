"""Upstream's knobs: those with a counterpart read and set it, hooks without one refuse by name.

Knobs that steer upstream's own code generator have its defaults and cannot be changed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tkdebug.compat.triton_api.launch_hooks import HookChain, LaunchHookChain
from tkdebug.errors import UnsupportedError
from tkdebug.knobs import KNOBS
from tkdebug.process.disk_cache import user_cache
from tkdebug.runtime.upstream_hooks import (
    COMPILE_HOOKS,
    LOAD_HOOKS,
    TUNE_HOOKS,
    CompileFunction,
    TuneListener,
)

if TYPE_CHECKING:
    from tkdebug.instrument.profiling.profiler import Profiler

# These belong to the process, as hooks do: they outlive a second import of `triton.knobs`.
LAUNCH_ENTER = LaunchHookChain("enter")
LAUNCH_EXIT = LaunchHookChain("exit")


def _profiler() -> Profiler:
    # Few scripts profile; its records take milliseconds to define.
    from tkdebug.instrument.profiling.profiler import PROFILER

    return PROFILER


def refuse_hook(name: str) -> None:
    """Refuse the hook `name`, which is never called.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        f"triton.knobs.{name} is not called by this version of tkdebug; "
        "use tkdebug.instrument.add_hook (enter, exit, compiled, autotuned, fault)"
    )


class LoadHookChain(HookChain):
    """Functions called when a native kernel is loaded, before or after it, or is freed."""

    def __init__(self, side: Literal["before", "after", "freed"]) -> None:
        super().__init__(reversed=side == "after")
        self._side = side

    def add(self, func: Callable[..., object]) -> None:
        """Append `func`, unless the chain has it already."""
        super().add(func)
        setattr(LOAD_HOOKS, self._side, self)

    def remove(self, func: Callable[..., object]) -> None:
        """Take `func` out, if it is there."""
        super().remove(func)
        if not self.calls:
            setattr(LOAD_HOOKS, self._side, None)


_LOAD_START = LoadHookChain("before")
_LOAD_END = LoadHookChain("after")
_UNLOAD = LoadHookChain("freed")


class KnobGroup:
    """Knobs read and set as attributes; unknown ones are named."""

    _group = ""
    _inert: ClassVar[dict[str, Any]] = {}
    _hooks: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        if name in self._hooks:
            return None
        if name in self._inert:
            return self._inert[name]
        raise AttributeError(
            f"triton.knobs.{self._group} has no {name!r}: tkdebug does not provide it"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
            return
        if name in self._hooks:
            if value is not None:
                refuse_hook(f"{self._group}.{name}")
            return
        if value != getattr(self, name):
            raise UnsupportedError(
                f"triton.knobs.{self._group}.{name} cannot be changed: it steers what upstream has "
                f"and tkdebug does not use (it stays {getattr(self, name)!r})"
            )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Undo changes that are made inside, at the end of the `with` block."""
        compile_hooks, listener = replace(COMPILE_HOOKS), TUNE_HOOKS.listener
        profiler = _profiler()
        profiling_disabled = profiler.disabled
        try:
            with KNOBS.scope(**KNOBS.read_all()):
                yield
        finally:
            COMPILE_HOOKS.before, COMPILE_HOOKS.after = compile_hooks.before, compile_hooks.after
            COMPILE_HOOKS.listener = compile_hooks.listener
            TUNE_HOOKS.listener = listener
            profiler.disabled = profiling_disabled


class RuntimeKnobs(KnobGroup):
    """`triton.knobs.runtime`."""

    _group = "runtime"
    _hooks = frozenset({"add_stages_inspection_hook"})
    kernel_load_start_hook = property(lambda self: _LOAD_START)
    kernel_load_end_hook = property(lambda self: _LOAD_END)
    kernel_unload_hook = property(lambda self: _UNLOAD)

    @property
    def jit_cache_hook(self) -> CompileFunction | None:
        """Function called before a compile, or None; a true result skips the compile."""
        return COMPILE_HOOKS.before

    @jit_cache_hook.setter
    def jit_cache_hook(self, value: CompileFunction | None) -> None:
        COMPILE_HOOKS.before = value

    @property
    def jit_post_compile_hook(self) -> CompileFunction | None:
        """Function called after a compile, or None."""
        return COMPILE_HOOKS.after

    @jit_post_compile_hook.setter
    def jit_post_compile_hook(self, value: CompileFunction | None) -> None:
        COMPILE_HOOKS.after = value

    @property
    def interpret(self) -> bool:
        """Whether kernels are interpreted whatever the device."""
        return KNOBS.mode == "interpret"

    @interpret.setter
    def interpret(self, value: bool) -> None:
        KNOBS.mode = "interpret" if value else "auto"

    @property
    def debug(self) -> bool:
        """Whether kernels are compiled with their checks."""
        return KNOBS.debug

    @debug.setter
    def debug(self, value: bool) -> None:
        KNOBS.debug = bool(value)

    @property
    def override_arch(self) -> str | None:
        """The architecture of launches that name none, as `sm90`; None for the device's."""
        return KNOBS.override_arch

    @override_arch.setter
    def override_arch(self, value: str | None) -> None:
        KNOBS.override_arch = value

    @property
    def launch_enter_hook(self) -> LaunchHookChain:
        """Functions called before each launch."""
        return LAUNCH_ENTER

    @launch_enter_hook.setter
    def launch_enter_hook(self, value: Any) -> None:
        LAUNCH_ENTER.assign(value)

    @property
    def launch_exit_hook(self) -> LaunchHookChain:
        """Functions called after each launch, last added first."""
        return LAUNCH_EXIT

    @launch_exit_hook.setter
    def launch_exit_hook(self, value: Any) -> None:
        LAUNCH_EXIT.assign(value)


class CompilationKnobs(KnobGroup):
    """`triton.knobs.compilation`."""

    _group = "compilation"
    _inert: ClassVar[dict[str, Any]] = {
        "store_binary_only": False,
        "use_ir_loc": None,
        "enable_asan": False,
        "disable_line_info": False,
        "front_end_debugging": False,
        "allow_non_constexpr_globals": False,
        "instrumentation_mode": "",
        "dump_ir_extract_di_local_variables": False,
    }

    @property
    def listener(self) -> Callable[..., object] | None:
        """Function called after each compile, with its stages as files, or None."""
        from tkdebug.compat.triton_api.compile_listener import current_listener

        return current_listener()

    @listener.setter
    def listener(self, value: Callable[..., object] | None) -> None:
        from tkdebug.compat.triton_api.compile_listener import set_listener

        set_listener(value, lambda: CacheKnobs().dir)

    @property
    def always_compile(self) -> bool:
        """Whether compiled kernels on disk are passed over."""
        return KNOBS.always_compile

    @always_compile.setter
    def always_compile(self, value: bool) -> None:
        KNOBS.always_compile = bool(value)

    @property
    def dump_ir(self) -> bool:
        """Whether stages are written to the dump directory."""
        return KNOBS.dump_dir is not None

    @dump_ir.setter
    def dump_ir(self, value: bool) -> None:
        KNOBS.dump_dir = _triton_folder("TRITON_DUMP_DIR", "dump") if value else None

    @property
    def override(self) -> bool:
        """Whether stages are replaced by edited files."""
        return KNOBS.override_dir is not None

    @override.setter
    def override(self, value: bool) -> None:
        KNOBS.override_dir = _triton_folder("TRITON_OVERRIDE_DIR", "override") if value else None


class LanguageKnobs(KnobGroup):
    """`triton.knobs.language`."""

    _group = "language"

    @property
    def default_fp_fusion(self) -> bool:
        """Whether products and sums become FMA where a launch does not say."""
        return KNOBS.default_fp_fusion

    @default_fp_fusion.setter
    def default_fp_fusion(self, value: bool) -> None:
        KNOBS.default_fp_fusion = bool(value)

    @property
    def fp32_default(self) -> str | None:
        """The `input_precision` of fp32 dots that name none; None for tf32."""
        return KNOBS.fp32_default

    @fp32_default.setter
    def fp32_default(self, value: str | None) -> None:
        KNOBS.fp32_default = value


class AutotuningKnobs(KnobGroup):
    """`triton.knobs.autotuning`."""

    _group = "autotuning"
    _inert: ClassVar[dict[str, Any]] = {"cache": False}

    @property
    def listener(self) -> TuneListener | None:
        """Function called when a tuner has timed its configurations, or None."""
        return TUNE_HOOKS.listener

    @listener.setter
    def listener(self, value: TuneListener | None) -> None:
        TUNE_HOOKS.listener = value

    @property
    def print(self) -> bool:
        """Whether tuners print their timings and choice."""
        return KNOBS.print_autotuning

    @print.setter
    def print(self, value: bool) -> None:
        KNOBS.print_autotuning = bool(value)


class CacheKnobs(KnobGroup):
    """`triton.knobs.cache`: directories, as strings."""

    _group = "cache"
    _inert: ClassVar[dict[str, Any]] = {"manager_class": None, "remote_manager_class": None}

    @property
    def home_dir(self) -> str:
        """The folder in which `.triton` is."""
        return os.environ.get("TRITON_HOME") or os.path.expanduser("~")

    @property
    def dir(self) -> str:
        """The directory of compiled kernels."""
        return str(KNOBS.cache_dir or user_cache())

    @dir.setter
    def dir(self, value: str) -> None:
        KNOBS.cache_dir = Path(value)

    @property
    def dump_dir(self) -> str:
        """The directory that receives stages."""
        return str(KNOBS.dump_dir or _triton_folder("TRITON_DUMP_DIR", "dump"))

    @dump_dir.setter
    def dump_dir(self, value: str) -> None:
        KNOBS.dump_dir = Path(value)

    @property
    def override_dir(self) -> str:
        """The directory of edited stages."""
        return str(KNOBS.override_dir or _triton_folder("TRITON_OVERRIDE_DIR", "override"))

    @override_dir.setter
    def override_dir(self, value: str) -> None:
        KNOBS.override_dir = Path(value)


class ProtonKnobs(KnobGroup):
    """`triton.knobs.proton`; ranges of NVTX are no scopes here."""

    _group = "proton"
    _inert: ClassVar[dict[str, Any]] = {"enable_nvtx": False}

    @property
    def disable(self) -> bool:
        """Whether `proton.start` does nothing."""
        return _profiler().disabled

    @disable.setter
    def disable(self, value: bool) -> None:
        _profiler().disabled = bool(value)


class InertKnobs(KnobGroup):
    """A group of knobs that only upstream's compiler reads."""

    def __init__(self, group: str, **defaults: Any) -> None:
        object.__setattr__(self, "_group", group)
        object.__setattr__(self, "_inert", defaults)


def build_knobs() -> InertKnobs:
    """Return the knobs of upstream's C compiler."""
    return InertKnobs("build", cc=None, cudacrt_path=None, cudart_path=None, impl=None)


def nvidia_knobs() -> InertKnobs:
    """Return the knobs of upstream's code generator for NVIDIA GPUs."""
    return InertKnobs("nvidia", dump_nvptx=False, disable_ptxas_opt=False, libdevice_path=None)


def amd_knobs() -> InertKnobs:
    """Return the knobs of upstream's code generator for AMD GPUs."""
    return InertKnobs("amd", use_buffer_ops=True, libhip_path=None)


def _triton_folder(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable) or os.path.expanduser(f"~/.triton/{folder}"))
