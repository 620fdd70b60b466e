"""What must hold of every pass: no op goes unrecorded, and none loses its place in the source.

Every source location survives on its op or on the op's replacement, or is logged as erased. This is
checked op by op along the pass's records, so that two ops which swapped their locations are found,
although every line is still there. Used after each pass in debug runs and by the tests of each
pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.ir.location import Location, SourceLocation
from tkdebug.compiler.rewriting.rewriter import RewriteRecord
from tkdebug.errors import IRError

Places = frozenset[SourceLocation]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The ops of a module at one time, by id.

    Attributes:
        places: what each op stands for.
        inside: what the ops inside it stand for, where it has regions.
    """

    places: Mapping[int, Places]
    inside: Mapping[int, Places]

    @staticmethod
    def of(module: Module) -> Inventory:
        """Take stock of `module` as it is now."""
        places: dict[int, Places] = {}
        inside: dict[int, Places] = {}
        for op in module.walk():
            places[op.id] = _places(op.location)
            if op.regions:
                inside[op.id] = frozenset().union(*(_places(o.location) for o in op.walk()))
        return Inventory(places, inside)


def _places(location: Location) -> Places:
    return frozenset(location.sources)


class _Lineage:
    """The replacements of each op in one pass, by its records."""

    def __init__(self, records: Sequence[RewriteRecord]) -> None:
        self._by_old: dict[int, list[RewriteRecord]] = {}
        for record in records:
            for old in record.old_op_ids:
                self._by_old.setdefault(old, []).append(record)

    def covered(self, op_id: int, after: Inventory) -> Places:
        """The locations of an op, its replacements and what is in them, and the logged ones."""
        covered = set(after.places.get(op_id, ()))
        seen, waiting = {op_id}, [op_id]
        while waiting:
            current = waiting.pop()
            for record in self._by_old.get(current, ()):
                for erased in record.erased_locations:
                    covered |= _places(erased)
                for new in set(record.new_op_ids) - seen:
                    covered |= after.places.get(new, frozenset())
                    covered |= after.inside.get(new, frozenset())
                    seen.add(new)
                    waiting.append(new)
        return frozenset(covered)


def lost_places(
    before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> list[tuple[int, SourceLocation]]:
    """Op ids with locations that neither the op nor its replacements have any more."""
    lineage = _Lineage(records)
    return [
        (op_id, place)
        for op_id, places in before.places.items()
        if after.places.get(op_id) != places
        for place in sorted(places - lineage.covered(op_id, after), key=str)
    ]


def invented_places(before: Inventory, after: Inventory) -> list[tuple[int, SourceLocation]]:
    """Op ids with locations that no op had before: passes know no other source."""
    known = frozenset().union(*before.places.values())
    return [
        (op_id, place)
        for op_id, places in after.places.items()
        for place in sorted(places - known, key=str)
    ]


def unrecorded_ops(
    before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> frozenset[int]:
    """Ids of ops that came or went without a record."""
    old = {id_ for record in records for id_ in record.old_op_ids}
    new = {id_ for record in records for id_ in record.new_op_ids}
    gone, come = (
        before.places.keys() - after.places.keys(),
        after.places.keys() - before.places.keys(),
    )
    return frozenset((gone - old) | (come - new))


def check_provenance(
    pass_name: str, before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> None:
    """Check what a pass did against what it recorded.

    Raises:
        IRError: an op lost a place or has one that none had, or came or went unrecorded.
    """
    unrecorded = sorted(unrecorded_ops(before, after, records))
    if unrecorded:
        raise IRError(
            f"pass {pass_name} changed ops without a record: "
            + ", ".join(f"#{id_}" for id_ in unrecorded[:10])
        )
    lost = lost_places(before, after, records)
    if lost:
        op_id, place = lost[0]
        raise IRError(
            f"{place.file}:{place.line}: pass {pass_name} lost this source line{_more(lost)}: op "
            f"#{op_id} had it, neither the op nor its replacement does, and no record logs "
            "it as erased"
        )
    invented = invented_places(before, after)
    if invented:
        op_id, place = invented[0]
        raise IRError(
            f"{place.file}:{place.line}: pass {pass_name} gave this place to op "
            f"#{op_id}{_more(invented)}, and no op had it before"
        )


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""
