"""The report as JSON, schema 1: one object; keys are added, never changed, within a schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from tkdebug.findings.baseline import as_json
from tkdebug.findings.launch_counts import AccessTests, LaunchCounts, total_counts
from tkdebug.instrument.analyses.advice import advice_of, launch_costs, line_costs
from tkdebug.instrument.analyses.checked_launches import kernel_checks
from tkdebug.instrument.analyses.compiled_models import model_data, uncompiled_data
from tkdebug.instrument.analyses.kernel_names import demangled
from tkdebug.instrument.analyses.known_faults import baseline_outcome
from tkdebug.instrument.analyses.origin_totals import OriginTotal, origin_totals
from tkdebug.instrument.analyses.stalls import recorded_stalls
from tkdebug.instrument.analyses.timelines import recorded_timelines
from tkdebug.instrument.analyses.watched_values import (
    InstrumentedLine,
    instrumented_lines,
    recorded_values,
)
from tkdebug.instrument.device_records import ActivityTotal, GpuState
from tkdebug.instrument.home.json_text import plain
from tkdebug.instrument.home.variants import Variants
from tkdebug.instrument.recording.nvml import slowdown_names
from tkdebug.instrument.records import FaultGroup, Launch
from tkdebug.instrument.renderers.advice_formats import advice_data
from tkdebug.instrument.renderers.stalls_section import kernel_object
from tkdebug.instrument.renderers.text_format import recorded_tunings
from tkdebug.instrument.renderers.timeline_section import timeline_object
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.instrument.text_forms import json_text
from tkdebug.records.events import AutotuneChoice, Cause, Fault
from tkdebug.watches.records import WatchedValue

JSON_SCHEMA = 1


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The report in pieces of text; a launch and a fault are a line each."""
    run = session.run()
    head = {
        "schema": JSON_SCHEMA,
        "mode": run.mode,
        "times_are_of_a_gpu": "interpret" not in run.mode,
        "script": run.script,
        "exit_status": run.exit_status,
        "baseline": _baseline(session, faults),
        "checked_launches": _checked(session),
    }
    yield json_text(head)[:-1]
    variants = Variants.of(session)
    launches = (_launch(fields, variants) for fields in session.launch_fields(_LAUNCH_FIELDS))
    yield from _listed("launches", launches)
    yield from _listed("faults", (fault_data(session, variants, group) for group in faults))
    yield from _listed("tunings", map(_tuning, recorded_tunings(session)))
    yield from _listed("others", map(_other, session.other_totals()[1]))
    yield from _listed("origins", map(_origin, origin_totals(session)))
    yield from _listed("model_lines", model_data(session))
    yield from _listed("uncompiled_graphs", uncompiled_data(session))
    yield from _listed("gpu_states", map(_state, session.records(GpuState)))
    stalls = recorded_stalls(session)
    yield from _listed("stalls", map(kernel_object, () if stalls is None else stalls.kernels))
    yield from _listed("timelines", map(timeline_object, recorded_timelines(session)))
    advice = advice_of(session)
    yield from _listed("remarks", advice_data(advice))
    yield from _listed("launch_costs", map(asdict, launch_costs(session)))
    yield from _listed("line_costs", map(asdict, line_costs(session)))
    yield from _listed("instrumentation", map(_measured, instrumented_lines(session)))
    yield from _listed("watched_values", map(_watched, recorded_values(session)))
    yield "}\n"


def _listed(name: str, objects: Iterable[object]) -> Iterator[str]:
    """Yield a key of the report and its list, a line for each object."""
    yield f',\n"{name}": ['
    separator = "\n"
    for item in objects:
        yield separator + json_text(item)
        separator = ",\n"
    yield "]"


def _measured(line: InstrumentedLine) -> dict[str, object]:
    frame = line.frames[-1]
    return {
        "plugin": line.plugin,
        "kernel": line.kernel,
        "op": line.op,
        "file": frame.file,
        "line": frame.line,
        "call_chain": [asdict(frame) for frame in line.frames],
        "launches": line.launches,
        "seen": line.seen,
        "measured": line.measured,
        "totals": dict(line.totals),
    }


def _watched(recorded: Recorded[WatchedValue]) -> dict[str, object]:
    value = recorded.event
    frame = value.frames[-1]
    return {
        "watch": value.watch,
        "kernel": value.kernel,
        "name": value.name,
        "type": value.type,
        "file": frame.file,
        "line": frame.line,
        "call_chain": [asdict(frame) for frame in value.frames],
        "launch_id": value.launch_id,
        "process": recorded.process,
        "rank": recorded.rank,
        "program_id": value.program_id,
        "iteration": value.iteration,
        "shape": value.shape,
        "elements": value.elements,
        "nan": value.nan,
        "inf": value.inf,
        "zeros": value.zeros,
        "min": _number(value.minimum),
        "max": _number(value.maximum),
        "mean": _number(value.mean),
        "histogram": value.histogram,
        "tile": [_number(element) for element in value.values()] if value.tile else None,
    }


def _number(value: float) -> float | str:
    """A number, or the name of one that JSON cannot write."""
    return value if math.isfinite(value) else str(value)


def _origin(total: OriginTotal) -> dict[str, object]:
    origin = total.origin
    return {
        "file": None if origin is None else origin.frame.file,
        "line": None if origin is None else origin.frame.line,
        "function": None if origin is None else origin.frame.function,
        "scopes": () if origin is None else origin.scopes,
        "count": total.count,
        "total_ns": total.total_ns,
    }


