"""`--compiler triton`: an installed Triton stays in place, and tkdebug's hooks hear of its kernels.

Upstream's own hooks stay the script's: tkdebug replaces the functions that make its compiled
kernels and their launchers, so that it hears of kernels that torch's compiler launches, too.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from tkdebug.compat.after_torch import after_import
from tkdebug.compat.replacements import Replacements, set_option
from tkdebug.compat.upstream.kernel import UpstreamKernel
from tkdebug.compat.upstream.pass_dumps import VARIABLE, caught_dumps
from tkdebug.records.hook_chain import HOOKS


class UpstreamRecorded:
    """The replacements in Triton, in force from its import until `restore`."""

    def __init__(self) -> None:
        self._replacements = Replacements()
        self._wanted = True
        after_import("triton", self._replace)
        after_import("torch._inductor.config", self._launch_by_triton)

    def _replace(self) -> None:
        if self._wanted:
            _record_compiles(self._replacements)
            _record_launches(self._replacements)

    def _launch_by_triton(self) -> None:
        """Leave out torch's own launcher of cubins, and kernels of it that Inductor has cached.

        It takes neither Triton's compiled kernels nor their launchers, so nobody would hear of its
        launches.
        """
        if self._wanted:
            from torch._inductor import config

            set_option(self._replacements, config, "use_static_cuda_launcher", False)

    def restore(self) -> None:
        """Put upstream's own back; a second call does nothing."""
        self._wanted = False
        self._replacements.restore()


def _record_compiles(replacements: Replacements) -> None:
    import triton
    import triton.compiler.compiler as compiler

    compile: Callable[..., Any] = compiler.compile

    @functools.wraps(compile)
    def announced(*arguments: Any, **keywords: Any) -> Any:
        if not HOOKS.wants_compiled():
            return compile(*arguments, **keywords)
        began_ns = time.time_ns()
        dumped = os.environ.get(VARIABLE) == "1"
        with caught_dumps(dumped) as dumps:
            made = compile(*arguments, **keywords)
        took_ns = time.time_ns() - began_ns
        is_cached = _written_ns(made.metadata_group) < began_ns
        HOOKS.compiled(UpstreamKernel(made).compiled(took_ns, is_cached, dumps))
        return made

    for owner in (compiler, triton.compiler, triton):
        replacements.set(owner, "compile", announced)


def _record_launches(replacements: Replacements) -> None:
    import triton.compiler.compiler as compiler
    from triton.runtime.driver import driver

    load: Any = compiler.CompiledKernel._init_handles  # noqa: SLF001  (makes the launcher)

    @functools.wraps(load)
    def loaded(self: Any) -> None:
        before = self._run
        load(self)
        if self._run is not before:
            self._run = UpstreamKernel(self).recorded(self._run, driver.active.get_current_device())

    replacements.set(compiler.CompiledKernel, "_init_handles", loaded)


def _written_ns(files: Any) -> int:
    """Return when the last of a kernel's files was written."""
    found = []
    for file in dict(files).values():
        try:
            found.append(os.stat(file).st_mtime_ns)
        except OSError:
            continue
    return max(found, default=0)
