"""The faults as SARIF 2.1.0 (OASIS, errata 01), which code scanning and editors read.

A fault is a result, its kind a rule, its call chain a stack. A fault that a comment ignores is
suppressed in the source (sections 3.27.23, 3.35), one of the baseline is unchanged (3.27.24). Fixed
ones are left out, since many readers take an absent result for one that is there. Files below the
folder in which the report is made have URIs relative to that folder; others have absolute ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from tkdebug.errors import Frame, shown_path, start_folder
from tkdebug.instrument.analyses.known_faults import baseline_outcome, identities
from tkdebug.instrument.records import FaultGroup, RunInfo
from tkdebug.instrument.renderers.fault_section import fault_source, offender_text, source_line
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault, SourceEdit

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT = "%SRCROOT%"
# A description of each kind of fault, for formats that explain their rules.
DESCRIPTIONS: Mapping[str, str] = {
    "oob-load": "A load reads outside the tensor that was passed.",
    "oob-store": "A store writes outside the tensor that was passed.",
    "oob-atomic": "An atomic operation accesses memory outside the tensor that was passed.",
    "between-elements": "An access falls between the elements of a strided view.",
    "race": "Two programs of a launch access the same element in no certain order.",
    "nan": "A kernel stores a NaN that it made itself.",
    "inf": "A kernel stores an Inf, or a NaN made from one, that it computed from finite values.",
    "padding": "Elements that a load masks off change what a reduction gives.",
    "narrowing": "A conversion, or a narrow integer before one, loses a value.",
    "uninitialised-read": "A kernel reads memory that nothing has written.",
    "unwritten-output": "A launch leaves gaps in a fresh tensor that it stores to.",
    "coverage": "A launch leaves out, or adds up twice, elements of an input that it is to read.",
    "row-overrun": "An access leaves its row for the next one of the same tensor.",
    "loop-state": "A loop is meant to move a load along its tensor, and does not.",
    "stored-input": "An input is only stored to, while an output is not stored to.",
    "thread-order": "Threads of one program access the same memory, and nothing orders them.",
    "division-by-zero": "The result of an integer division by zero is used.",
    "shift-range": "The result of a shift by the width of its type or more is used.",
    "offset-overflow": "An offset that wrapped around leads an access.",
    "negative-remainder": "The remainder of a negative number leads an access to a wrong place.",
    "undefined-value": "What a masked-off load without `other` gives is used.",
    "misaligned-descriptor": "A tensor descriptor, or a block of it, is where TMA takes none.",
    "assumption": "A fact that the kernel lets the compiler assume does not hold.",
    "plugin-check": "A check of a plugin found something.",
    "assert": "A device assertion failed.",
    "mismatch": "A tensor that a launch wrote is not what the script compares it with.",
    "misaligned": "A native kernel accessed a misaligned address.",
    "illegal-address": "A native kernel accessed an illegal address.",
    "illegal-instruction": "A native kernel ran into an illegal instruction.",
    "trap": "A native kernel ran into a trap.",
    "stack-overflow": "A native kernel overflowed its stack.",
    "gpu-exception": "A native kernel ended by another exception of the GPU.",
    "hang": "A kernel did not end; here its warps were waiting.",
    "cuda-error": "A CUDA error ended the kernels in flight.",
    "compile-error": "A kernel does not compile.",
    "triton-refuses": "A kernel that tkdebug compiles is refused by the Triton that was asked.",
    "triton-accepts": "A kernel that tkdebug refuses is compiled by the Triton that was asked.",
}


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The log in pieces of text; a result is a line."""
    return render_runs([(session, faults)])


def render_runs(pairs: Sequence[tuple[Session, tuple[FaultGroup, ...]]]) -> Iterator[str]:
    """Yield the log of several runs, each with its faults."""
    yield json.dumps({"$schema": SCHEMA, "version": "2.1.0"})[:-1] + ', "runs": [\n'
    for number, (session, faults) in enumerate(pairs):
        yield ",\n" if number else ""
        yield from _run(session, faults)
    yield "]}\n"