def _baseline(session: Session, faults: tuple[FaultGroup, ...]) -> dict[str, object] | None:
    outcome = baseline_outcome(session, faults)
    if outcome is None:
        return None
    return {
        "file": outcome.baseline.file,
        "faults": len(outcome.baseline.faults),
        "fixed": [as_json(known) for known in outcome.fixed],
    }


def _checked(session: Session) -> dict[str, object] | None:
    counts = total_counts(recorded.event for recorded in session.records(LaunchCounts))
    if counts is None:
        return None
    tests = sum((one.event for one in session.records(AccessTests)), AccessTests())
    kernels = [asdict(one) for one in kernel_checks(session)]
    return {**asdict(counts), "accesses": asdict(tests), "kernels": kernels}


def recorded_launches(session: Session) -> Iterator[Launch]:
    """All launches, in the order in which they began."""
    after = 0
    while page := session.launches_in_order(after):
        yield from page
        after = page[-1].seq


_LAUNCH_FIELDS = (
    "kernel",
    "grid",
    "duration_ns",
    "options",
    "start_ns",
    "process",
    "rank",
    "error",
    "scopes",
    "time_source",
    "device_start_ns",
    "id",
    "seq",
    "stream",
    "device_stream",
    "kernel_hash",
)


def _launch(fields: tuple[object, ...], variants: Variants) -> dict[str, object]:
    """Return a launch as JSON, from the values of `_LAUNCH_FIELDS`; some options are keys."""
    kernel, grid, duration_ns, options, *others, kernel_hash = fields
    assert isinstance(options, dict)
    return {
        "kernel": kernel,
        "grid": grid,
        "duration_ns": duration_ns,
        "num_warps": options.get("num_warps"),
        "num_stages": options.get("num_stages"),
        "num_ctas": options.get("num_ctas"),
        **dict(zip(_LAUNCH_FIELDS[4:-1], others, strict=True)),
        "variant": variants.key_of(str(kernel_hash)),
    }


def fault_data(session: Session, variants: Variants, group: FaultGroup) -> dict[str, object]:
    """A fault with the launch that had it first."""
    launch = session.launch_of(group.first.process, group.fault.launch_id)
    extent = group.fault.extent
    return {
        **fault_object(group.fault),
        "launch_id": group.fault.launch_id or None,
        "process": group.first.process,
        "launches": group.launches,
        "variant": None if launch is None else variants.key_of(launch.kernel_hash),
        "extent": None if extent is None else plain(extent),
    }


def _other(total: ActivityTotal) -> dict[str, object]:
    return {
        "kind": total.kind,
        "name": demangled(total.name),
        "in_graph": total.in_graph,
        "count": total.count,
        "total_ns": total.total_ns,
        "mean_ns": total.mean_ns,
        "min_ns": total.min_ns,
        "max_ns": total.max_ns,
    }


def _state(recorded: Recorded[GpuState]) -> dict[str, object]:
    state = asdict(recorded.event)
    reasons = slowdown_names(recorded.event.slowdown_reasons)
    return {"time_ns": recorded.time_ns, **state, "slowdown_reasons": reasons}


def _tuning(recorded: Recorded[AutotuneChoice]) -> dict[str, object]:
    tuning = recorded.event
    return {
        "kernel": tuning.kernel,
        "key": tuning.key,
        "config": tuning.config,
        # A configuration that failed took forever, for which JSON has no number.
        "timings_ms": {
            config: time_ms if math.isfinite(time_ms) else None
            for config, time_ms in tuning.timings_ms.items()
        },
        "process": recorded.process,
        "rank": recorded.rank,
    }


def fault_object(fault: Fault) -> dict[str, object]:
    """A fault as JSON."""
    return {
        "kind": fault.kind,
        "kernel": fault.kernel,
        "file": fault.file,
        "line": fault.line,
        "column": fault.column or None,
        "call_chain": [
            {"file": frame.file, "line": frame.line, "function": frame.function}
            for frame in fault.frames
        ],
        "program_id": fault.program_id,
        "lane": fault.lane,
        "tensor": fault.tensor,
        "index": fault.index,
        "count": fault.count,
        "message": fault.message,
        "hint": fault.hint,
        "severity": fault.severity,
        "state": fault.state,
        "cause": None if fault.cause is None else cause_object(fault.cause),
    }


def cause_object(cause: Cause) -> dict[str, object]:
    """The cause of a mismatch as JSON."""
    return {
        "verdict": cause.verdict,
        "edits": [
            {
                "file": edit.file,
                "line": edit.line,
                "before": list(edit.before),
                "after": list(edit.after),
            }
            for edit in cause.edits
        ],
        "losses": [
            {
                "file": loss.file,
                "line": loss.line,
                "share": loss.share,
                "value": loss.value,
                "cause": loss.cause or None,
            }
            for loss in cause.losses
        ],
        "got": cause.got,
        "expected": cause.expected,
        "stored": None
        if cause.stored is None
        else {"file": cause.stored[0], "line": cause.stored[1]},
        "tried": cause.tried,
        "why": cause.why or None,
        "facts": list(cause.facts),
        "picture": list(cause.picture),
    }
