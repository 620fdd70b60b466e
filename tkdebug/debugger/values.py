"""Values of variables at a stop, for some programs, and the buffers of their shared memory.

Values are copies: tensors that do not change any more. Their first axis is the axis of programs, in
the order in which they were asked for. A buffer in shared memory has its slots, and the copies that
are on their way to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.dtypes import LanguageType, dtype
from tkdebug.compiler.ir import MemDescType, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.tensor import block_pointer, tensor, tensor_descriptor
from tkdebug.interpreter.asynchronous import mbarrier_text
from tkdebug.interpreter.memory.shared_buffers import indices, poison_of, read_view
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

_UNCOMMITTED = "in no group yet"


@dataclass(frozen=True, slots=True)
class InFlight:
    """A copy or a dot that was started and not waited for.

    Attributes:
        op: the op that started it.
        group: "group 1 of 2", the oldest first; "" for one without a group.
    """

    op: Operation
    group: str


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One buffer of a ring, or the only one.

    Attributes:
        copies: copies on their way to it.
        data: its contents, of the buffer's shape.
        is_poison: whether nothing was written to it, or a copy has begun to overwrite it.
        mbarrier: the text of its mbarrier, if it is one; "" if not.
    """

    copies: tuple[InFlight, ...]
    data: Tensor
    is_poison: bool
    mbarrier: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SharedBuffer:
    """A buffer that a `ttg.local_alloc` has made.

    Attributes:
        offset_bytes: the place in the program's shared memory; None before allocate-shared.
    """

    value: Value
    op: Operation
    offset_bytes: int | None
    size_bytes: int
    slots: tuple[Slot, ...]


def buffers(run: Evaluator, position: int) -> list[SharedBuffer]:
    """The buffers that are in use, in the order of their ops.

    Args:
        run: the batch.
        position: the position of the program in it.
    """
    found = []
    for value, held in run.values.items():
        op, type_ = value.defining_op, value.type
        if op is None or not ttg.LocalAlloc.matches(op) or not isinstance(held, BufferView):
            continue
        assert isinstance(type_, MemDescType)
        slots = tuple(
            _slot(run, held, type_, index, position) for index in range(held.storage.shape[1])
        )
        offset = ttg.LocalAlloc(op).offset
        found.append(SharedBuffer(value, op, offset, type_.size_bytes, slots))
    return sorted(found, key=lambda one: one.op.id)


def is_being_filled(run: Evaluator, view: BufferView, position: int) -> bool:
    """Whether, for a program, a copy is on its way to the elements in a view of one buffer."""
    index = 0 if view.index is None else int(indices(run, view.index)[position])
    return any(_copies(run, view, index, position))


def running(run: Evaluator, position: int) -> list[InFlight]:
    """Dots and copies to memory that were started and not waited for."""
    found = []
    for what, queue in (("dots", run.in_flight.dots), ("stores", run.in_flight.bulk_stores)):
        groups = [one for one in queue.groups if one.waiting is None or bool(one.waiting[position])]
        for place, group in enumerate(groups, 1):
            text = f"group {place} of {len(groups)} of {what}"
            found += [InFlight(op, text) for op in group.ops]
    return found


def _slot(run: Evaluator, held: BufferView, type_: MemDescType, index: int, position: int) -> Slot:
    storage = held.storage
    data = storage[min(position, storage.shape[0] - 1), index].clone()
    copies = tuple(_copies(run, held, index, position))
    poison = poison_of(run, type_).reshape(-1)[0]
    is_poison = bool((_bits_equal(data, poison)).all())
    mbarrier = "" if ir.element_of(type_) != ir.I64 or is_poison else mbarrier_text(data)
    return Slot(copies, data, is_poison, mbarrier)


def _bits_equal(data: Tensor, poison: Tensor) -> Tensor:
    return data.isnan() if data.dtype.is_floating_point else data == poison


def _copies(run: Evaluator, held: BufferView, index: int, position: int) -> Iterator[InFlight]:
    groups = [
        group
        for group in run.in_flight.copies.groups
        if group.waiting is None or bool(group.waiting[position])
    ]
    for place, group in enumerate(groups, 1):
        for copy in group.copies:
            if _is_at(run, copy.view, copy.programs, held, index, position):
                yield InFlight(copy.op, f"group {place} of {len(groups)}")
    for copy in run.in_flight.uncommitted:
        if _is_at(run, copy.view, copy.programs, held, index, position):
            yield InFlight(copy.op, _UNCOMMITTED)
    for load in run.in_flight.bulk_loads:
        if _is_at(run, load.view, load.programs, held, index, position):
            yield InFlight(load.op, "")


