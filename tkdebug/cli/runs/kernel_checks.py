"""How the kernels of a run are run, and what is looked for in them."""

from __future__ import annotations

from tkdebug.checks import NO_CHECKS
from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import ModeName


def is_upstream(arguments: Arguments) -> bool:
    """Whether an installed Triton compiles and launches kernels."""
    return (arguments.compiler or KNOBS.compiler) == "triton"


def mode_of(arguments: Arguments) -> ModeName:
    """How kernels run; what is to be checked has to be interpreted."""
    mode = arguments.mode or KNOBS.mode
    if is_upstream(arguments) and mode == "auto":
        return "native"
    asks = any(name != NO_CHECKS for name in arguments.checks)
    return "interpret" if asks and mode == "auto" else mode


def checks_of(arguments: Arguments) -> tuple[str, ...]:
    """The checks of interpreted kernels: those that are on by default, and those asked for."""
    from tkdebug.runtime.device.default_checks import with_defaults

    return with_defaults(arguments.checks or KNOBS.checks, mode_of(arguments))
