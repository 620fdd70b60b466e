"""Passes as one HTML file that needs nothing else: no script, no network, folded by `<details>`.

Everything a session holds is escaped, and the page's policy lets in nothing but its own style.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from tkdebug.fault_printing.text import counted
from tkdebug.instrument.analyses.kernel_names import differing_parts
from tkdebug.instrument.passes.diff import OpChange, OpRef, PassDiff, StageOps, text_diff
from tkdebug.instrument.passes.kernel_passes import LifeStep, LineLife, line_life, lines_with_ops
from tkdebug.instrument.passes.query import KernelReport
from tkdebug.instrument.passes.summary import LineRun, counts_text, group_changes, run_text, runs_of
from tkdebug.instrument.renderers.passes_text import group_text
from tkdebug.instrument.text_forms import measured_ns
from tkdebug.terminal.text import visible

MAX_CHANGES = 2_000
MAX_STEP_LINES = 500
MAX_LIFE_CHARS = 24 << 20
MAX_TEXT_CHARS = 2_000
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem;
  padding: 0 1rem; color: #1b1f24; background: #fff; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; }
code, pre, .mono { font: 12.5px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; background: #f6f8fa; padding: .5rem; margin: .3rem 0; }
table { border-collapse: collapse; }
td, th { padding: .1rem .7rem; text-align: right; white-space: nowrap; }
td:nth-child(2), th:nth-child(2), td:nth-child(4) { text-align: left; }
td:first-child { color: #6a737d; } rect { fill: #4a90c2; } .same rect { fill: #b8c0c8; }
tr:hover { background: #f0f4f8; }
th { border-bottom: 1px solid #999; } .same { color: #8a929a; }
details { margin: .2rem 0; } summary { cursor: pointer; } details details { margin-left: 1.2rem; }
.kind { display: inline-block; min-width: 5.5rem; font-weight: 600; }
.error { color: #b3261e; font-weight: 600; } .muted { color: #6a737d; }
.del { background: #ffe9e6; display: block; } .ins { background: #e6f6e9; display: block; }
.hunk { color: #6f42c1; display: block; }
.line > summary { font: 12.5px/1.4 ui-monospace, monospace; white-space: pre; }
.nr { display: inline-block; min-width: 3.5rem; text-align: right; color: #8a929a; }
@media (prefers-color-scheme: dark) {
  body { color: #d8dee9; background: #15181c; } pre { background: #1e2328; }
  tr:hover { background: #22282e; } .del { background: #4a2320; } .ins { background: #1d3b26; }
  a { color: #7cc4e8; } .hunk { color: #c79be0; } .error { color: #ff8c7a; }
}
"""
BAR_PIXELS = 80
_COUNTED = ("added", "removed", "replaced", "attrs", "layouts", "moved")
_TITLES = ("#", "pass", "time", "", "ops", *_COUNTED)
_KINDS = ("added", "removed", "replaced", "attribute", "layout", "moved")


def render(reports: Sequence[KernelReport]) -> Iterator[str]:
    """The page in pieces."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; style-src 'sha256-{digest}'\">\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>Compiler passes</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        "<h1>Compiler passes</h1>\n"
    )
    parts = differing_parts([report.passes.kernel for report in reports])
    if len(reports) > 1:
        links = (
            f'<li><a href="#k{number}">{_text(report.passes.kernel.name)}</a> '
            f"<b>{_text(parts[report.passes.kernel.hash])}</b> "
            f'<span class="muted mono">{_text(report.passes.kernel.signature)}</span></li>\n'
            for number, report in enumerate(reports)
        )
        yield "<ul>\n" + "".join(links) + "</ul>\n"
    for number, report in enumerate(reports):
        yield from _kernel(number, report, parts[report.passes.kernel.hash])
    yield "</body>\n</html>\n"


def _kernel(number: int, report: KernelReport, parts: str) -> Iterator[str]:
    kernel = report.passes.kernel
    arch = kernel.options.get("arch")
    for_arch = f" for {_text(arch)}" if arch else ""
    apart = f' <span class="muted">{_text(parts)}</span>' if parts else ""
    yield f'<h2 id="k{number}">{_text(kernel.name)}{for_arch}{apart}</h2>\n'
    yield f'<p class="mono">{_text(kernel.signature)}<br>{_text(kernel.file)}:{kernel.line}, '
    passes = counted(len(report.passes.diffs), "pass")
    yield f"{measured_ns(report.passes.time_ns)} in {passes}</p>\n"
    if kernel.error is not None:
        yield f'<p class="error">did not compile: {_text(kernel.error)}</p>\n'
    if report.passes.note:
        yield f'<p class="error">{_text(report.passes.note)}</p>\n'
    if report.life is not None:
        yield _life(report, report.life, is_open=True)
        return
    yield (
        f'<p><a href="#k{number}c">what each pass changed</a> · '
        f'<a href="#k{number}s">what became of each source line</a></p>\n'
    )
    yield from _table(number, report.diffs)
    yield f'<h3 id="k{number}c">What each pass changed</h3>\n'
    for diff in report.diffs:
        if (diff.changed and diff.before in report.passes.stages) or diff.error:
            yield from _pass(number, report, diff)
    yield f'<h3 id="k{number}s">What became of each source line</h3>\n'
    yield from _lives(report)


def _table(number: int, diffs: Sequence[PassDiff]) -> Iterator[str]:
    yield "<table>\n<tr>" + "".join(f"<th>{title}</th>" for title in _TITLES) + "</tr>\n"
    longest_ns = max((diff.time_ns for diff in diffs), default=0)
    for diff in diffs:
        counts = diff.counts
        name = _text(diff.name)
        if diff.changes or diff.error:
            name = f'<a href="#k{number}p{diff.number}">{name}</a>'
        ops = "failed" if diff.error else f"{diff.op_count:,}"
        cells = [
            str(diff.number),
            name,
            measured_ns(diff.time_ns),
            _bar(diff.time_ns, longest_ns),
            ops,
        ]
        cells += [f"{counts[kind]:,}" if counts[kind] else "" for kind in _KINDS]
        style = "" if diff.changed else ' class="same"'
        yield f"<tr{style}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    yield "</table>\n"


def _bar(time_ns: int, longest_ns: int) -> str:
    """A bar as long as the time; attributes, since the page's policy lets in no inline style."""
    width = round(BAR_PIXELS * time_ns / longest_ns) if longest_ns else 0
    return (
        f'<svg width="{BAR_PIXELS}" height="8" aria-hidden="true">'
        f'<rect width="{width}" height="8"></rect></svg>'
    )


