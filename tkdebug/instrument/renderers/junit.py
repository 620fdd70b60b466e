"""The run as JUnit XML, which CI systems show as test results.

The script is a test case, which fails by its exit status; so is each kernel that had no fault of
severity "error", and each such fault, since many readers take one failure a case. Warnings are the
output of their kernel's case, and so are faults that are ignored or in the baseline.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    return render_runs([(session, faults)])


def render_runs(pairs: Sequence[tuple[Session, tuple[FaultGroup, ...]]]) -> Iterator[str]:
    """Yield the report of several runs, a suite for each, with its faults."""
    suites = [_Suite.of(session, faults) for session, faults in pairs]
    total = {
        name: sum(suite.counts[name] for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    time = _seconds(sum(suite.time_ns for suite in suites))
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f"<testsuites{attributes({'name': 'tkdebug', **total, 'time': time})}>\n"
    for suite in suites:
        yield from suite.render()
    yield "</testsuites>\n"


@dataclass(frozen=True, slots=True)
class _Suite:
    """A run as a suite of cases.

    Attributes:
        failures: faults by which it fails.
        warnings: the others, by kernel.
        sound: kernels without a failure.
    """

    session: Session
    run: RunInfo
    failures: Sequence[FaultGroup]
    warnings: Mapping[str, list[FaultGroup]]
    summaries: Mapping[str, KernelSummary]
    sound: Sequence[str]

    @staticmethod
    def of(session: Session, faults: tuple[FaultGroup, ...]) -> _Suite:
        """Return the suite of a run."""
        failures = [group for group in faults if group.fault.fails]
        warnings: dict[str, list[FaultGroup]] = defaultdict(list)
        for group in faults:
            if not group.fault.fails:
                warnings[group.fault.kernel].append(group)
        failed = {group.fault.kernel for group in failures}
        summaries = {summary.kernel: summary for summary in session.kernel_summaries()}
        sound = [name for name in dict.fromkeys((*summaries, *warnings)) if name not in failed]
        return _Suite(session, session.run(), failures, warnings, summaries, sound)

    @property
    def counts(self) -> dict[str, int]:
        """Its cases, as attributes count them."""
        return {
            "tests": 1 + len(self.sound) + len(self.failures),
            "failures": len(self.failures),
            "errors": int(self.run.exit_status != 0),
            "skipped": 0,
        }

    @property
    def time_ns(self) -> int:
        """The time of the run; 0 while it is not known."""
        return 0 if self.run.end_ns is None else self.run.end_ns - self.run.start_ns

    def render(self) -> Iterator[str]:
        """Yield its element."""
        run, counts = self.run, {**self.counts, "time": _seconds(self.time_ns)}
        start = datetime.fromtimestamp(run.start_ns // 10**9, timezone.utc).replace(tzinfo=None)
        suite = {"name": run.script, **counts, "timestamp": start.isoformat(), "hostname": run.host}
        yield f"<testsuite{attributes(suite)}>\n"
        yield from _script(run)
        for name in self.sound:
            warnings = self.warnings.get(name, [])
            yield from _kernel(self.session, run, name, self.summaries.get(name), warnings)
        for group in self.failures:
            yield from _failure(self.session, run, group)
        yield "</testsuite>\n"


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
