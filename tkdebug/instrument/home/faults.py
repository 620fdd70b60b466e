"""Faults with what a picture, a replay and a name of their element need."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tkdebug.instrument.home.pictures import (
    Picture,
    element_text,
    fault_pictures,
    index_of,
    mismatch_picture,
    shape_text,
)
from tkdebug.instrument.home.records import FaultModel, Place
from tkdebug.instrument.records import FaultGroup, FaultKey, Launch, RunInfo, fault_key
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault

# Of the launches of a fault, those by which its specialisations are known.
MOST_FAULT_RECORDS = 10_000


def launches_of_faults(
    session: Session,
) -> Iterator[tuple[FaultKey, tuple[tuple[int, int], ...]]]:
    """Yield for each fault the launches that had it, by process and id, up to some of them."""
    found: dict[FaultKey, dict[tuple[int, int], None]] = defaultdict(dict)
    for recorded in session.records(Fault, limit=MOST_FAULT_RECORDS):
        if recorded.event.launch_id:
            found[fault_key(recorded.event)][recorded.process, recorded.event.launch_id] = None
    for key, launches in found.items():
        yield key, tuple(launches)


def urgency(group: FaultGroup) -> tuple[bool, bool, bool]:
    """Return a key that sorts what fails a run first, comparisons before the rest."""
    fault = group.first.event
    return not fault.is_open, fault.severity != "error", fault.kind != "mismatch"


def fault_model(
    number: int,
    group: FaultGroup,
    launch: Launch | None,
    variants: tuple[str, ...],
    run: RunInfo,
    names: Mapping[str, str],
) -> FaultModel:
    """Return a fault of the model.

    Args:
        number: of it, in the model.
        group: the fault over all launches.
        launch: the first that had it; None for none.
        variants: keys of the specialisations that had it.
        run: of which it is.
        names: short names of files.
    """
    fault = group.fault
    extent, tensor = fault.extent, fault.tensor or ""
    index = None
    if extent is not None and fault.index is not None:
        index = index_of(fault.index, extent.shape, extent.strides)
    pictures: tuple[Picture, ...] = ()
    if extent is not None:
        grid = None if launch is None else launch.grid
        pictures = fault_pictures(extent, tensor, fault.index, fault.lane, fault.program_id, grid)
    if fault.cause is not None and (picture := mismatch_picture(fault.cause.picture)):
        pictures = (picture, *pictures)
    calls = tuple(Place(frame.file, frame.line) for frame in fault.frames)
    return FaultModel(
        number=number,
        kind=fault.kind,
        severity=fault.severity,
        state=fault.state,
        kernel=fault.kernel,
        variant=variants[0] if variants else "",
        variants=variants,
        place=calls[-1] if calls else None,
        column=fault.column,
        calls=calls,
        message=fault.message,
        hint=fault.hint or "",
        tensor=tensor,
        at=element_text(tensor, index, fault.index) if tensor else "",
        of="" if extent is None else shape_text(extent.shape),
        program=fault.program_id,
        lane=fault.lane,
        count=fault.count,
        launches=group.launches,
        launch=0 if launch is None else launch.seq,
        basis="" if launch is None else "interpreted" if launch.mode == "interpret" else "measured",
        extent=extent,
        cause=fault.cause,
        replay=_replay(fault, run, names),
        pictures=pictures,
    )


def _replay(fault: Fault, run: RunInfo, names: Mapping[str, str]) -> str:
    """Return the command that stops at a fault, "" if none does."""
    if not fault.frames or not run.script.endswith(".py") or fault.kind == "compile-error":
        return ""
    name = names.get(fault.file or "", fault.file)
    if not fault.file or not name or not fault.file.endswith(name):
        return ""  # a cell of a notebook
    place = f"b {name}:{fault.line}"
    rounds = fault.extent.rounds if fault.extent is not None else ()
    if rounds and rounds[-1].name:
        place += f", {rounds[-1].name} == {rounds[-1].value}"
    words = ["tkdebug", "debug", "-c", place, "-c", "c", run.script, *run.argv]
    return shlex.join(words)
