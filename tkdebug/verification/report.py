"""Answers as text, JSON, SARIF and JUnit XML; and answers read again, to be joined."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tkdebug.errors import UsageError, shown_path
from tkdebug.instrument.renderers.junit import attributes, xml_text
from tkdebug.instrument.renderers.sarif import DESCRIPTIONS, SCHEMA, artifact
from tkdebug.process.named_files import read_text
from tkdebug.verification.records import KINDS, Answer, Case, Finding

FORMATS = ("text", "json", "sarif", "junit")
_MOST_BYTES = 64 << 20
_MOST_SHOWN = 12


def render(answer: Answer, format_name: str) -> Iterator[str]:
    """Yield an answer in pieces of text."""
    if format_name == "json":
        yield json.dumps(answer.as_json(), indent=1) + "\n"
    elif format_name == "sarif":
        yield json.dumps(_sarif(answer), indent=1) + "\n"
    elif format_name == "junit":
        yield from _junit(answer)
    else:
        yield from _text(answer)


def read(path: Path) -> Answer:
    """Return the answer that a file has as JSON.

    Raises:
        UsageError: the file cannot be read, or has no answer.
    """
    try:
        return Answer.of_json(json.loads(read_text(path, _MOST_BYTES)))
    except OSError as error:
        raise UsageError(f"--join {path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, RecursionError, UsageError) as error:
        raise UsageError(
            f"--join {path}: is no answer of `tkdebug verify --format json`: {error}"
        ) from None


# Text


def _text(answer: Answer) -> Iterator[str]:
    name = f"{answer.file}:{answer.function}"
    yield f"{name}: {answer.verdict}{f': {answer.why}' if answer.why else ''}\n"
    for finding in answer.findings:
        yield from _finding_text(finding)
    covered = answer.covered
    kernels = ", ".join(covered.kernels) or "none"
    yield (
        f"looked at: {covered.cases} cases, {covered.elements:,} elements, "
        f"{covered.launches:,} launches ({kernels}), {', '.join(answer.modes)}\n"
    )
    for what in ("ways", "values", "layouts", "dtypes"):
        counts: Mapping[str, int] = getattr(covered, what)
        if counts:
            shown = ", ".join(f"{key} {count}" for key, count in counts.items())
            yield f"  {what}: {shown}\n"
    for count, text in (
        (covered.refused, "inputs that the kernel refuses"),
        (covered.no_inputs, "inputs that the reference refuses"),
        (covered.left, "planned cases for which there was no time"),
    ):
        if count:
            yield f"  {count} {text}\n"
    for note in covered.notes:
        yield f"  {note}\n"
    if answer.tolerance:
        yield f"tolerance: {answer.tolerance}\n"
    yield f"{answer.seconds:.1f} s of processor time, seed {answer.seed}\n"


def _finding_text(finding: Finding) -> Iterator[str]:
    place = ""
    if finding.file is not None and finding.line is not None:
        place = f"{shown_path(finding.file)}:{finding.line}: "
    word = "" if finding.is_wrong else " (remark)"
    yield f"  {place}{finding.kind}{word}: {finding.message}\n"
    if finding.case is not None:
        yield f"    with {_case_text(finding.case)}\n"
    if finding.fault is not None and finding.kind in DESCRIPTIONS and finding.fault.get("hint"):
        yield f"    hint: {finding.fault['hint']}\n"
    yield from _cause_text(finding.fault)


def _case_text(case: Case) -> str:
    tensors = [
        f"{dtype}{list(shape)}{'' if layout == 'contiguous' else f' {layout}'}"
        for dtype, shape, layout in zip(case.dtypes, case.shapes, case.layouts, strict=True)
    ]
    parts = [*tensors, *(str(number) for number in case.numbers)]
    extra = [f"values {case.values}"]
    extra += [f"parameters {case.weights}"] if case.weights != "given" else []
    extra += [f"kernels {case.way}"] if case.way != "checked" else []
    return f"({', '.join(parts)}), {', '.join(extra)}, seed {case.seed}"


def _cause_text(fault: Mapping[str, Any] | None) -> Iterator[str]:
    cause = None if fault is None else fault.get("cause")
    if not cause:
        return
    edits = cause["edits"][:2]
    if edits:
        yield "    with this edit the launch agrees:\n"
    for edit in edits:
        for sign, lines in (("-", edit["before"]), ("+", edit["after"])):
            for line in lines[:_MOST_SHOWN]:
                yield f"      {edit['line']} {sign} {line}\n"
    for loss in cause["losses"][:3]:
        why = f": {loss['cause']}" if loss["cause"] else ""
        yield f"    line {loss['line']} loses {loss['share']:.0%} of the precision{why}\n"
    if cause["why"]:
        yield f"    no cause was found: {cause['why']}\n"


# SARIF


def _sarif(answer: Answer) -> dict[str, object]:
    kinds = list(dict.fromkeys(finding.kind for finding in answer.findings))
    if answer.why:
        kinds.append("undecided")
    texts = {**DESCRIPTIONS, **KINDS, "undecided": "Whether the kernel is right is not known."}
    rules = [{"id": kind, "shortDescription": {"text": texts.get(kind, kind)}} for kind in kinds]
    results = [_sarif_result(answer, finding, kinds) for finding in answer.findings]
    if answer.why:
        why = Finding("undecided", answer.why, False, None, answer.file)
        results.append(_sarif_result(answer, why, kinds))
    run = {
        "tool": {"driver": {"name": "tkdebug", "rules": rules}},
        "invocations": [{"executionSuccessful": answer.verdict == "right"}],
        "columnKind": "unicodeCodePoints",
        "properties": {"verdict": answer.verdict, "replay": answer.replay},
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_result(answer: Answer, finding: Finding, kinds: list[str]) -> dict[str, object]:
    case = "" if finding.case is None else f"\nwith {_case_text(finding.case)}"
    text = f"{finding.message}{case}".replace("{", "{{").replace("}", "}}")
    physical: dict[str, object] = {"artifactLocation": artifact(finding.file or answer.file)}
    if finding.line is not None:
        physical["region"] = {"startLine": finding.line}
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": "error" if finding.is_wrong else "warning",
        "message": {"text": text},
        "locations": [{"physicalLocation": physical}],
        "properties": {"kernel": finding.kernel},
    }


# JUnit


def _junit(answer: Answer) -> Iterator[str]:
    wrong = [finding for finding in answer.findings if finding.is_wrong]
    name = f"{answer.file}:{answer.function}"
    is_undecided = answer.verdict == "undecided"
    counts = {
        "tests": max(len(wrong), 1),
        "failures": len(wrong),
        "errors": int(is_undecided),
        "skipped": 0,
        "time": f"{answer.seconds:.6f}",
    }
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f"<testsuites{attributes({'name': 'tkdebug verify', **counts})}>\n"
    yield f"<testsuite{attributes({'name': name, **counts})}>\n"
    covered = "".join(_text(answer))
    if not wrong:
        yield f"<testcase{attributes({'classname': name, 'name': 'verify'})}>"
        if is_undecided:
            yield f"<error{attributes({'message': answer.why, 'type': 'undecided'})}/>"
        yield f"<system-out>{escape(xml_text(covered))}</system-out></testcase>\n"
    for finding in wrong:
        yield f"<testcase{attributes({'classname': name, 'name': finding.kind})}>"
        yield f"<failure{attributes({'message': finding.message, 'type': finding.kind})}>"
        yield escape(xml_text("".join(_finding_text(finding))))
        yield "</failure></testcase>\n"
    yield "</testsuite>\n</testsuites>\n"
