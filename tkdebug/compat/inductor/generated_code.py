"""Has Inductor write beside its kernels which lines of the model they compute."""

from __future__ import annotations

import functools
from typing import Any

from tkdebug.compat.inductor.model_lines import (
    at_model_line,
    origins_in,
    origins_of,
    with_origins,
)
from tkdebug.compat.replacements import Replacements
from tkdebug.findings.reporting import REFINEMENTS
from tkdebug.instrument.analyses.compiled_models import ModelLines
from tkdebug.records.hook_chain import HOOKS

# On a user's kernel in a graph: the node that launches it.
_NODE = "_tkdebug_node"


def forget_triton() -> None:
    """Let torch look for Triton again, which comes and goes with an installation of tkdebug."""
    from torch.utils import _triton

    for function in vars(_triton).values():
        if callable(getattr(function, "cache_clear", None)):
            function.cache_clear()


def note_lines(patches: Replacements) -> None:
    """Write the model's lines into generated code, and find them there for faults."""
    _note_of_kernels(patches)
    _note_of_user_kernels(patches)
    _record_of_kernels(patches)
    REFINEMENTS.append(at_model_line)
    patches.on_restore(lambda: REFINEMENTS.remove(at_model_line))


def _note_of_kernels(patches: Replacements) -> None:
    from torch._inductor.codegen.triton import TritonScheduling

    define: Any = TritonScheduling.define_kernel

    @functools.wraps(define)
    def with_lines(self: Any, src_code: str, node_schedule: Any, *rest: Any) -> Any:
        nodes = [each for each in node_schedule if getattr(each, "node", None) is not None]
        origins = [origin for each in nodes for origin in each.node.origins]
        return define(self, with_origins(src_code, origins), node_schedule, *rest)

    patches.set(TritonScheduling, "define_kernel", with_lines)


def _record_of_kernels(patches: Replacements) -> None:
    """Record the lines of each kernel that is loaded, also of one from a cache."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    begin: Any = CachingAutotuner.__init__

    @functools.wraps(begin)
    def recorded(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        if HOOKS.recorders and self.filename is not None and not self.custom_kernel:
            origins = origins_in(self.filename)
            if origins:
                ops = tuple(origin.op for origin in origins)
                frames = tuple(origin.frame for origin in origins)
                HOOKS.record(ModelLines(self.fn.__name__, ops, frames))

    patches.set(CachingAutotuner, "__init__", recorded)


def _note_of_user_kernels(patches: Replacements) -> None:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    user_kernel: Any = ir.UserDefinedTritonKernel
    lower: Any = user_kernel.__init__
    launch: Any = user_kernel.codegen

    @functools.wraps(lower)
    def of_its_node(self: Any, *arguments: Any, **keywords: Any) -> None:
        # Its origins are also those of what it reads.
        vars(self)[_NODE] = V.graph.current_node
        lower(self, *arguments, **keywords)

    @functools.wraps(launch)
    def after_its_line(self: Any, wrapper: Any) -> None:
        for origin in origins_of([vars(self)[_NODE]]):
            wrapper.writeline(str(origin))
        launch(self, wrapper)

    patches.set(ir.UserDefinedTritonKernel, "__init__", of_its_node)
    patches.set(ir.UserDefinedTritonKernel, "codegen", after_its_line)
