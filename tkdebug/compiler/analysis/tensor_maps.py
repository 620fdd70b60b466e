"""Tensor maps of descriptors: boxes, swizzles, blocks in shared memory, and who can use them.

A tensor map is the hardware's form of a tensor descriptor: bulk copies (TMA) move boxes of the
tensor it describes. A block that is larger than a box is moved by several copies. All this follows
from the block's type. `misuse` and `misplaced` say which uses of a descriptor bulk copies cannot
serve, whether the host or a launch made it; `SelectTensorMaps` decides.

Source: PTX ISA, "Tensors" (bounding box, swizzling modes) and "cp.async.bulk.tensor"; CUDA driver
API, "cuTensorMapEncodeTiled" (limits of boxes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.dot_use import feeds_dot
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import SCALARS, DescriptorType, ScalarType, TensorType
from tkdebug.compiler.layouts import LinearLayout, nvmma_shared

# Elements of a box along one axis.
_MAX_BOX = 256
_MIN_ROWS = 8
_MIN_ROW_BYTES = 16
_SWIZZLES = (128, 64, 32)
MAKE = tt.MakeTensorDescriptor.name
# Size of a tensor map, and its alignment in shared memory and in a workspace (PTX ISA,
# "Tensor-map").
MAP_BYTES = 128
# Ops that a launch computes on its arguments; a truncation wraps its operand.
_HOST_OPS = {
    arith.AddI.name: "+",
    arith.SubI.name: "-",
    arith.MulI.name: "*",
    arith.TruncI.name: "",
}
_ELEMENT_BITS = (8, 16, 32, 64)
# Where swizzle patterns start (PTX ISA, "Swizzling Modes").
LANDING_ALIGNMENT = 1024


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The encoding of the tensor map of a kernel's parameter.

    Attributes:
        element: the IR's name of the element type, such as f16.
        box: the elements that one copy moves, by axis, the contiguous axis last.
        swizzle_bytes: 0, 32, 64 or 128.
        padding: the value of reads outside the tensor, "zero" or "nan".
    """

    element: str
    box: tuple[int, ...]
    swizzle_bytes: int
    padding: str

    @property
    def element_bytes(self) -> int:
        """Size of an element."""
        return SCALARS[self.element].bits // 8


@dataclass(frozen=True, slots=True)
class Message:
    """One bulk copy of a block.

    Attributes:
        start: the beginning of its box in the block, in elements along each axis.
        offset_bytes: the place of its box in the buffer.
    """

    start: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class MadeMap:
    """The tensor map of a descriptor that a kernel makes of its arguments; each launch encodes it.

    Attributes:
        base: position of the parameter with the tensor's address.
        shape: extents, as Python expressions of the parameters by position: `{3}`;
            `wrapped(x, n)` is x as a signed number of n bits.
        strides: in elements, in the same order.
        non_negative: positions of the parameters that must not be negative for launches to use it.
    """

    map: TensorMap
    base: int
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    non_negative: tuple[int, ...] = ()


def misfit(block: TensorType, padding: str) -> str | None:
    """Return why no tensor map can have blocks of this type, or None if one can."""
    element, shape = block.element, block.shape
    if not isinstance(element, ScalarType) or element.bits not in _ELEMENT_BITS:
        return f"tensor maps have no elements of {element}"
    if len(shape) < 2:
        return "its blocks have one axis"
    row_bytes = shape[-1] * element.bits // 8
    if row_bytes < _MIN_ROW_BYTES:
        return f"its blocks have rows of {row_bytes} bytes, of {_MIN_ROW_BYTES} that a copy moves"
    rows = math.prod(shape[:-1])
    if rows < _MIN_ROWS:
        return f"its blocks have {rows} rows, of {_MIN_ROWS} that a swizzle pattern has"
    if len(shape) > 2 and max(shape[:-1]) > _MAX_BOX:
        return f"its blocks have more than {_MAX_BOX} elements along an axis"
    if padding == "nan" and (element.is_integer or element.bits == 8):
        return f"tensor maps cannot pad {element} with NaN"
    return None


def tensor_map(block: TensorType, padding: str) -> TensorMap:
    """The tensor map for blocks of a type that has no misfit."""
    element_bytes = block.element.bits // 8
    swizzle = _swizzle(block)
    inner = max(swizzle, _MIN_ROW_BYTES) // element_bytes
    outer = (min(size, _MAX_BOX) for size in block.shape[:-1])
    return TensorMap(str(block.element), (*outer, inner), swizzle, padding)


def landing_layout(block: TensorType) -> LinearLayout:
    """The layout of a block in shared memory: columns of boxes, swizzled as wgmma reads them."""
    return nvmma_shared(block.shape, _swizzle(block), block.element.bits)


def messages(block: TensorType) -> tuple[Message, ...]:
    """The copies that move a block."""
    element_bytes = block.element.bits // 8
    box = tensor_map(block, "zero").box
    steps = [range(0, size, of) for size, of in zip(block.shape, box, strict=True)]
    rows = math.prod(block.shape[:-1])
    made = []
    for start in itertools.product(*steps):
        # Only the rows of blocks of two axes are cut; the columns of boxes follow each other.
        row = start[0] if len(start) == 2 else 0
        elems = start[-1] * rows + row * box[-1]
        made.append(Message(start, elems * element_bytes))
    return tuple(made)