def _pass(number: int, report: KernelReport, diff: PassDiff) -> Iterator[str]:
    stages = report.passes.stages
    yield f'<details id="k{number}p{diff.number}" open><summary>{_text(diff.name)}: '
    yield f"{counts_text(diff)}</summary>\n"
    if diff.error:
        yield f'<p class="error">{_text(diff.error)}</p>\n'
    groups = group_changes(diff.changes)
    if groups:
        yield "<pre>" + "\n".join(_text(group_text(group)) for group in groups) + "</pre>\n"
    for file, line in diff.gone_lines:
        text = report.source_line((file, line)).strip()
        yield f'<p class="mono">nothing is left of {_text(file)}:{line}  {_text(text)}</p>\n'
    if diff.layouts:
        yield "<pre>" + "\n".join(map(_text, diff.layouts)) + "</pre>\n"
    if diff.changes:
        yield "<details><summary>each change</summary>\n<pre>"
        yield from (_change(stages, diff, change) for change in diff.changes[:MAX_CHANGES])
        if len(diff.changes) > MAX_CHANGES:
            yield f"and {counted(len(diff.changes) - MAX_CHANGES, 'more change')}\n"
        yield "</pre></details>\n"
    if diff.before in stages and diff.before != diff.after:
        yield "<details><summary>diff of the texts</summary>\n<pre>"
        yield from map(_diff_line, text_diff(stages[diff.before], stages[diff.after]))
        yield "</pre></details>\n"
    yield "</details>\n"


def _change(stages: Mapping[str, StageOps], diff: PassDiff, change: OpChange) -> str:
    rule = f"  ({change.rule})" if change.rule else ""
    lines = [f"{change.kind}  {change.detail}{rule}"]
    if not change.in_place:
        lines += [f"  - {_op(op, stages[diff.before])}" for op in change.old]
    for op in change.new:
        stayed = change.in_place or op.id in stages[diff.before].lines
        lines.append(f"  {'=' if stayed else '+'} {_op(op, stages[diff.after])}")
    return "\n".join(map(_text, lines)) + "\n"


def _op(op: OpRef, stage: StageOps) -> str:
    place = f"  [{op.place[0].rpartition('/')[2]}:{op.place[1]}]" if op.place else ""
    return f"#{op.id} {stage.line_text(op.id) or op.name}{place}"


def _diff_line(line: str) -> str:
    style = {"-": "del", "+": "ins", "@": "hunk"}.get(line[:1])
    text = _text(line)
    return f'<span class="{style}">{text}</span>' if style else text + "\n"


def _lives(report: KernelReport) -> Iterator[str]:
    length = 0
    for place in lines_with_ops(report.passes):
        if length > MAX_LIFE_CHARS:
            yield "<p>Further lines are left out; --line N shows one.</p>\n"
            return
        piece = _life(report, line_life(report.passes, place), is_open=False)
        length += len(piece)
        yield piece


def _life(report: KernelReport, life: LineLife, is_open: bool) -> str:
    file, line = life.place
    where = str(line) if file == report.passes.kernel.file else f"{file.rpartition('/')[2]}:{line}"
    source = _text(report.source_line(life.place))
    opened = " open" if is_open else ""
    head = f'<details class="line"{opened}><summary><span class="nr">{_text(where)}</span>  '
    return head + f"{source}</summary>\n" + "".join(map(_step, life.steps)) + "</details>\n"


def _step(step: LifeStep) -> str:
    changes = "\n".join(_text(_named(change)) for change in step.changes)
    shown = f'<span class="muted">{changes}</span>\n' if changes else ""
    lines = "\n".join(map(_run, runs_of(step.lines[:MAX_STEP_LINES])))
    more = ""
    if len(step.lines) > MAX_STEP_LINES:
        more = f"\nand {counted(len(step.lines) - MAX_STEP_LINES, 'more line')}"
    head = f"{_text(step.name)}: {counted(len(step.lines), 'line')}"
    if step.changes:
        head += f", {counted(len(step.changes), 'change')}"
    return f"<details><summary>{head}</summary><pre>{shown}{lines}{more}</pre></details>\n"


def _run(run: LineRun) -> str:
    line = f'<span class="nr">{run.first.line}</span>  {_text(run.first.text.strip())}'
    if not run.more:
        return line
    return f'{line}\n<span class="nr">…</span>  <span class="muted">{_text(run_text(run))}</span>'


def _named(change: OpChange) -> str:
    old = "" if change.in_place else _names(change.old)
    arrow = " -> " if old and change.new else ""
    return f"{change.kind} {old}{arrow}{_names(change.new)} {change.detail} ({change.rule})"


def _names(ops: Iterable[OpRef]) -> str:
    return ", ".join(f"{op.name} #{op.id}" for op in ops)


def _text(value: object) -> str:
    text = str(value)
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + "…"
    return escape(visible(text), quote=True)
