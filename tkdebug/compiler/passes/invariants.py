"""What must hold of every pass: no source line and no op disappears unrecorded.

Used after each pass in debug runs and by the tests of each pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.rewriter import RewriteRecord
from tkdebug.errors import IRError

Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The source lines and op ids of a module at one time."""

    lines: frozenset[Line]
    op_ids: frozenset[int]

    @staticmethod
    def of(module: Module) -> Inventory:
        """Take stock of `module` as it is now."""
        ops = list(module.walk())
        return Inventory(
            frozenset(_lines(op.location for op in ops)), frozenset(op.id for op in ops)
        )


def _lines(locations: Iterable[Location]) -> set[Line]:
    """The lines of all places and of the calls that lead to them."""
    places = {place for location in locations for place in location.sources}
    return {(frame.file, frame.line) for place in places for frame in place.frames}


def lost_lines(
    before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> frozenset[Line]:
    """Source lines that are gone without a record that logs them as erased."""
    gone = before.lines - after.lines
    if not gone:
        return gone
    logged = _lines(location for record in records for location in record.erased_locations)
    return gone - logged


def unrecorded_ops(
    before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> frozenset[int]:
    """Ids of ops that came or went without a record."""
    old = {id_ for record in records for id_ in record.old_op_ids}
    new = {id_ for record in records for id_ in record.new_op_ids}
    return (before.op_ids - after.op_ids - old) | (after.op_ids - before.op_ids - new)


def check_provenance(
    pass_name: str, before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> None:
    """Check what a pass did against what it recorded.

    Raises:
        IRError: a line or an op disappeared, or an op appeared, unrecorded.
    """
    lost = sorted(lost_lines(before, after, records))
    if lost:
        file, line = lost[0]
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise IRError(
            f"{file}:{line}: pass {pass_name} lost this source line{more}: no op stands for it "
            "and no record logs it as erased"
        )
    unrecorded = sorted(unrecorded_ops(before, after, records))
    if unrecorded:
        raise IRError(
            f"pass {pass_name} changed ops without a record: "
            + ", ".join(f"#{id_}" for id_ in unrecorded[:10])
        )
