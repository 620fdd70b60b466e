"""The answer of `tkdebug passes` for a recorded run: kernels and passes, in a format.

Responsible for choosing; the formats are those of `renderers/formats.py`.
Nothing here needs the compiler or a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from tkdebug.errors import SessionError, UsageError, instead_of
from tkdebug.instrument.passes.kernel_passes import (
    KernelPasses,
    Place,
    line_life,
    lines_with_ops,
    load_kernel_passes,
)
from tkdebug.instrument.passes.query import KernelReport, PassQuery
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.renderers.formats import PASSES
from tkdebug.instrument.session import Session
from tkdebug.terminal.display import PLAIN_VIEW, View

Renderer = Callable[[Sequence[KernelReport]], Iterator[str]]
RENDERERS: Mapping[str, Renderer] = {one.name: one.renderer() for one in PASSES}


def render_passes(
    session: Session, query: PassQuery, format_name: str, view: View = PLAIN_VIEW
) -> Iterator[str]:
    """The requested passes of kernels, in pieces of text.

    Args:
        session: the run.
        query: the request.
        format_name: a name of `RENDERERS`.
        view: how text is shown.

    Raises:
        SessionError: the session is damaged, or holds no passes.
        UsageError: the session holds nothing that was asked for.
    """
    reports = select(session, query)
    if format_name == "text":
        from tkdebug.instrument.renderers import passes_text

        return passes_text.render(reports, view)
    return RENDERERS[format_name](reports)


def select(session: Session, query: PassQuery) -> tuple[KernelReport, ...]:
    """Return the kernels that were asked for, with their passes.

    Raises:
        SessionError: the session is damaged, or holds no passes.
        UsageError: the session holds nothing that was asked for; the message names what there is.
    """
    kernels = _without_doubles(session.kernels())
    if not kernels:
        raise SessionError(
            f"{session.path}: no kernel was compiled in this run, so no pass ran; "
            "record a run that launches one"
        )
    chosen = [kernel for kernel in kernels if _is_asked_for(kernel, query.kernel)]
    if not chosen:
        hint = instead_of(query.kernel or "", (kernel.name for kernel in kernels))
        raise UsageError(f"--kernel {query.kernel}: no such kernel{hint}")
    loaded = [passes for k in chosen if (passes := load_kernel_passes(session, k)) is not None]
    if not loaded:
        raise SessionError(f"{session.path}: what the passes did was not recorded")
    reports = [_report(session, passes, query) for passes in loaded]
    if query.pass_name is not None and not any(report.diffs for report in reports):
        hint = instead_of(query.pass_name, (d.name for passes in loaded for d in passes.diffs))
        if not any(kernel.options.get("arch") for kernel in chosen):
            hint += (
                "; these kernels were interpreted and not compiled further: `tkdebug run --target "
                "sm_90a -o run.tkd script.py` records the passes over GPU IR, too"
            )
        raise UsageError(f"--pass {query.pass_name}: no such pass{hint}")
    if query.line is not None:
        reports = [report for report in reports if report.life is not None and report.life.steps]
        if not reports:
            raise _unknown_line(query.line, loaded)
    return tuple(reports)


def _is_asked_for(kernel: RecordedKernel, pattern: str | None) -> bool:
    if not pattern:
        return pattern is None
    return fnmatchcase(kernel.name, pattern) or kernel.hash.startswith(pattern)


def _without_doubles(kernels: Sequence[RecordedKernel]) -> list[RecordedKernel]:
    """Drop interpreted kernels that were also compiled natively, whose passes include theirs."""
    native = {_identity(kernel) for kernel in kernels if _is_native(kernel)}
    return [k for k in kernels if _is_native(k) or _identity(k) not in native]


def _is_native(kernel: RecordedKernel) -> bool:
    return any(stage.startswith("gpu-ir") for stage in kernel.stages)


def _identity(kernel: RecordedKernel) -> tuple[object, ...]:
    options = {name: value for name, value in kernel.options.items() if name != "arch"}
    return (kernel.name, kernel.file, kernel.line, kernel.signature, str(options))


def _report(session: Session, passes: KernelPasses, query: PassQuery) -> KernelReport:
    diffs = tuple(
        diff
        for diff in passes.diffs
        if (query.pass_name is None or fnmatchcase(diff.name, query.pass_name))
        and (diff.changed or not query.only_changed)
    )

    def source_line(place: Place) -> str:
        text = session.source_line(*place)
        if text is None and place[0] == passes.kernel.file:
            lines = passes.kernel.source.split("\n")
            offset = place[1] - passes.kernel.line
            text = lines[offset] if 0 <= offset < len(lines) else None
        return "" if text is None else text

    life = None
    if query.line is not None:
        place = _place(passes, query.line)
        life = None if place is None else line_life(passes, place)
        if life is not None and not any(step.lines or step.changes for step in life.steps):
            life = None
    return KernelReport(passes, diffs, life, query, source_line)


def _place(passes: KernelPasses, line: str) -> Place | None:
    file, _, number = line.rpartition(":")
    if not number.isdecimal():
        raise UsageError(f"--line {line}: expected a line number, or file.py:number")
    if not file:
        return (passes.kernel.file, int(number))
    files = dict.fromkeys(name for name, _ in lines_with_ops(passes))
    wanted = PurePath(file).parts
    for name in files:
        if PurePath(name).parts[-len(wanted) :] == wanted:
            return (name, int(number))
    return None


def _unknown_line(line: str, loaded: Sequence[KernelPasses]) -> UsageError:
    kernel = loaded[0].kernel
    lines = [number for file, number in lines_with_ops(loaded[0]) if file == kernel.file]
    there = ", ".join(map(str, lines[:40])) + (", …" if len(lines) > 40 else "")
    return UsageError(
        f"--line {line}: no op comes from there; {kernel.name} has ops of lines {there} of "
        f"{kernel.file}"
    )
