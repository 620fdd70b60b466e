"""Tensor descriptors that programs make, and whether they have the alignment that TMA asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.interpreter.memory.descriptor_blocks import tile_scalar
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    DescriptorTile,
    IntTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def make_descriptor(
    run: Evaluator, view: tt.MakeTensorDescriptor, base: TileValue, *rest: IntTile
) -> DescriptorTile:
    """tt.make_tensor_descriptor."""
    assert isinstance(base, PointerTile | AddressTile)
    rank = len(rest) // 2
    descriptor = DescriptorTile(base, rest[:rank], rest[rank:], view.padding)
    _check_alignment(run, view, descriptor)
    return descriptor


def _check_alignment(
    run: Evaluator, view: tt.MakeTensorDescriptor, descriptor: DescriptorTile
) -> None:
    """Record a base or a stride that is no multiple of `tt.DESCRIPTOR_ALIGNMENT_BYTES`."""
    base = descriptor.base
    name = base.buffer.name if isinstance(base, PointerTile) else None
    size = base.buffer.itemsize if isinstance(base, PointerTile) else base.itemsize
    parts = [("address", _address(run, descriptor))]
    strides = enumerate(descriptor.strides[:-1])
    parts += [(f"stride {axis}", _scalar(run, stride) * size) for axis, stride in strides]
    active = run.active
    found = {}
    for part, value in parts:
        bad = (value % tt.DESCRIPTOR_ALIGNMENT_BYTES != 0).expand(run.programs)
        bad = bad if active is None else bad & active
        if bool(bad.any()):
            found[part] = (bad, run.offender(bad, value, None))
    if found:
        part, (bad, offender) = next(iter(found.items()))
        programs = torch.stack([bad for bad, _ in found.values()]).any(0)
        run.faults.misaligned_descriptor(view.op, name, part, offender, int(programs.sum()))


def _address(run: Evaluator, descriptor: DescriptorTile) -> Tensor:
    """Bytes from the beginning of the allocation, which is aligned on every device."""
    base = descriptor.base
    if isinstance(base, PointerTile):
        offset = _scalar(run, base.offset) + base.buffer.storage_offset
        return offset * base.buffer.itemsize
    return _scalar(run, base.address)


def _scalar(run: Evaluator, value: IntTile) -> Tensor:
    """A value for each program, or one for all of them: int64, one axis."""
    return run.materialize(tile_scalar(value, ())).reshape(-1)