def _is_at(
    run: Evaluator,
    view: BufferView,
    programs: Tensor | None,
    held: BufferView,
    index: int,
    position: int,
) -> bool:
    """Whether a copy fills a slot of a buffer, for a program."""
    if programs is not None and not bool(programs[position]):
        return False
    at: BufferView | None = view
    while at is not None:
        is_chosen = at.chosen is None or bool(at.chosen[position])
        if is_chosen and at.storage.data_ptr() == held.storage.data_ptr():
            place = torch.as_tensor(0) if at.index is None else indices(run, at.index)[position]
            if int(place) == index:
                return True
        at = at.other
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """The numbers of a scalar or a tile, in some programs.

    Attributes:
        data: (programs, *shape), of the type's torch dtype; unsigned integers of less than 64 bits
            are int64, as most of torch cannot compute with the others.
        type: the type as the language writes it: `fp32`, `<['64', '64'], fp32>`.
        is_tile: False for a scalar, whose shape is ().
    """

    data: Tensor
    type: str
    is_tile: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape without the axis of programs."""
        return tuple(self.data.shape[1:])


@dataclass(frozen=True, slots=True, eq=False)
class Pointers:
    """Pointers into one tensor, or byte addresses.

    Attributes:
        name: the kernel's argument, None if it is not known.
        tensor: the tensor that they point into, as it was passed; None if it is not known.
        offsets: (programs, *shape) int64: elements from the tensor's first; bytes without a tensor.
        type: the type as the language writes it.
    """

    name: str | None
    tensor: Tensor | None
    offsets: Tensor
    type: str

    @property
    def is_whole_tensor(self) -> bool:
        """Whether it is a scalar pointer to a tensor's first element, as it was passed."""
        return self.offsets.dim() == 1 and self.tensor is not None and not self.offsets.any()


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """A tensor descriptor or a block pointer.

    Attributes:
        parts: its parts by name: base, shape, strides, and a block pointer's offsets.
        block_shape: the shape of the blocks that it loads and stores.
    """

    kind: str
    parts: dict[str, Reading]
    block_shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A Python object that was known when the kernel was compiled."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A buffer in shared memory, several of one kind, or a view of one.

    Attributes:
        data: (programs, *shape), several buffers along the first axis of the shape; poison where
            nothing was written, or a copy is on its way.
        type: the type as the IR writes it, without the layout.
    """

    data: Tensor
    type: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A variable without a value, and why, as the end of "it is not available: …"."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class PerProgram:
    """The values of an expression in each of several programs.

    Attributes:
        values: the values, in the order of the programs.
        data: (programs, *shape): the same as one tensor; None if they do not all have one shape and
            type of number.
        is_tile: whether `values` are tensors.
    """

    values: Sequence[Any]
    data: Tensor | None
    is_tile: bool

    @classmethod
    def of(cls, values: Sequence[Any]) -> PerProgram:
        """Make it of values of any kind."""
        first, data = values[0], None
        if isinstance(first, Tensor):
            kinds = {(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in values}
            data = torch.stack(list(values)) if len(kinds) == 1 else None
            return cls(values, data, first.dim() > 0)
        if {_number_type(x) for x in values} in ({bool}, {int}, {float}):
            kind = torch.float64 if isinstance(first, float) else None
            with suppress(RuntimeError, OverflowError, ValueError):  # ints of more than 64 bits
                data = torch.tensor(values, dtype=kind)
        return cls(values, data, False)

    @classmethod
    def of_rows(cls, data: Tensor, is_tile: bool) -> PerProgram:
        """Make it of a tensor with an axis of programs."""
        return cls(data.unbind(0) if is_tile else data.tolist(), data, is_tile)


def _number_type(value: Any) -> type | None:
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)


Reading = Tile | Pointers | Described | Constant | Buffer | Unavailable | tuple[Any, ...]

_DEAD = Unavailable("its value is not computed yet here, or no longer kept")
_REFILLED = Unavailable("it was in shared memory, which is being filled for another round")
_RUNNING = Unavailable(
    "an asynchronous dot is still computing it, until a ttng.warp_group_dot_wait"
)


def read(run: Evaluator, value: Any, positions: Tensor) -> Reading:
    """Read a front end's `value` for the programs at batch `positions`."""
    match value:
        case tensor():
            return _read_value(run, value.value, value.type, positions)
        case tensor_descriptor():
            found = run.values.get(value.value)
            base: Reading = _DEAD
            if isinstance(found, DescriptorTile):
                base = _pointers(run, found.base, "pointer", positions, ())
            parts = {
                "base": base,
                "shape": read(run, value.shape, positions),
                "strides": read(run, value.strides, positions),
            }
            return Described("descriptor", parts, value.block_shape)
        case block_pointer():
            parts = {
                name: read(run, getattr(value, name), positions)
                for name in ("base", "shape", "strides", "offsets")
            }
            return Described("block pointer", parts, value.block_shape)
        case tuple():
            return tuple(read(run, item, positions) for item in value)
        case _:
            return Constant(value)


