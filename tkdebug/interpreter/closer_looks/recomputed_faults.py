"""The faults of accesses that a GPU only flagged: computed again from the launch's arguments.

If arguments and program ids alone decide which elements are bad, a checked kernel reports only that
some are. Here only the ops run that compute addresses and masks of the flagged accesses, for all
programs; no memory is touched.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from tkdebug.compiler.analysis.launch_slice import Slice, decided_values, is_decided, slice_of
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, stored
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Block, Module, Operation, Value, fact_of
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.evaluator import Evaluator, Plan, Step
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory.bad_elements import BadElements
from tkdebug.interpreter.memory.buffer_access import plain_mask
from tkdebug.interpreter.memory.checked_access import Access, checked, narrowed
from tkdebug.interpreter.memory.descriptors import descriptor_access
from tkdebug.interpreter.memory.pointers import affine_of
from tkdebug.interpreter.rules import RULES
from tkdebug.interpreter.state import Batch
from tkdebug.interpreter.tiles.values import (
    AffineTile,
    BoxMask,
    DescriptorTile,
    PointerTile,
    TileValue,
)
from tkdebug.interpreter.torch_state import apart_from_the_script

if TYPE_CHECKING:
    from tkdebug.compiler.faults.facts import Offender
    from tkdebug.compiler.sites.checks import CheckSite
    from tkdebug.interpreter.memory.buffers import Buffer
    from tkdebug.records.events import Fault, FaultKind

_BATCH_BYTES = 64 << 20
_INDEX_BYTES = 8
_MOST_KNOWN = 64
# Most elements of an access that are tested one by one for being between those of a view.
_MOST_ELEMS = 1 << 22
# The largest view whose elements are listed, where no division finds them.
_MOST_HULL_ELEMS = 1 << 26
BETWEEN: Final = "between-elements"
# Copies of the offsets of an access whose elements are looked at.
_COPIES = 6
# The operand in the place of values that nothing here needs.
_UNNEEDED = Block([ir.I32]).arguments[0]


class RecomputedFaults:
    """The faults of launches of one module, computed once for equal launches.

    Args:
        module: the Tile IR, whose ops have the ids that sites name.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: OrderedDict[Hashable, list[Fault]] = OrderedDict()

    @classmethod
    def of(cls, module: Module) -> RecomputedFaults:
        """Return the object of a module, made when it is first asked for."""
        return fact_of(module, cls, cls)

    def find(
        self,
        sites: Sequence[CheckSite],
        values: Mapping[Value, TileValue],
        facts: Hashable,
        log: FaultLog,
        kind: FaultKind | None = None,
    ) -> list[Fault]:
        """Return the faults of some sites.

        Args:
            sites: sites of accesses that arguments and program ids decide.
            values: the values of the kernel's arguments, as far as they are known.
            facts: equal for launches with the same faults.
            log: an empty one, of the launch.
            kind: the kind of the faults; None for each site's own.

        Returns:
            The faults; an empty list if an argument that they depend on is not known.
        """
        key = facts, tuple(site.number for site in sites), kind
        if key in self._known:
            self._known.move_to_end(key)
        else:
            kinds = {site.op_id: kind or site.kind for site in sites}
            self._known[key] = self._compute(kinds, values, log)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return [replace(fault, launch_id=log.launch_id) for fault in self._known[key]]

    def _compute(
        self, kinds: Mapping[int, str], values: Mapping[Value, TileValue], log: FaultLog
    ) -> list[Fault]:
        module = self._module
        accesses = {op: _needed(op) for op in module.walk() if op.id in kinds}
        part = slice_of(accesses.items())
        arguments = module.function.regions[0].block.arguments
        if any(value in part.values and value not in values for value in arguments):
            return []
        plan = _slice_plan(module, part, frozenset(accesses))
        kept = _OnlyKinds(log, kinds)
        total, cpu = math.prod(log.grid), torch.device("cpu")
        size = max(1, min(total, _BATCH_BYTES // _bytes_per_program(part)))
        with apart_from_the_script(cpu):
            for first in range(0, total, size):
                count = min(size, total - first)
                run = Evaluator(plan, Batch(log.grid, first, count, cpu, kept, Fusion()))
                run.values[_UNNEEDED] = 0
                try:
                    given = [values.get(value, 0) for value in arguments]
                    run.run_kernel(module.function, given)
                finally:
                    run.release()
        return kept.publish()


class _OnlyKinds(FaultLog):
    """A log that keeps only faults of the kind of an op's site."""

    def __init__(self, log: FaultLog, kinds: Mapping[int, str]) -> None:
        super().__init__(log.kernel, log.launch_id, log.grid, False, log.arguments)
        self._kinds = kinds

    def wants_between(self, op: Operation) -> bool:
        """Whether accesses between elements are looked for."""
        return self._kinds.get(op.id) == BETWEEN

    def bad_access(
        self,
        op: Operation,
        kind: FaultKind,
        buffer: Buffer | None,
        offender: Offender,
        count: int,
        mask: Value | None,
        bad: BadElements | None = None,
    ) -> None:
        """Record a bad access, if it is looked for."""
        if self._kinds.get(op.id) == kind:
            super().bad_access(op, kind, buffer, offender, count, mask, bad)


def _slice_plan(module: Module, part: Slice, accesses: frozenset[Operation]) -> Plan:
    """Plan the ops of a slice.

    Args:
        module: the module of the slice.
        part: the slice.
        accesses: the accesses that are only tested.
    """
    steps: dict[Block, list[Step]] = {}
    for op in module.walk():
        for region in op.regions if op in part.ops else ():
            steps[region.block] = [
                _tested(inner) if inner in accesses else _step(inner, part)
                for inner in region.block.operations
                if inner in part.ops
            ]
    return Plan(steps, {})


def _step(op: Operation, part: Slice) -> Step:
    sources = tuple(value if value in part.values else _UNNEEDED for value in op.operands)
    return RULES[op.name], OpView(op), sources, op.results, None, ()


def _tested(op: Operation) -> Step:
    test = _test_block if tt.DescriptorBlockAccess.matches(op) else _test
    return test, OpView(op), _needed(op), op.results, None, ()


def decided_blocks(module: Module) -> frozenset[int]:
    """Return ids of accesses whose descriptor blocks are decided by arguments and program ids."""
    decided = decided_values(module)
    return frozenset(
        op.id
        for op in module.walk()
        if tt.DescriptorBlockAccess.matches(op) and is_decided(op, _needed(op), decided)
    )


def _needed(op: Operation) -> tuple[Value, ...]:
    """Return the values that give an access its addresses, and its mask if it has one."""
    block = tt.DescriptorBlockAccess.cast(op)
    if block is not None:
        return (block.descriptor, *block.offsets)
    pointer, masked = PointerAccess(op).pointer, MaskedAccess.cast(op)
    return (pointer,) if masked is None or masked.mask is None else (pointer, masked.mask)


def _test(
    run: Evaluator, view: OpView, pointer: TileValue, mask: TileValue = 1
) -> Sequence[TileValue]:
    """Report the bad elements of an access; its results are zeros, which nothing uses."""
    op, results = view.op, (0,) * len(view.op.results)
    mask = plain_mask(run, mask)
    if isinstance(mask, int) and not mask:
        return results
    assert isinstance(pointer, PointerTile)
    type_ = PointerAccess(op).pointer.type
    tile = affine_of(run, pointer.offset, ir.shape_of(type_))
    _report(run, Access(op, _kind(op), type_, pointer.buffer, tile, mask))
    return results


def _test_block(
    run: Evaluator, view: OpView, descriptor: TileValue, *offsets: TileValue
) -> Sequence[TileValue]:
    """Report the bad elements of a block that are inside the descriptor's shape; return zeros."""
    op, results = view.op, (0,) * len(view.op.results)
    type_ = op.result.type if op.results else stored(op).type
    assert isinstance(descriptor, DescriptorTile)
    shape = ir.shape_of(type_)
    pointer, mask = descriptor_access(run, descriptor, shape, offsets)
    if isinstance(pointer, PointerTile) and not (isinstance(mask, int) and not mask):
        tile = affine_of(run, pointer.offset, shape)
        _report(run, Access(op, _kind(op), type_, pointer.buffer, tile, mask))
    return results


def _report(run: Evaluator, access: Access) -> None:
    """Report the bad elements of an access."""
    tile = access.tile
    if not _is_legal(access) and not _is_too_large(run, access):
        suspects = _suspects(run, access)
        for programs in torch.split(suspects, _programs_at_once(tile)):
            checked(run, narrowed(run, access, programs))


def _suspects(run: Evaluator, access: Access) -> Tensor:
    """Return the programs whose minimum or maximum offset is outside the tensor.

    If offsets do not differ by program, or accesses between elements are looked for, return all
    active programs.
    """
    tile = access.tile
    suspect = torch.ones(run.programs, dtype=torch.bool) if run.active is None else run.active
    if tile.base is not None and not _wants_between(run, access):
        rest = [coef * (extent - 1) for coef, extent in zip(tile.coefs, tile.shape, strict=True)]
        base = tile.base.tensor.reshape(tile.base.shape[0], -1)
        low = base.amin(1) + tile.const + sum(min(0, one) for one in rest)
        high = base.amax(1) + tile.const + sum(max(0, one) for one in rest)
        suspect = suspect & ((low < 0) | (high >= access.buffer.hull_elems))
    return suspect.nonzero().reshape(-1)


def _wants_between(run: Evaluator, access: Access) -> bool:
    return isinstance(run.faults, _OnlyKinds) and run.faults.wants_between(access.op)


def _is_too_large(run: Evaluator, access: Access) -> bool:
    """Whether a search between elements would have to look at too many of them."""
    if not _wants_between(run, access):
        return False
    elems, buffer = run.programs * math.prod(access.shape), access.buffer
    return elems > _MOST_ELEMS or (not buffer.is_nested() and buffer.hull_elems > _MOST_HULL_ELEMS)


def _programs_at_once(tile: AffineTile) -> int:
    return max(1, _BATCH_BYTES // (_COPIES * _INDEX_BYTES * math.prod(tile.shape)))


def _kind(op: Operation) -> FaultKind:
    if tt.Load.matches(op) or tt.DescriptorLoad.matches(op):
        return "oob-load"
    is_store = tt.Store.matches(op) or tt.DescriptorStore.matches(op)
    return "oob-store" if is_store else "oob-atomic"


def _is_legal(access: Access) -> bool:
    """Whether an access is proved legal by its affine tile, without listing its elements."""
    tile, mask = access.tile, access.mask
    if isinstance(mask, BoxMask) and mask.uniform_box is not None:
        tile = tile.cropped(mask.uniform_box)
    return access.buffer.proves_legal(tile)


def _bytes_per_program(part: Slice) -> int:
    """Estimate the bytes of a slice in one program: offsets along each value's longest axis."""
    return max(
        _INDEX_BYTES,
        sum(_INDEX_BYTES * max(ir.shape_of(value.type), default=1) for value in part.values),
    )
