"""Adapters for unmodified scripts: a `triton` that is tkdebug, a CUDA device that is the CPU.

`install` puts both in place, in this process and in the Python processes it starts, and
`uninstall` takes both away. The meaning of kernels is the compiler's, their launches are the
runtime's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.checks import MARKING_CHECKS, modules_of
from tkdebug.compat.replacements import Environment, InPlace
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import MODE_NAMES, ModeName
from tkdebug.process.apart_imports import import_apart
from tkdebug.records.hook_chain import HOOKS, LaunchDebugger
from tkdebug.runtime.device.torch_package import check_installed

if TYPE_CHECKING:
    from tkdebug.causes.mismatch import Mismatches

__all__ = ["install"]


def _installed(
    mode: ModeName,
    quick: bool,
    interpret: tuple[str, ...],
    checks: tuple[str, ...],
    triton: str | None,
) -> InPlace:
    from tkdebug.compat import children, cuda_standin
    from tkdebug.compat.finder import InstalledFinder
    from tkdebug.runtime.device.modes import with_defaults
    from tkdebug.runtime.device.platform import platform_in_force

    with ExitStack() as undo:
        changes: dict[str, object] = {"mode": mode, "quick": quick or KNOBS.quick}
        if triton is not None:
            changes["triton_version"] = triton
        patterns = interpret or KNOBS.interpret_kernels
        checks = with_defaults(checks or KNOBS.checks, mode)
        undo.enter_context(KNOBS.scope(interpret_kernels=patterns, checks=checks, **changes))
        if KNOBS.ask_triton is not None:
            # Ended last: everything else stays in force while answers are waited for.
            from tkdebug.compat.upstream.asking.asker import asking

            undo.callback(asking(KNOBS.ask_triton)[1])
        undo.callback(InstalledFinder().uninstall)
        undo.callback(stop_at_breakpoints())
        is_stand_in = mode != "native" and not cuda_standin.cuda_usable()
        if is_stand_in:
            undo.callback(cuda_standin.install().uninstall)
        if mode != "native" or KNOBS.check_launches != "none":
            from tkdebug.interpreter.memory.address_registry import watch_addresses

            undo.callback(watch_addresses())
        if mode != "native":
            undo.callback(_report_mismatches())
        _mark_memory(undo, mode, checks)
        if is_stand_in or mode == "interpret":
            # With torch, rather than while the first launch waits for them.
            import_apart(*modules_of(checks))
        if not is_stand_in:
            from tkdebug.compat.inductor import CompilesNatively

            undo.callback(CompilesNatively().restore)
            platform_in_force().announce_with_torch()
            looks = KNOBS.watches or KNOBS.instrumentations or KNOBS.timelines
            if KNOBS.check_launches != "none" or looks:
                from tkdebug.compat.around_torch.checked_synchronisations import (
                    collect_at_synchronisations,
                )

                undo.callback(collect_at_synchronisations())
        variables = children.environment(mode, KNOBS.quick, patterns, checks, is_stand_in)
        undo.callback(Environment(variables).restore)
        return InPlace(undo)


def _report_mismatches() -> Callable[[], None]:
    """Report failed comparisons of tensors that interpreted launches wrote; return how to stop."""
    from tkdebug.causes.launches import RememberedLaunches
    from tkdebug.compat.around_torch.failed_comparisons import watch_failures

    launches = HOOKS.follower = RememberedLaunches()

    @cache
    def mismatches() -> Mismatches:
        # Most runs have none: they do not wait for what looks for causes.
        import_apart("tkdebug.causes.mismatch")
        from tkdebug.causes.mismatch import Mismatches

        return Mismatches(launches)

    forget = watch_failures(lambda comparison: mismatches().failed(comparison))

    def end() -> None:
        forget()
        HOOKS.follower = None

    return end


def _mark_memory(undo: ExitStack, mode: ModeName, checks: tuple[str, ...]) -> None:
    """Mark fresh memory for the checks of uninitialised reads and of gaps in outputs."""
    if MARKING_CHECKS.intersection(checks):
        from tkdebug.compat.around_torch.unwritten_memory import mark_empties

        undo.callback(mark_empties())
    if mode != "native" and "unwritten-output" in checks:
        from tkdebug.compat.around_torch.unwritten_memory import watch_gaps

        undo.callback(watch_gaps())


def install(
    mode: ModeName,
    quick: bool = False,
    interpret: Sequence[str] = (),
    checks: Sequence[str] = (),
    triton: str | None = None,
    compiler: str | None = None,
) -> InPlace:
    """Make `import triton` give tkdebug, and CUDA the CPU where there is no CUDA device.

    Args:
        mode: how kernels run: auto, interpret or native.
        quick: `do_bench` runs once, sweeps take their first x value.
        interpret: patterns of kernel names that are interpreted whatever the mode.
        checks: fault kinds that interpreted kernels are checked for besides the default ones;
            `none` leaves the default ones out.
        triton: the version of Triton to imitate, such as "3.8"; None for the knob's.
        compiler: the compiler of kernels: "tkdebug", or "triton" for the installed Triton, which is
            not replaced then; None for the knob's.

    Returns:
        The installation: a context manager, or call its `uninstall`.

    Raises:
        UsageError: there is no such mode, no torch, or no Triton that can compile.
    """
    check_installed()
    if (compiler or KNOBS.compiler) == "triton":
        return _install_upstream(quick)
    if mode not in MODE_NAMES:
        raise UsageError(f"mode: got {mode!r}, expected one of {', '.join(MODE_NAMES)}")
    return _installed(mode, quick, tuple(interpret), tuple(checks), triton)


def _install_upstream(quick: bool) -> InPlace:
    """Make an installed Triton the compiler, in this process and in those it starts.

    Args:
        quick: whether `do_bench` is to run once.

    Raises:
        UsageError: there is no Triton that can compile.
    """
    from tkdebug.compat import children
    from tkdebug.compat.upstream.installed import installed_triton
    from tkdebug.compat.upstream.recording import UpstreamRecorded
    from tkdebug.runtime.device.platform import platform_in_force

    installed_triton()
    with ExitStack() as undo:
        undo.enter_context(
            KNOBS.scope(mode="native", compiler="triton", quick=quick or KNOBS.quick)
        )
        undo.callback(UpstreamRecorded().restore)
        platform_in_force().announce_with_torch()
        variables = children.environment("native", KNOBS.quick, (), (), False)
        undo.callback(Environment(variables).restore)
        return InPlace(undo)


def stop_at_breakpoints() -> Callable[[], None]:
    """Open the console where a kernel calls `breakpoint()`; return a function that ends that."""
    made: list[LaunchDebugger] = []

    def break_into() -> LaunchDebugger | None:
        # Once, so that `detach` is for all later kernels.
        if not made and (found := _console()) is not None:
            made.append(found)
        return made[0] if made else None

    HOOKS.break_into = break_into

    def restore() -> None:
        HOOKS.break_into = None

    return restore


def _console() -> LaunchDebugger | None:
    """Return a debugger of this and all later launches on this terminal; None without one."""
    streams = (sys.stdin, sys.stdout)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    # Imported at the first stop in a kernel only.
    from tkdebug.debugger.console.terminal import terminal_console
    from tkdebug.debugger.engine import Debugger

    console = terminal_console()
    debugger = Debugger(console)
    console.attach(debugger)
    debugger.attach()
    return debugger
