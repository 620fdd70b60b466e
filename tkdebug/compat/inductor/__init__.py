"""Adapters for Inductor, the compiler of `torch.compile`: its kernels, their lines, launches.

This module only waits for the first use of torch's compiler.
"""

from __future__ import annotations

import functools
from typing import Any

from tkdebug.compat.after_torch import after_torch
from tkdebug.compat.replacements import Replacements


class CompilesNatively:
    """Prepares torch's compiler when it is first used, from when torch is imported to `restore`."""

    def __init__(self) -> None:
        self._replacements = Replacements()
        self._wanted = True
        after_torch(self._replace)

    def _replace(self) -> None:
        if self._wanted:
            _prepare_at_first_use(self._replacements)

    def restore(self) -> None:
        """Put torch's own back; a second call does nothing."""
        self._wanted = False
        self._replacements.restore()


def _prepare_at_first_use(replacements: Replacements) -> None:
    import torch
    import torch.export

    @functools.cache
    def prepare() -> str:
        # They import the compiler, and `install` does not wait for that.
        from tkdebug.compat.inductor import native, uncompiled

        try:
            native.prepare(replacements)
        except (ImportError, AttributeError) as error:
            return uncompiled.report_unknown_compiler(str(error))
        return ""

    compile, export = torch.compile, torch.export.export

    @functools.wraps(compile)
    def compile_prepared(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
        # A backend of the script's own may call Inductor; others write no Triton kernels.
        may_write = backend == "inductor" or not isinstance(backend, str)
        reason = prepare() if may_write else ""
        if reason and backend == "inductor":
            from tkdebug.compat.inductor.uncompiled import as_written

            return as_written(model, reason)
        return compile(model, backend=backend, **options)

    @functools.wraps(export)
    def export_prepared(*arguments: Any, **options: Any) -> Any:
        prepare()
        return export(*arguments, **options)

    replacements.set(torch, "compile", compile_prepared)
    replacements.set(torch.export, "export", export_prepared)
