"""How the kernels of a run are run, and what is looked for in them."""

from __future__ import annotations

from tkdebug.cli.arguments import Arguments
from tkdebug.knobs import DEFAULT_CHECKS, KNOBS, ModeName


def mode_of(arguments: Arguments) -> ModeName:
    """How kernels run; what is to be checked has to be interpreted."""
    mode = arguments.mode or KNOBS.mode
    return "interpret" if arguments.checks and mode == "auto" else mode


def checks_of(arguments: Arguments) -> tuple[str, ...]:
    """The checks of interpreted kernels: those that are on by default, and those asked for.

    On a GPU the latter alone: native kernels are not checked, and some checks fill fresh tensors,
    which takes time there too.
    """
    from tkdebug.runtime.device.platform import platform_in_force

    asked = arguments.checks or KNOBS.checks
    mode = mode_of(arguments)
    if mode == "native" or (mode == "auto" and platform_in_force().is_likely()):
        return asked
    return tuple(dict.fromkeys((*DEFAULT_CHECKS, *asked)))
