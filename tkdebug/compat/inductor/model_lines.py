"""Finds the lines of the model that a kernel of Inductor's computes.

The nodes of the graph know their lines. Inductor is made to write them as comments into generated
code: after a kernel's source, and before the launch of a user's kernel. A fault in the kernel finds
them there, however the code came to be: compiled now, or read from a cache.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tkdebug.compat.replacements import Replacements
from tkdebug.errors import Frame
from tkdebug.findings.reporting import REFINEMENTS
from tkdebug.instrument.analyses.compiled_models import ModelLines
from tkdebug.process.named_files import source_line, source_lines
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS

_COMMENT = re.compile(r"^\s*# of (?P<file>.+):(?P<line>\d+) in (?P<function>\S+) \((?P<op>\S+)\)$")
_TRACE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.M)
# How far above a launch, in the code around the kernels, its comment is looked for.
_LINES_ABOVE = 40
_MOST_SHOWN = 4
# The text of an op in generated lines, if that is not its name.
_WRITTEN = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "pow", "neg": "-"},
    **{"mm": "dot", "addmm": "dot", "bmm": "dot", "sum": "sum", "mean": "sum"},
}
# The line of the model that launches the kernel which runs now.
_launched_by: ContextVar[Frame | None] = ContextVar("tkdebug_launched_by", default=None)
# On a user's kernel in a graph: the node that launches it.
_NODE = "_tkdebug_node"


@dataclass(frozen=True, slots=True)
class Origin:
    """An op of the graph, and its line in the model."""

    op: str
    frame: Frame

    def __str__(self) -> str:
        frame = self.frame
        return f"# of {frame.file}:{frame.line} in {frame.function} ({self.op})"


def origins_of(nodes: Iterable[Any]) -> tuple[Origin, ...]:
    """The ops and lines of some nodes of a graph, each once, by line."""
    found = {origin for node in nodes if (origin := _origin_of(node)) is not None}
    return tuple(sorted(found, key=lambda each: (each.frame.file, each.frame.line, each.op)))


def _origin_of(node: Any) -> Origin | None:
    traces = list(_TRACE.finditer(str(getattr(node, "meta", {}).get("stack_trace") or "")))
    if not traces:
        return None
    place = traces[-1]
    function = place["function"].split()[0].strip("<>")
    frame = Frame(place["file"], int(place["line"]), function)
    target = getattr(node, "target", node)
    name = getattr(target, "_opname", None) or getattr(target, "__name__", str(target))
    return Origin(f"aten.{name}" if hasattr(target, "_opname") else str(name), frame)


def with_origins(source: str, nodes: Iterable[Any]) -> str:
    """Return the source of a generated kernel with the model's lines as comments at its end."""
    lines = [str(origin) for origin in origins_of(nodes)]
    # The code around the kernels quotes the source.
    shown = [line for line in lines if "'''" not in line and "\\" not in line]
    return "\n".join([source.rstrip("\n"), *shown, ""]) if shown else source


@contextmanager
def launched_from(frame: Any) -> Iterator[None]:
    """Add the model's line that a frame of generated code names to faults inside."""
    token = _launched_by.set(_line_above(frame.f_code.co_filename, frame.f_lineno))
    try:
        yield
    finally:
        _launched_by.reset(token)


@lru_cache(maxsize=1024)
def _line_above(file: str, line: int) -> Frame | None:
    for number in range(line, max(0, line - _LINES_ABOVE), -1):
        text = source_line(file, number)
        if number != line and ".run(" in text:
            return None
        found = _COMMENT.match(text.rstrip("\n"))
        if found is not None:
            return Frame(found["file"], int(found["line"]), found["function"])
    return None


def at_model_line(fault: Fault) -> Fault:
    """Return a fault in a generated kernel with the model's line before its own, if certain."""
    if not fault.frames:
        return fault
    launcher, here = _launched_by.get(), fault.frames[-1]
    if launcher is not None:
        note = "torch.compile's code launches it"
        hint = f"{fault.hint}; {note}" if fault.hint else note
        return replace(fault, frames=(launcher, *fault.frames), hint=hint)
    origins = origins_in(here.file)
    if not origins:
        return fault
    chosen = _of_line(origins, source_line(here.file, here.line)) or origins
    places = {origin.frame for origin in chosen}
    shown = [f"{Path(o.frame.file).name}:{o.frame.line} ({o.op})" for o in chosen[:_MOST_SHOWN]]
    more = f", and {len(chosen) - _MOST_SHOWN} more" if len(chosen) > _MOST_SHOWN else ""
    which = "the model's line" if len(places) == 1 else "one of the model's lines"
    note = f"{which}: {', '.join(shown)}{more}"
    hint = f"{note}; {fault.hint}" if fault.hint else note
    frames = (*places, *fault.frames) if len(places) == 1 else fault.frames
    return replace(fault, frames=frames, hint=hint)


def origins_in(file: str) -> tuple[Origin, ...]:
    """The ops and lines that a generated file names."""
    lines = source_lines(file)
    found = (_COMMENT.match(line.rstrip("\n")) for line in lines)
    return tuple(
        Origin(m["op"], Frame(m["file"], int(m["line"]), m["function"])) for m in found if m
    )


def _of_line(origins: Sequence[Origin], text: str) -> list[Origin]:
    """Return the origins whose op a generated line names."""
    code = text.partition("#")[0]
    return [origin for origin in origins if _is_written(origin.op.removeprefix("aten."), code)]


def _is_written(op: str, code: str) -> bool:
    written = _WRITTEN.get(op.strip("_"), op.strip("_"))
    if written.isidentifier():
        return re.search(rf"(?<![A-Za-z]){written}(?![A-Za-z0-9])\s*\(", code) is not None
    return f" {written} " in code


def calling_frame() -> Any:
    """The frame of the code that called the function which calls this."""
    return sys._getframe(2)  # noqa: SLF001


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
        # The kernel's origins include the origins of its inputs.
        vars(self)[_NODE] = V.graph.current_node
        lower(self, *arguments, **keywords)

    @functools.wraps(launch)
    def after_its_line(self: Any, wrapper: Any) -> None:
        for origin in origins_of([vars(self)[_NODE]]):
            wrapper.writeline(str(origin))
        launch(self, wrapper)

    patches.set(ir.UserDefinedTritonKernel, "__init__", of_its_node)
    patches.set(ir.UserDefinedTritonKernel, "codegen", after_its_line)