def _run(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    run = session.run()
    kinds = list(dict.fromkeys(group.fault.kind for group in faults))
    head: dict[str, object] = {
        "tool": {"driver": _driver(run, kinds)},
        "invocations": [_invocation(run)],
        "columnKind": "unicodeCodePoints",
        "properties": {"mode": run.mode},
    }
    root = start_folder()
    if root is not None:
        head["originalUriBaseIds"] = {_ROOT: {"uri": f"{Path(root).as_uri().rstrip('/')}/"}}
    yield json.dumps(head)[:-1] + ',\n"results": ['
    separator = "\n"
    states = _baseline_states(session, faults)
    for group in faults:
        result = _result(session, group, kinds.index(group.fault.kind))
        # In a run, every result has them, or none has (3.27.23, 3.27.24).
        result["suppressions"] = _suppressions(group)
        if states is not None:
            result["baselineState"] = states[group]
        yield separator + json.dumps(result)
        separator = ",\n"
    yield "]}"


def _driver(run: RunInfo, kinds: Sequence[str]) -> dict[str, object]:
    rules = [
        {"id": kind, "shortDescription": {"text": DESCRIPTIONS.get(kind, kind)}} for kind in kinds
    ]
    version = run.versions.get("tkdebug", "")
    return {"name": "tkdebug", **({"version": version} if version else {}), "rules": rules}


def _invocation(run: RunInfo) -> dict[str, object]:
    data: dict[str, object] = {
        "executionSuccessful": run.exit_status == 0,
        "arguments": [run.script, *run.argv],
        "startTimeUtc": _utc(run.start_ns),
        "machine": run.host,
    }
    if run.end_ns is not None:
        data["endTimeUtc"] = _utc(run.end_ns)
    if run.exit_status is not None:
        data["exitCode"] = run.exit_status
    return data


def _utc(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _result(session: Session, group: FaultGroup, rule: int) -> dict[str, object]:
    fault = group.fault
    source = fault_source(session, group)
    result: dict[str, object] = {
        "ruleId": fault.kind,
        "ruleIndex": rule,
        "level": fault.severity,
        "message": {"text": _message(group)},
        "occurrenceCount": fault.count,
        "partialFingerprints": {"tkdebug/v1": _fingerprint(fault, source)},
        "properties": {
            "kernel": fault.kernel,
            "tensor": fault.tensor,
            "program_id": fault.program_id,
            "lane": fault.lane,
            "index": fault.index,
            "launches": group.launches,
        },
    }
    edits = () if fault.cause is None else fault.cause.edits
    if fixes := [fix for fix in (_fix(session, edit) for edit in edits) if fix is not None]:
        result["fixes"] = fixes
    if not fault.frames:
        return result
    *callers, _ = fault.frames
    chain = list(reversed(callers))
    # SARIF's stacks begin with the innermost frame.
    result["locations"] = [_location(fault.frames[-1], fault.column, source)]
    result["relatedLocations"] = [
        {**_location(frame), "id": number, "message": {"text": f"called from {frame.function}"}}
        for number, frame in enumerate(chain, 1)
    ]
    frames = [_location(frame) for frame in (fault.frames[-1], *chain)]
    result["stacks"] = [{"frames": [{"location": location} for location in frames]}]
    return result


def _fix(session: Session, edit: SourceEdit) -> dict[str, object] | None:
    """Return an edit as a SARIF fix, which replaces whole lines.

    None if its lines have changed since, or the indents of the new ones are not known.
    """
    places = range(edit.line, edit.line + len(edit.before))
    lines = [source_line(session, edit.file, place) or "" for place in places]
    if not lines or [line.strip() for line in lines] != list(edit.before):
        return None
    indents = [line[: len(line) - len(line.lstrip())] for line in lines]
    if len(edit.after) != len(indents):
        if len(set(indents)) > 1:
            return None
        indents = indents[:1] * len(edit.after)
    new = (f"{indent}{line}\n" for indent, line in zip(indents, edit.after, strict=True))
    region = {"startLine": edit.line, "startColumn": 1, "endLine": places[-1] + 1, "endColumn": 1}
    replacement = {"deletedRegion": region, "insertedContent": {"text": "".join(new)}}
    change = {"artifactLocation": artifact(edit.file), "replacements": [replacement]}
    left = ", in fp64: what is left is rounding" if edit.is_in_fp64 else ""
    return {
        "description": {"text": f"with this edit the launch agrees with what was expected{left}"},
        "artifactChanges": [change],
    }


def _suppressions(group: FaultGroup) -> list[dict[str, str]]:
    is_ignored = group.fault.state == "ignored"
    return [{"kind": "inSource", "status": "accepted"}] if is_ignored else []


def _baseline_states(
    session: Session, faults: tuple[FaultGroup, ...]
) -> dict[FaultGroup, str] | None:
    outcome = baseline_outcome(session, faults)
    if outcome is None:
        return None
    known = frozenset(outcome.baseline.faults)
    return {
        group: "unchanged" if found in known else "new"
        for group, found in identities(session, faults, outcome.folder).items()
    }


def _message(group: FaultGroup) -> str:
    fault = group.fault
    lines = [f"{fault.kind} in {fault.kernel}: {fault.message}", offender_text(group)]
    lines += [f"hint: {fault.hint}"] if fault.hint else []
    # Braces are placeholders' (section 3.11.5).
    return "\n".join(line for line in lines if line).replace("{", "{{").replace("}", "}}")


def _location(frame: Frame, column: int = 0, source: str | None = None) -> dict[str, object]:
    physical: dict[str, object] = {"artifactLocation": artifact(frame.file)}
    if frame.line > 0:
        physical["region"] = {
            "startLine": frame.line,
            **({"startColumn": column} if column > 0 else {}),
        }
        if source is not None:
            physical["contextRegion"] = {"startLine": frame.line, "snippet": {"text": source}}
    return {
        "physicalLocation": physical,
        "logicalLocations": [{"name": frame.function, "kind": "function"}],
    }


def artifact(file: str) -> dict[str, str]:
    """Return the place of a file, relative to the folder of the run if it is below that."""
    shown = shown_path(file)
    if os.path.isabs(shown):
        return {"uri": Path(shown).as_uri()}
    return {"uri": quote(Path(shown).as_posix(), errors="replace"), "uriBaseId": _ROOT}


def _fingerprint(fault: Fault, source: str | None) -> str:
    """Return a fingerprint by the text of the line, so that it stays when the line moves."""
    file = shown_path(fault.file or "")
    data = json.dumps([fault.kind, fault.kernel, file, fault.tensor, (source or "").strip()])
    return hashlib.sha256(data.encode()).hexdigest()