def _read_value(run: Evaluator, value: Value, type_: LanguageType, positions: Tensor) -> Reading:
    found = run.values.get(value)
    if found is None:
        return _DEAD
    if isinstance(found, Tensor) and found in run.in_flight.pending:
        return _RUNNING
    if isinstance(found, PointerTile | AddressTile):
        return _pointers(run, found, str(type_), positions, ir.shape_of(value.type))
    if isinstance(found, BufferView):
        if any(is_being_filled(run, found, place) for place in positions.tolist()):
            return _REFILLED
        return Tile(_of_buffer(run, found, positions), str(type_), True)
    data = _rows(run, found, value, positions)
    element = type_.scalar
    if isinstance(element, dtype) and element.is_int_unsigned() and not element.is_bool():
        bits = element.primitive_bitwidth
        if bits < 64:
            data = data.to(torch.int64) & ((1 << bits) - 1)
    return Tile(data, str(type_), bool(ir.shape_of(value.type)) or type_.is_block())


def read_ir_value(run: Evaluator, value: Value, positions: Tensor) -> Reading:
    """Read a value of the IR for the programs at batch `positions`."""
    found = run.values.get(value)
    type_ = value.type
    if found is None:
        return Unavailable("it is not computed yet here, or was used for the last time")
    if isinstance(found, Tensor) and found in run.in_flight.pending:
        return _RUNNING
    if isinstance(found, BufferView):
        return Buffer(_of_buffer(run, found, positions), str(ir.element_of(type_)))
    if isinstance(found, DescriptorTile):
        base = _pointers(run, found.base, "pointer", positions, ())
        assert isinstance(type_, ir.DescriptorType)
        return Described("descriptor", {"base": base}, type_.block.shape)
    if type_ == ir.TOKEN:
        return Unavailable("it is a token, which only orders ops")
    shape = ir.shape_of(type_)
    if isinstance(found, PointerTile | AddressTile):
        return _pointers(run, found, str(ir.element_of(type_)), positions, shape)
    return Tile(_rows(run, found, value, positions), str(ir.element_of(type_)), bool(shape))


def _of_buffer(run: Evaluator, view: BufferView, positions: Tensor) -> Tensor:
    data = read_view(run, view)
    return data.expand(run.programs, *data.shape[1:])[positions.to(data.device)]


def _rows(run: Evaluator, found: TileValue, value: Value, positions: Tensor) -> Tensor:
    dense = run.full(found, value.type)
    if dense.shape[0] == 1:
        return dense.expand(positions.shape[0], *dense.shape[1:]).clone()
    return dense[positions.to(dense.device)]  # a copy


def _pointers(
    run: Evaluator,
    found: PointerTile | AddressTile,
    type_: str,
    positions: Tensor,
    shape: tuple[int, ...],
) -> Pointers:
    offsets = run.full(found.places, ir.tile(shape, ir.I64) if shape else ir.I64)
    if offsets.shape[0] == 1:
        offsets = offsets.expand(positions.shape[0], *offsets.shape[1:])
    else:
        offsets = offsets[positions.to(offsets.device)]
    if isinstance(found, AddressTile):
        return Pointers(None, None, offsets.clone(), type_)
    return Pointers(found.buffer.name, found.buffer.tensor, offsets.clone(), type_)


def of_program(value: Reading, index: int) -> Reading:
    """The part of the `index`-th program, with an axis of programs of one."""
    match value:
        case Tile() | Buffer():
            return replace(value, data=value.data[index : index + 1])
        case Pointers():
            return replace(value, offsets=value.offsets[index : index + 1])
        case Described():
            parts = {name: of_program(part, index) for name, part in value.parts.items()}
            return replace(value, parts=parts)
        case tuple():
            return tuple(of_program(item, index) for item in value)
        case _:
            return value
