"""Counts of a launch: how often each block runs, and the elements that each access touches.

Responsible for exact counts and for a few addresses of each access, from which requests of warps
follow once its layout is known. Not responsible for their cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.ir import Operation, Region
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import TileValue

# Executions of an access whose addresses are kept, each of so many programs.
_MOST_SAMPLES = 12
_ROWS_OF_SAMPLE = 2
# Elements that are listed one by one in a launch; beyond, gathers are counted by sample.
_MOST_LISTED = 1 << 26
_SECTOR_BYTES = 32


@dataclass(slots=True)
class AccessProfile:
    """One access of a kernel, in all its executions.

    Attributes:
        tensor: name of the argument that it was last on.
        executions: the number of executions by all programs together.
        elements: elements that masks let through, in all executions.
        samples: single executions, on the CPU: byte addresses (n,) and positions in the tile (n,).
        compared: executions that were compared with the one before of the same program.
        repeated: the executions that had the same addresses as an earlier one.
        sectors: the sectors of the compared executions, summed.
        kept_sectors: of `sectors`, those that the previous execution touched as well.
    """

    op: Operation
    kind: str
    itemsize: int
    shape: tuple[int, ...]
    tensor: str = ""
    executions: int = 0
    elements: int = 0
    samples: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    compared: int = 0
    repeated: int = 0
    sectors: int = 0
    kept_sectors: int = 0
    calls: int = 0
    exact: bool = True
    last: dict[int, tuple[int, Tensor]] = field(default_factory=dict)


class Footprint:
    """The sectors and elements of one allocation that were accessed through one op."""

    def __init__(self, buffer: Buffer, device: torch.device) -> None:
        self.itemsize = buffer.itemsize
        count = buffer.tensor.untyped_storage().nbytes() // self.itemsize
        self.seen = torch.zeros(count, dtype=torch.bool, device=device)

    @property
    def element_bytes(self) -> int:
        """Bytes of the accessed elements, each counted once."""
        return int(self.seen.sum()) * self.itemsize


def sectors_of(footprints: Sequence[Footprint]) -> int:
    """Count the sectors of one allocation that any of the footprints touched."""
    union: Tensor | None = None
    for footprint in footprints:
        per = max(1, _SECTOR_BYTES // footprint.itemsize)
        padded = torch.nn.functional.pad(footprint.seen, (0, -footprint.seen.numel() % per))
        sectors = padded.view(-1, per).any(1)
        if union is None or union.numel() < sectors.numel():
            union, sectors = sectors, union if union is not None else sectors
        union[: sectors.numel()] |= sectors
    return 0 if union is None else int(union.sum())


class LaunchProfile(Observer):
    """Counts one launch.

    Attributes:
        programs: the programs of the grid.
        entered: the number of programs that entered each region of control flow, each iteration
            counted.
        accesses: the accesses by op, in the order in which they first ran.
        footprints: the footprints by storage and op.
        most_per_address: by op of an atomic, most times that one address was accessed.
        selects: executions of each select on tiles, and executions that took nothing of its first
            value.
        gathers: by tl.gather, the indices of its first execution by one program, on the CPU.
    """

    follows_accesses = True
    is_passive = True

    def __init__(self) -> None:
        self.programs = 0
        self.entered: dict[Region, int] = {}
        self.accesses: dict[Operation, AccessProfile] = {}
        self.footprints: dict[tuple[int, Operation], Footprint] = {}
        self.most_per_address: dict[Operation, Tensor] = {}
        self.selects: dict[Operation, tuple[int, int]] = {}
        self.gathers: dict[Operation, Tensor] = {}
        self._listed = 0

    def moments(self, op: Operation) -> Moments:
        """Ask to be called at the edges of regions, and before selects and gathers."""
        if scf.Loop.matches(op) or scf.If.matches(op):
            return Moments.REGIONS
        is_select = arith.Select.matches(op) and isinstance(op.results[0].type, ir.TensorType)
        return Moments.BEFORE if is_select or tt.Gather.matches(op) else Moments.NEVER

    def launch_begins(self, launch: LaunchContext) -> None:
        """Count programs."""
        x, y, z = launch.grid
        self.programs = x * y * z

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Count the programs that enter."""
        self.entered[region] = self.entered.get(region, 0) + _active(run)

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Count selects that throw a tile away; keep indices of gathers."""
        if tt.Gather.matches(op):
            self._keep_indices(run, op, operands[1])
            return
        total, nothing = self.selects.get(op, (0, 0))
        if total > 64 * self.programs:
            return
        condition = run.dense(operands[0], arith.Select(op).condition.type)
        rows = condition.reshape(condition.shape[0], -1)
        empty = ~rows.any(1)
        if rows.shape[0] == 1:  # which stands for all programs
            gone = int(empty) * _active(run)
        else:
            gone = int((empty if run.active is None else empty & run.active).sum())
        self.selects[op] = total + _active(run), nothing + gone

    def _keep_indices(self, run: Evaluator, op: Operation, indices: TileValue) -> None:
        if op in self.gathers:
            return
        type_ = tt.Gather(op).indices.type
        dense = run.dense(indices, type_)
        active = run.active
        row = 0 if active is None or dense.shape[0] == 1 else int(active.int().argmax())
        self.gathers[op] = dense[row].expand(ir.shape_of(type_)).cpu()

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Count a load."""
        self._count(run, access, "load")

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Count a store."""
        self._count(run, access, "store")

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Count an atomic, by address too."""
        self._count(run, access, "atomic")
        if self._may_list(access):
            places = access.touch().places
            buffer = access.buffer
            count = buffer.tensor.untyped_storage().nbytes() // buffer.itemsize
            counted = torch.bincount(places, minlength=count)
            known = self.most_per_address.get(access.op)
            if known is not None and known.numel() == counted.numel():
                counted += known
            self.most_per_address[access.op] = counted

    def _count(self, run: EvaluatorState, access: ObservedAccess, kind: str) -> None:
        profile = self.accesses.get(access.op)
        if profile is None:
            profile = AccessProfile(access.op, kind, access.itemsize, access.shape)
            self.accesses[access.op] = profile
        profile.tensor = access.buffer.name or ""
        rows = access.rows()
        profile.executions += _active(run) if rows is None else rows
        self._mark(access, profile)
        call, profile.calls = profile.calls, profile.calls + 1
        wanted = call < 4 or call & (call - 1) == 0
        if wanted and len(profile.samples) < _MOST_SAMPLES * _ROWS_OF_SAMPLE:
            self._sample(access, profile, rows)

    def _mark(self, access: ObservedAccess, profile: AccessProfile) -> None:
        """Note the touched elements; they are counted if that is cheap or they are not too many."""
        key = access.buffer.storage_key, access.op
        footprint = self.footprints.get(key)
        if footprint is None or footprint.itemsize != access.itemsize:
            device = access.buffer.tensor.device
            footprint = self.footprints[key] = Footprint(access.buffer, device)
        slabs = access.hyperslabs()
        if slabs is not None:
            for slab in slabs:
                slab.view(footprint.seen)[...] = True
                profile.elements += slab.count
        elif self._may_list(access):
            touched = access.touch()
            footprint.seen[touched.places] = True
            profile.elements += touched.places.numel()
            self._listed += touched.places.numel()
        else:
            profile.exact = False

    def _may_list(self, access: ObservedAccess) -> bool:
        return self._listed < _MOST_LISTED

    def _sample(self, access: ObservedAccess, profile: AccessProfile, rows: int | None) -> None:
        if rows is None:
            if not self._may_list(access):
                return
            touched = access.touch()
            chosen = touched.programs[:1] if touched.programs.numel() else touched.programs
        elif rows:
            picked = torch.tensor([0] if rows < 3 else [0, rows // 2])
            touched = access.touch_rows(picked)
            chosen = torch.unique(touched.programs)
        else:
            return
        for program in chosen.tolist():
            self._keep(profile, access, touched.chosen(touched.programs == program), program)

    def _keep(
        self, profile: AccessProfile, access: ObservedAccess, touched: Touched, program: int
    ) -> None:
        addresses = (touched.places * access.itemsize).cpu()
        last, storage = profile.last.get(program), access.buffer.storage_key
        if last is not None and profile.calls <= 4:
            profile.compared += 1
            is_same = last[0] == storage
            profile.repeated += is_same and torch.equal(last[1], addresses)
            before, now = (torch.unique(one // _SECTOR_BYTES) for one in (last[1], addresses))
            profile.sectors += now.numel()
            profile.kept_sectors += is_same and int(torch.isin(now, before).sum())
        profile.last[program] = storage, addresses
        profile.samples.append((addresses, touched.lanes.cpu()))


def _active(run: EvaluatorState) -> int:
    return run.programs if run.active is None else int(run.active.sum())
