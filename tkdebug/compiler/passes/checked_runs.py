"""Checks and prints around passes in debug runs, and always around a plugin's.

Every pass keeps provenance: every source location survives on its op or on the op's replacement,
or is logged as erased. This is checked op by op along the pass's records, so that two ops which
swapped their locations are found, although every line is still there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tkdebug.compiler.ir.core import Module, Value
from tkdebug.compiler.ir.location import Location, SourceLocation
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.pass_run import ForeignPass, PassRun, RunCallback, run_pass
from tkdebug.compiler.rewriting.copies import SavedModule
from tkdebug.compiler.rewriting.rewriter import RewriteRecord
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError
from tkdebug.terminal.text import tell

Places = frozenset[SourceLocation]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The ops of a module at one time, by id.

    Attributes:
        places: source locations of each op.
        inside: source locations of the ops inside it, if it has regions.
    """

    places: Mapping[int, Places]
    inside: Mapping[int, Places]

    @staticmethod
    def of(module: Module) -> Inventory:
        """Return the inventory of `module` as it is now."""
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
    """The replacements of each op by one pass, from the records of the pass."""

    def __init__(self, records: Sequence[RewriteRecord]) -> None:
        self._by_old: dict[int, list[RewriteRecord]] = {}
        for record in records:
            for old in record.old_op_ids:
                self._by_old.setdefault(old, []).append(record)

    def covered(self, op_id: int, after: Inventory) -> Places:
        """The locations of an op, its replacements and ops in them, and those logged as erased."""
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
    """Return pairs of an op id and a location of it that was neither kept nor logged as erased."""
    lineage = _Lineage(records)
    return [
        (op_id, place)
        for op_id, places in before.places.items()
        if after.places.get(op_id) != places
        for place in sorted(places - lineage.covered(op_id, after), key=str)
    ]


def invented_places(before: Inventory, after: Inventory) -> list[tuple[int, SourceLocation]]:
    """Return pairs of an op id and a location of it that no op had before the pass."""
    known = frozenset().union(*before.places.values())
    return [
        (op_id, place)
        for op_id, places in after.places.items()
        for place in sorted(places - known, key=str)
    ]


def unrecorded_ops(
    before: Inventory, after: Inventory, records: Sequence[RewriteRecord]
) -> frozenset[int]:
    """Return ids of ops that appeared or vanished without a record."""
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
    """Check the changes of a pass against its records.

    Raises:
        IRError: an op lost a place, has a place that no op had, or appeared or vanished unrecorded.
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


def run_foreign(pass_: ForeignPass, module: Module) -> PassRun:
    """Run a plugin's pass and check its module; if either fails, restore the module.

    Returns:
        The run; its `error` is the plugin's problem if the pass failed, now or earlier.
    """
    if pass_.plugin.problem:
        return PassRun(pass_.name, 0, (), pass_.plugin.problem)
    saved, before = SavedModule(module), Inventory.of(module)
    start_ns = time.perf_counter_ns()
    try:
        run = run_pass(pass_, module, None)
        verify(module)
        check_provenance(run.name, before, Inventory.of(module), run.records)
    except Exception as error:  # another distribution's code may raise anything
        time_ns = time.perf_counter_ns() - start_ns
        saved.restore()
        pass_.plugin.fail(error)
        return PassRun(pass_.name, time_ns, (), pass_.plugin.problem)
    return run


@dataclass(frozen=True, slots=True)
class Verified:
    """A module when it was last verified.

    Attributes:
        inventory: its ops.
        state: everything in the module that `verify` reads.
    """

    inventory: Inventory
    state: Sequence[object]


def _state(module: Module) -> list[object]:
    found: list[object] = []
    values: list[Value] = []
    for op in module.walk():
        found += (op, op.id, op.name, op.location, op.block, op.operands, dict(op.attributes))
        values += op.results
        for region in op.regions:
            found += (region, region.parent)
            for block in region.blocks:
                found += (block, block.region)
                values += block.arguments
    for value in values:
        found += (value, value.type, value.owner, value.index, dict(value.uses))
    return found


def verified(module: Module) -> Verified:
    """Verify a module before the first pass, and return its state.

    Raises:
        IRError: the module is broken.
    """
    verify(module)
    return Verified(Inventory.of(module), _state(module))


def check_run(
    run: PassRun, module: Module, before: Verified, on_run: RunCallback | None
) -> Verified:
    """Check the module after a pass; return its state, which is `before` if nothing changed.

    Raises:
        IRError: the pass left the module broken; `on_run` is called first.
    """
    state = _state(module)
    if not run.records and state == before.state:
        return before
    try:
        verify(module)
        after = Inventory.of(module)
        check_provenance(run.name, before.inventory, after, run.records)
    except IRError as error:
        if on_run is not None:
            on_run(replace(run, error=str(error)), module)
        if run.name in str(error):
            raise
        broken = IRError(f"{error} (after pass {run.name})")
        broken.__notes__ = getattr(error, "__notes__", [])
        raise broken from error
    return Verified(after, state)


def show(run: PassRun, module: Module) -> None:
    """Print the module on stderr as the pass left it."""
    tell(f"IR of {module.name} after {run.name}:\n{print_module(module)}")
