"""The checks of interpreted kernels: those that are on by default, and those asked for."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.checks import DEFAULT_CHECKS, NO_CHECKS
from tkdebug.knobs.values import ModeName
from tkdebug.runtime.device.platform import platform_in_force


def with_defaults(asked: Sequence[str], mode: ModeName) -> tuple[str, ...]:
    """What is looked for where `asked` is asked for; `none` among it leaves out the defaults.

    There are no defaults where kernels probably run on a GPU: those are not checked, and some
    checks fill fresh tensors, which takes time there too.
    """
    names = tuple(dict.fromkeys(name for name in asked if name != NO_CHECKS))
    if NO_CHECKS in asked:
        return names
    if mode == "native" or (mode == "auto" and platform_in_force().is_likely()):
        return names
    return tuple(dict.fromkeys((*DEFAULT_CHECKS, *names)))
