"""Several recorded runs as one answer about their faults: of jobs among which tests were split.

A fault that several runs have is listed once, with the counts of all; it belongs to the first of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tkdebug.errors import UsageError, shown_path
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.home.variants import Variants
from tkdebug.instrument.records import FaultGroup, FaultKey
from tkdebug.instrument.renderers import junit, sarif
from tkdebug.instrument.renderers.fault_section import fault_lines
from tkdebug.instrument.renderers.json_format import fault_data
from tkdebug.instrument.renderers.text_format import run_line
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text

SHARDS_SCHEMA = 1
FORMATS = ("text", "json", "sarif", "junit")


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the runs.

    Attributes:
        faults: the faults that no run before it has, with the counts of all runs.
    """

    session: Session
    faults: tuple[FaultGroup, ...]

    @property
    def file(self) -> str:
        """The run's file, as people type it."""
        return shown_path(str(self.session.path))


def joined(sessions: Sequence[Session]) -> tuple[tuple[Shard, ...], Mapping[FaultKey, list[str]]]:
    """Return the runs with their faults, and the files of the runs that have each fault.

    Raises:
        UsageError: two files are of one run, whose faults would count twice.
    """
    _refuse_copies(sessions)
    groups: dict[FaultKey, FaultGroup] = {}
    owners: dict[FaultKey, int] = {}
    files: dict[FaultKey, list[str]] = {}
    for number, session in enumerate(sessions):
        for group in session.fault_groups():
            known = groups.get(group.key)
            owners.setdefault(group.key, number)
            files.setdefault(group.key, []).append(shown_path(str(session.path)))
            groups[group.key] = group
            if known is not None:
                counts = known.count + group.count, known.launches + group.launches
                groups[group.key] = replace(known, count=counts[0], launches=counts[1])
    shards = tuple(
        Shard(session, tuple(groups[key] for key, owner in owners.items() if owner == number))
        for number, session in enumerate(sessions)
    )
    return shards, files


def _refuse_copies(sessions: Sequence[Session]) -> None:
    known: dict[tuple[object, ...], Session] = {}
    for session in sessions:
        run = session.run()
        one = known.setdefault((run.host, run.start_ns, run.script, run.argv), session)
        if one is not session:
            raise UsageError(
                f"{shown_path(str(session.path))}: is the same run as "
                f"{shown_path(str(one.path))}, a copy; name each run once"
            )


def render_joined(sessions: Sequence[Session], format_name: str) -> Iterator[str]:
    """Yield one answer about the faults of several runs.

    Args:
        sessions: the runs.
        format_name: one of `FORMATS`.

    Raises:
        UsageError: there is no such format for several runs.
    """
    shards, files = joined(sessions)
    pairs = [(shard.session, shard.faults) for shard in shards]
    # A suite has all faults of its run: a kernel that fails in two is sound in neither.
    suites = [(session, session.fault_groups()) for session in sessions]
    renderers = {
        "text": partial(_text, shards, files),
        "json": partial(_json, shards, files),
        "sarif": partial(sarif.render_runs, pairs),
        "junit": partial(junit.render_runs, suites),
    }
    if format_name not in renderers:
        raise UsageError(
            f"--format {format_name}: got {len(sessions)} runs, expected {', '.join(FORMATS)}, or "
            "html of two; give another format"
        )
    return renderers[format_name]()


def _text(shards: Sequence[Shard], files: Mapping[FaultKey, list[str]]) -> Iterator[str]:
    for shard in shards:
        yield f"{shard.file}: {run_line(shard.session.run())}\n"
    faults = [(shard, group) for shard in shards for group in shard.faults]
    failing = sum(group.fault.fails for _, group in faults)
    yield f"{len(shards)} runs, {counted(len(faults), 'fault')}"
    yield f", of which {failing} {'fails' if failing == 1 else 'fail'} a run\n" if faults else "\n"
    for shard, group in faults:
        yield "\n"
        for line in fault_lines(shard.session, group):
            yield f"{line}\n"
        yield f"  in {', '.join(files[group.key])}\n"


def _json(shards: Sequence[Shard], files: Mapping[FaultKey, list[str]]) -> Iterator[str]:
    runs = []
    for shard in shards:
        run = shard.session.run()
        runs.append(
            {
                "file": shard.file,
                "script": run.script,
                "argv": run.argv,
                "mode": run.mode,
                "exit_status": run.exit_status,
                "launches": shard.session.launch_count(),
            }
        )
    faults = []
    for shard in shards:
        variants = Variants.of(shard.session)
        for group in shard.faults:
            found = fault_data(shard.session, variants, group)
            faults.append({**found, "runs": files[group.key]})
    fails = any(group.fault.fails for shard in shards for group in shard.faults)
    yield json_text({"schema": SHARDS_SCHEMA, "fails": fails, "runs": runs, "faults": faults})
    yield "\n"
