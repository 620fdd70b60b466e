"""The run as JUnit XML, which CI systems show as test results.

The script is a test case, which fails by its exit status; so is each kernel that had no fault of
severity "error", and each such fault, since many readers take one failure a case. Warnings are the
output of their kernel's case, and so are faults that are ignored or in the baseline.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from xml.sax.saxutils import escape, quoteattr

from tkdebug.errors import shown_path
from tkdebug.instrument.records import FaultGroup, KernelSummary, RunInfo
from tkdebug.instrument.renderers.fault_section import fault_lines
from tkdebug.instrument.session import Session

# Characters that XML 1.0 cannot write (section 2.2).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The report in pieces of text."""
    run = session.run()
    failures = [group for group in faults if group.fault.fails]
    warnings: dict[str, list[FaultGroup]] = defaultdict(list)
    for group in faults:
        if not group.fault.fails:
            warnings[group.fault.kernel].append(group)
    failed = {group.fault.kernel for group in failures}
    summaries = {summary.kernel: summary for summary in session.kernel_summaries()}
    sound = [name for name in dict.fromkeys((*summaries, *warnings)) if name not in failed]
    counts = {
        "tests": 1 + len(sound) + len(failures),
        "failures": len(failures),
        "errors": int(run.exit_status != 0),
        "skipped": 0,
        "time": _seconds(0 if run.end_ns is None else run.end_ns - run.start_ns),
    }
    start = datetime.fromtimestamp(run.start_ns // 10**9, timezone.utc).replace(tzinfo=None)
    suite = {"name": run.script, **counts, "timestamp": start.isoformat(), "hostname": run.host}
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f"<testsuites{attributes({'name': 'tkdebug', **counts})}>\n"
    yield f"<testsuite{attributes(suite)}>\n"
    yield from _script(run)
    for name in sound:
        yield from _kernel(session, run, name, summaries.get(name), warnings[name])
    for group in failures:
        yield from _failure(session, run, group)
    yield "</testsuite>\n</testsuites>\n"


def _script(run: RunInfo) -> Iterator[str]:
    yield f"<testcase{attributes({'classname': run.script, 'name': 'script'})}>"
    if run.exit_status is None:
        ended = {"message": "the script did not end: still running, or killed", "type": "killed"}
        yield f"<error{attributes(ended)}/>"
    elif run.exit_status != 0:
        ended = {"message": f"exit status {run.exit_status}", "type": "exit-status"}
        yield f"<error{attributes(ended)}/>"
    yield "</testcase>\n"


def _kernel(
    session: Session,
    run: RunInfo,
    name: str,
    summary: KernelSummary | None,
    warnings: list[FaultGroup],
) -> Iterator[str]:
    time = _seconds(0 if summary is None else summary.total_ns)
    yield f"<testcase{attributes({'classname': run.script, 'name': name, 'time': time})}>"
    if warnings:
        text = "\n\n".join("\n".join(fault_lines(session, group)) for group in warnings)
        yield f"<system-out>{escape(xml_text(text))}</system-out>"
    yield "</testcase>\n"


def _failure(session: Session, run: RunInfo, group: FaultGroup) -> Iterator[str]:
    fault = group.fault
    of = f" of {fault.tensor}" if fault.tensor else ""
    case: dict[str, object] = {"classname": run.script, "name": f"{fault.kernel}: {fault.kind}{of}"}
    if fault.file is not None and fault.line is not None:
        file = shown_path(fault.file)
        case["name"] = f"{case['name']} at {file}:{fault.line}"
        case |= {"file": file, "line": fault.line}
    yield f"<testcase{attributes(case)}>"
    yield f"<failure{attributes({'message': fault.message, 'type': fault.kind})}>"
    yield escape(xml_text("\n".join(fault_lines(session, group))))
    yield "</failure></testcase>\n"


def attributes(values: Mapping[str, object]) -> str:
    """Return attributes of an element."""
    return "".join(f" {name}={quoteattr(xml_text(str(value)))}" for name, value in values.items())


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.6f}"


def xml_text(text: str) -> str:
    """Return a text without the characters that XML cannot write."""
    return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