def tensor_maps(function: Operation) -> dict[int, TensorMap]:
    """The tensor maps that a `tt.func` takes, by the position of the parameter."""
    names = tt.Func(function).arg_names
    padded = tt.Func(function).nan_padded
    return {
        place: tensor_map(argument.type.block, padding_of(names, padded, place))
        for place, argument in enumerate(function.regions[0].block.arguments)
        if isinstance(argument.type, DescriptorType)
    }


def made_maps(function: Operation) -> list[tuple[Operation, MadeMap]]:
    """The ops that stay in GPU IR because a launch does their work, with the maps that it makes."""
    found = []
    integers = tuple(argument.index for argument in integer_parameters(function))
    for op in function.walk():
        make = tt.MakeTensorDescriptor.cast(op)
        if make is None or not make.by_launch:
            continue
        type_ = op.result.type
        assert isinstance(type_, DescriptorType)
        rank = len(type_.block.shape)
        texts = [launch_text(value) for value in (*make.shape, *make.strides)]
        assert None not in texts, f"{op.name} #{op.id} is not made of arguments"
        numbers = tuple(str(text) for text in texts)
        made = MadeMap(
            tensor_map(type_.block, make.padding),
            make.base.index,
            numbers[:rank],
            numbers[rank:],
            integers if make.non_negative else (),
        )
        found.append((op, made))
    return found


def kernel_made(function: Operation) -> list[Operation]:
    """The ops at which programs make tensor maps, each at its own place in the workspace."""
    return [op for op in function.walk() if is_kernel_made(op)]


def is_kernel_made(op: Operation) -> bool:
    """Whether programs make a tensor map at `op`."""
    return tt.MakeTensorDescriptor.matches(op) and tt.MakeTensorDescriptor(op).by_kernel


def is_mapped(op: Operation) -> bool:
    """Whether the launch or the kernel makes a tensor map of the descriptor of `op`."""
    make = tt.MakeTensorDescriptor.cast(op)
    return make is not None and (make.by_kernel or make.by_launch)


def workspace_bytes(function: Operation) -> int:
    """Global memory that each program needs for the tensor maps it makes."""
    return MAP_BYTES * len(kernel_made(function))


def integer_parameters(function: Operation) -> list[Value]:
    """The integer parameters of more than one bit, whose values a launch can check."""
    return [
        argument
        for argument in function.regions[0].block.arguments
        if isinstance(argument.type, ScalarType)
        and argument.type.is_integer
        and argument.type.bits > 1
    ]


def launch_text(value: Value) -> str | None:
    """A scalar integer as a Python expression of the parameters, or None if it is no such value."""
    bits = value.type.bits if isinstance(value.type, ScalarType) else 0
    owner = value.owner
    if not bits:
        return None
    if not isinstance(owner, Operation):
        is_parameter = owner.parent_op is not None and tt.Func.matches(owner.parent_op)
        return f"{{{value.index}}}" if is_parameter else None
    if arith.Constant.matches(owner):
        return str(arith.Constant(owner).value)
    parts = [launch_text(operand) for operand in owner.operands]
    if None in parts:
        return None
    if owner.name in (arith.ExtSI.name, tt.Hint.name):
        return parts[0]
    sign = _HOST_OPS.get(owner.name)
    return None if sign is None else f"wrapped({f' {sign} '.join(map(str, parts))}, {bits})"


def padding_of(names: Sequence[object], nan_padded: Sequence[object], place: int) -> str:
    """The padding of the descriptor parameter at `place`, "zero" or "nan"."""
    return "nan" if place < len(names) and names[place] in nan_padded else "zero"


def _swizzle(block: TensorType) -> int:
    row_bytes = block.shape[-1] * block.element.bits // 8
    return next((width for width in _SWIZZLES if row_bytes >= width), 0)


LOAD, STORE = tt.DescriptorLoad.name, tt.DescriptorStore.name
# The unit of bulk stores.
UNIT_BYTES = 16


def misuse(descriptor: Value) -> str | None:
    """The use of a descriptor that bulk copies do not support, or None if there is none."""
    kinds = {user.name for user in descriptor.uses}
    for name in sorted(kinds - {LOAD, STORE}):
        if name.startswith("tt.descriptor_"):
            return f"{name.removeprefix('tt.descriptor_')}s are made by pointers"
        return "a loop or a branch forwards the descriptor"
    if kinds == {LOAD, STORE}:
        return "it is both loaded from and stored to"
    if not all(feeds_dot(user.result) for user in descriptor.uses if user.name == LOAD):
        # They would go through shared memory, one trip more than to registers.
        return "no dot multiplies what it loads"
    return None


def misplaced(descriptor: Value, infos: Mapping[Value, AxisInfo]) -> str | None:
    """Return why an access may begin off a multiple of 16 bytes, or None if none does."""
    type_ = descriptor.type
    assert isinstance(type_, DescriptorType)
    element_bytes = type_.block.element.bits // 8
    for user in descriptor.uses:
        if user.name in (LOAD, STORE):
            start = infos[tt.DescriptorBlockAccess(user).offsets[-1]]
            if start.divisibility[0] * element_bytes % UNIT_BYTES:
                return f"it may be accessed elsewhere than at multiples of {UNIT_BYTES} bytes"
    return None
