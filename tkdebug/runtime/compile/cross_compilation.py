"""Compiles interpreted kernels for an architecture as well, to show their stages.

In force if the knob `cross_compile` names an architecture. Nothing compiled so is launched; a
kernel that does not compile is reported to hooks like any other, and the interpreted launch goes
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.errors import TkError, UnsupportedError, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.arguments.specialize import alignment_key
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.runtime.compile.native_compilation import NativeCompilation


def obstacle(target: str) -> str | None:
    """Return why this machine cannot generate code for an architecture, or None if it can."""
    from tkdebug.compiler.targets.registered_backends import backend_of, target_of

    return backend_of(target_of(target)).obstacle()


@cache
def tell_unsupported(target: str) -> None:
    """Report once that kernels are interpreted, as nothing is compiled for the GPU."""
    from tkdebug.compiler.targets.registered_backends import unsupported_gpu

    tell(f"{unsupported_gpu(target)}; kernels are interpreted and not compiled for it")


def cross_compile(
    src: Specialization, values: Sequence[Any], seen: dict[object, NativeCompilation | None]
) -> NativeCompilation | None:
    """Compile a kernel that is about to be interpreted for `KNOBS.cross_compile` too.

    Watches change the interpreted kernel, not this one: it is the kernel that would run.

    Args:
        src: the kernel's specialisation.
        values: the launch's values, whose alignment native code knows.
        seen: the specialisations that this kernel was compiled for already; added to.

    Returns:
        The compile; None if there was none, or it failed.

    Raises:
        UsageError: tkdebug compiles for no such architecture.
    """
    target = KNOBS.cross_compile
    key = (target, alignment_key(src.fn.params, values))
    if target is None or key in seen:
        return seen.get(key)
    seen[key] = None
    from tkdebug.compiler.targets.registered_backends import target_of, targets, unsupported_gpu
    from tkdebug.runtime.checked.builds import check_options
    from tkdebug.runtime.compile.native_compilation import NativeCompilation

    if unsupported_gpu(target) is not None:
        tell_unsupported(target)
        return None
    try:
        target_of(target)
    except UnsupportedError:
        raise UsageError(
            f"TKDEBUG_CROSS_COMPILE: got {target!r}, expected one of {', '.join(targets())}"
        ) from None
    options = src.options if src.options.arch else replace(src.options, arch=target)
    wanted = replace(src, alignment=key[1], options=options, checks=None)
    try:
        compilation = NativeCompilation(wanted, 0)
        compilation.finish()
        seen[key] = compilation
        checks = check_options(src.fn.__name__) if KNOBS.check_launches == "all" else None
        if checks is not None:
            NativeCompilation(replace(wanted, checks=checks), 0).finish()
    except TkError as error:
        tell(f"{src.fn.__name__} for {target}: {error}")
    except Exception as error:
        # A mistake of the compiler's must not keep a kernel from being interpreted.
        reason = f"mistake in tkdebug: {type(error).__name__}: {error}"
        tell(f"{src.fn.__name__} for {target}: {reason}")
    return seen[key]
