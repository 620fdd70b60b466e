"""Launches of the kernels that Inductor has settled on, without what it looks at each time.

`CachingAutotuner.run` asks at each launch whether there is anything to tune, to dump or to save,
which takes as long as the launch itself, and then calls a generated function, which computes the
grid and calls `CompiledKernel.run`. Once all of that is answered, one generated function takes the
place of the three. Torch's profiler, debug modes and keywords go the way of torch; a launch with
hooks goes the way of `CompiledKernel.run`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.dtypes import pointer_type
from tkdebug.hook_chain import HOOKS
from tkdebug.runtime.launch.native_kernel import NativeKernel

if TYPE_CHECKING:
    from tkdebug.compat.replacements import Replacements

Run = Callable[..., Any]
# Begins the names that no parameter has, where the text has `@`.
PREFIX = "_tk_"
_PARTS = "tkdebug_parts"
# Of what a launcher calls: the grid, the stream, and five things that are not looked at.
_BEFORE_ARGUMENTS = 9
_TEXT = """\
def @direct({taken}*, stream, **@keywords):
    if @keywords or @profiler._is_profiler_enabled or @debug_mode() is not None:
        return @run({taken}stream=stream, **@keywords)
{statements}\
    @x = {x}
    @y = {y}
    @z = {z}
    if @hooks.launch or {is_empty}:
        return @launch(@x, @y, @z, stream, None, None, None, None, None, {passed})
    try:
{addresses}\
    except TypeError:
        return @launch(@x, @y, @z, stream, None, None, None, None, None, {passed})
    @submit(@x, @y, @z, stream, {submitted})
"""


@dataclass(frozen=True, slots=True)
class LauncherParts:
    """What Inductor generates a launcher of.

    Attributes:
        kernel: the one that it launches.
        grid: statements, then the texts of x, y and z.
        parameters: names of what the launcher takes, but for the stream.
        arguments: texts of what the kernel is passed, one for each of its parameters.
        scope: what these texts may name.
    """

    kernel: NativeKernel
    grid: tuple[Sequence[str], str, str, str]
    parameters: Sequence[str]
    arguments: Sequence[str]
    scope: dict[str, Any]


def run_directly(replacements: Replacements) -> None:
    """Give each autotuner that has settled a `run` of its own."""
    from torch._inductor.runtime import triton_heuristics as heuristics

    result, autotuner = heuristics.CompileResult, heuristics.CachingAutotuner
    generate: Any = result._gen_launcher_code  # noqa: SLF001  (torch has no public name)
    run: Any = autotuner.run

    @functools.wraps(generate)
    def with_parts(self: Any, scope: Any, parameters: Any, arguments: Any) -> Any:
        launcher = generate(self, scope, parameters, arguments)
        if isinstance(scope.get("bin"), NativeKernel):
            grid = heuristics.GridExpr.from_meta(self.inductor_meta, self.config)
            texts = tuple(grid.prefix), str(grid.x_grid), str(grid.y_grid), str(grid.z_grid)
            passed = tuple(map(str, arguments[_BEFORE_ARGUMENTS:]))
            parts = LauncherParts(scope["bin"], texts, tuple(parameters), passed, scope)
            setattr(launcher, _PARTS, parts)
        return launcher

    @functools.wraps(run)
    def run_and_settle(self: Any, *arguments: Any, **keywords: Any) -> Any:
        done = run(self, *arguments, **keywords)
        # What is derived from it runs its own way, around this.
        parts = settled(self) if type(self) is autotuner else None
        if parts is not None:
            vars(self)["run"] = direct_run(parts, functools.partial(run, self))
        return done

    replacements.set(result, "_gen_launcher_code", with_parts)
    replacements.set(autotuner, "run", run_and_settle)


def settled(autotuner: Any) -> LauncherParts | None:
    """The parts of the launcher that all launches of an autotuner use from now on.

    None where there is no such launcher, or where checks look at its launches.
    """
    if len(autotuner.launchers) != 1:
        return None
    (launcher,) = autotuner.launchers
    parts: LauncherParts | None = getattr(launcher, _PARTS, None)
    # While a kernel is looked at it has a `run` for that.
    if parts is None or parts.kernel.is_looked_at:
        return None
    if hasattr(autotuner, "_cached_launcher"):
        # Torch 2.13 has a short way as well, and knows when it may be taken.
        return parts if autotuner._cached_launcher is launcher else None  # noqa: SLF001
    dumps = ("triton_interpret", "dump_launch_params", "dump_launch_tensors")
    is_looked_at = any(getattr(autotuner, name, False) for name in dumps)
    return None if is_looked_at or launcher.store_cubin else parts


def direct_run(parts: LauncherParts, run: Run) -> Run:
    """The function that launches, with the arguments of `CachingAutotuner.run`.

    Args:
        parts: of the launcher.
        run: torch's own, for an autotuner that it is bound to.
    """
    import torch
    from torch.autograd import profiler
    from torch.utils._debug_mode import get_active_debug_mode

    own = {
        "run": run,
        "launch": parts.kernel.run,
        "submit": parts.kernel.submit,
        "data_ptr": torch._C.TensorBase.data_ptr,  # noqa: SLF001  (as native launches do)
        "hooks": HOOKS,
        "profiler": profiler,
        "debug_mode": get_active_debug_mode,
    }
    namespace = {**parts.scope, **{f"{PREFIX}{name}": value for name, value in own.items()}}
    text = direct_text(parts)
    exec(compile(text, f"<run of {parts.kernel.name}>", "exec"), namespace)
    direct: Run = namespace[f"{PREFIX}direct"]
    return direct


def direct_text(parts: LauncherParts) -> str:
    """The source of the function."""
    prefix, *grid = parts.grid
    addresses, submitted = _submitted(parts)
    x, y, z = grid
    return _TEXT.replace("@", PREFIX).format(
        taken="".join(f"{name}, " for name in parts.parameters),
        passed="".join(f"{text}, " for text in parts.arguments),
        statements="".join(f"    {line}\n" for line in prefix),
        **{"x": x, "y": y, "z": z},
        is_empty=_is_empty(grid),
        addresses=addresses,
        submitted=submitted,
    )


def _is_empty(grid: Sequence[str]) -> str:
    """A text of whether there is no program; axes that are numbers are known."""
    axes = zip("xyz", grid, strict=True)
    unknown = [f"{PREFIX}{axis} <= 0" for axis, text in axes if not text.isdigit()]
    return " or ".join(unknown) or str(not all(map(int, grid)))


def _submitted(parts: LauncherParts) -> tuple[str, str]:
    """Statements that take addresses of tensors, and texts of what `submit` is passed."""
    source = parts.kernel.src
    addresses, submitted = [], []
    for text, spec, parameter in zip(parts.arguments, source.specs, source.fn.params, strict=True):
        if parameter.is_constexpr:
            continue
        if isinstance(spec, pointer_type):
            address = f"{PREFIX}p{parameter.num}"
            addresses.append(f"        {address} = {PREFIX}data_ptr({text})\n")
            submitted.append(f"{address}, ")
        else:
            submitted.append(f"{text}, ")
    return "".join(addresses) or "        pass\n", "".join(submitted)
