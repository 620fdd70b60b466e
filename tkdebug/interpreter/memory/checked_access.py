"""One access to memory: its elements, which of them are illegal, and the fault for these.

Responsible for which elements of an access may be touched and for reporting the others; the load or
store itself is in `buffer_access` and above. Every access is checked against the tensor as passed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import MaskedAccess
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.bad_elements import bad_elements
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.pointers import offsets_of
from tkdebug.interpreter.numerics.scans import any_true
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import AddressTile, AffineTile, PointerTile, TileValue
from tkdebug.records.events import FaultKind

if TYPE_CHECKING:
    from tkdebug.interpreter.state import EvaluatorState


class Access:
    """One load, store or atomic of some programs: its offsets, mask and op.

    Attributes:
        type: the type of the tile that is read or written.
        programs: their positions in the batch, None for all.
    """

    __slots__ = ("buffer", "kind", "mask", "op", "programs", "shape", "tile", "type")

    def __init__(
        self,
        op: Operation,
        kind: FaultKind,
        type_: ir.Type,
        buffer: Buffer,
        tile: AffineTile,
        mask: TileValue,
        programs: Tensor | None = None,
    ) -> None:
        self.op = op
        self.kind = kind
        self.type = type_
        self.buffer = buffer
        self.tile = tile
        self.mask = mask
        self.programs = programs
        self.shape = tile.shape

    @property
    def mask_value(self) -> Value | None:
        """The IR value of the mask, for the hint."""
        return mask_of(self.op)


def mask_of(op: Operation) -> Value | None:
    """The IR value of an access's mask, None without one."""
    access = MaskedAccess.cast(op)
    return None if access is None else access.mask


def loaded_type(op: Operation) -> ir.Type:
    """Return the type that an op reads from memory, into a result or into a buffer."""
    if not op.results:
        buffer = ttng.BulkCopy(op).buffer.type
        return ir.tile(ir.shape_of(buffer), ir.element_of(buffer))
    type_ = op.results[0].type
    if isinstance(type_, ir.TokenType):
        pointer = ttg.AsyncCopyGlobalToLocal(op).pointer.type
        element = ir.element_of(pointer)
        assert isinstance(element, ir.PointerType)
        return ir.with_element(pointer, element.pointee)
    return type_


def is_block(op: Operation) -> bool:
    """Whether an op accesses a block: elements outside its bounds are not its program's."""
    blocks = tt.Load.cast(op) or tt.Store.cast(op)
    checks = blocks is not None and blocks.boundary_check is not None
    return checks or tt.DescriptorAccess.matches(op)


# Some of the programs


def narrowed(run: EvaluatorState, access: Access, chosen: Any) -> Access:
    """Return the access of some programs only."""
    tile = access.tile
    if tile.base is not None and tile.base.shape[0] > 1:
        base = Base(tile.base.tensor[chosen])
        tile = AffineTile(tile.const, base, tile.coefs, tile.shape)
    mask = run.masks.select_programs(access.mask, chosen)
    programs = access.programs
    if programs is None:
        programs = torch.arange(run.programs, device=run.device)
    return Access(access.op, access.kind, access.type, access.buffer, tile, mask, programs[chosen])


def narrow_value(run: EvaluatorState, value: TileValue | None, op: Operation, chosen: Any) -> Any:
    """Return a load's `value`, which all programs have, for the chosen programs."""
    if value is None or isinstance(value, int):
        return value
    tensor = run.dense(value, loaded_type(op))
    return tensor if tensor.shape[0] == 1 else tensor[chosen]


def widened(run: EvaluatorState, op: Operation, value: TileValue, chosen: Tensor) -> TileValue:
    """Return the results of the chosen programs at their places among all; zeros elsewhere."""
    if isinstance(value, PointerTile | AddressTile):
        return value
    tensor = run.dense(value, loaded_type(op))
    if tensor.shape[0] == 1:
        return tensor
    out = torch.zeros((run.programs, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    out[chosen] = tensor
    return out


def leading(full: Tensor) -> int:
    """Count the true entries of `full` before its first false one."""
    breaks = (~full).nonzero()
    return full.shape[0] if breaks.shape[0] == 0 else int(breaks[0, 0])


def programs_of(run: EvaluatorState, access: Access) -> int:
    """Return the number of programs of an access."""
    return run.programs if access.programs is None else access.programs.shape[0]


# Bounds


def checked(run: EvaluatorState, access: Access) -> tuple[Tensor, Tensor | None]:
    """Report bad elements; return the offsets, and the elements that are on and legal.

    The mask is None if that is all of them.
    """
    offsets = offsets_of(run, access.tile, access.buffer.itemsize)
    allowed: Tensor | None = None
    if not isinstance(access.mask, int):
        allowed = run.dense(access.mask, ir.tile(access.shape, ir.I1))
    elif not access.mask:
        # Some programs that are all masked off: nothing of them is bad.
        return offsets, torch.zeros_like(offsets, dtype=torch.bool)
    if access.buffer.proves_legal(access.tile):
        return offsets, allowed
    outside = access.buffer.outside(offsets)
    if not access.buffer.is_dense:
        # Memory of the same allocation: reported as a warning, and done as the GPU would.
        between = access.buffer.between(offsets)
        _report(run, access, "between-elements", between, offsets, allowed)
    _report(run, access, access.kind, outside, offsets, allowed)
    legal = ~outside
    return offsets, legal if allowed is None else torch.logical_and(allowed, legal)


def _report(
    run: EvaluatorState,
    access: Access,
    kind: FaultKind,
    bad: Tensor,
    offsets: Tensor,
    allowed: Tensor | None,
) -> None:
    if allowed is not None:
        bad = bad & allowed
    if not any_true(bad):
        return
    # A batch of extent 1 stands for every active program.
    programs = access.programs
    count = programs_of(run, access)
    if bad.shape[0] != count and programs is None and run.active is not None:
        programs = run.active.nonzero().reshape(-1)
        count = programs.shape[0]
    whole = bad.expand(count, *access.shape)
    # Elements that a block leaves out are not its program's to access; masked-off elements may be.
    inside = allowed if is_block(access.op) else None
    offender = run.offender(whole, offsets.expand(whole.shape), programs, inside)
    row = int(whole.reshape(count, -1).any(1).to(torch.uint8).argmax())
    if allowed is None or bool(allowed.expand(whole.shape)[row].all()):
        offender = replace(offender, is_unmasked=True)
    run.faults.bad_access(
        access.op,
        kind,
        access.buffer,
        offender,
        int(whole.sum()),
        access.mask_value,
        bad_elements(run, access, whole, offsets, programs, row),
    )
