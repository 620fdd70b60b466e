"""Kernel arguments as bytes: one 8-byte slot for each parameter of the compiled kernel.

Responsible for which slots an argument fills, in the order of the kernel's IR arguments, and for
what each may hold. A tensor descriptor is passed as the hardware-neutral tuple (address, shape,
strides, all 64 bits wide), then again as the language has it (shape as i32, strides as i64). If the
kernel takes it as a tensor map, that replaces the address, in a larger slot.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tkdebug.compiler import dtypes
from tkdebug.compiler.dtypes import dtype, tensor_descriptor_type
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.compiler.sites.table import PLACES
from tkdebug.errors import UnsupportedError
from tkdebug.runtime.cuda.tensor_maps import ALIGNMENT_BYTES, SIZE_BYTES
from tkdebug.runtime.errors import ArgumentOverflowError, ArgumentTypeError

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap
    from tkdebug.compiler.sites.checks import CheckPlan
    from tkdebug.compiler.targets.nvptx.compile import Binary

SLOT_BYTES = 8
# Of little-endian struct codes without padding: the size of the value is the kernel's business.
_INT_CODES = {
    ("int", 8): "b",
    ("int", 16): "h",
    ("int", 32): "i",
    ("int", 64): "q",
    ("uint", 8): "B",
    ("uint", 16): "H",
    ("uint", 32): "I",
    ("uint", 64): "Q",
}
_UNSIGNED_CODES = "BHIQ"
_FLOAT_CODES = {dtypes.float16: "e", dtypes.float32: "f", dtypes.float64: "d"}
_ADDRESS = "Q"
_ELEMENTS = "i"
_BOOL = "?"
_TENSOR_MAP = f"{SIZE_BYTES}s"
_BASE_ADDRESS = ".base.data_ptr()"
# Names in the text of the generated launch.
WORKSPACE = "workspace"
CHECKS = "checks"


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter of the compiled kernel.

    Attributes:
        name: the name in the IR, such as `x`, `pair.0`, `desc.shape.1`.
        code: the format by which `struct` packs it.
        expression: Python text of its value in terms of the arguments `v0`, `v1`, …
        tensor_map: the encoding of that value's tensor map; None in all other slots.
        made_map: how a tensor map is made of those values; None in all other slots.
    """

    name: str
    code: str
    expression: str
    tensor_map: TensorMap | None = None
    made_map: MadeMap | None = None

    @property
    def is_tensor_map(self) -> bool:
        """Whether it holds a tensor map."""
        return self.tensor_map is not None or self.made_map is not None

    @property
    def alignment(self) -> int:
        """Alignment of the parameter in the kernel's parameter memory, in bytes."""
        return ALIGNMENT_BYTES if self.is_tensor_map else struct.calcsize(f"={self.code}")

    @property
    def padded_bytes(self) -> int:
        """Bytes that the slot takes where arguments are packed."""
        return -(-struct.calcsize(f"={self.code}") // SLOT_BYTES) * SLOT_BYTES


def kernel_slots(
    names: Sequence[str],
    specs: Sequence[ArgSpec],
    binary: Binary | None = None,
) -> list[Slot]:
    """The slots of a kernel, in order.

    A tensor that is an argument itself is its address in the expressions; tensors inside tuples and
    descriptors are asked for theirs.

    Args:
        names: the names of the parameters.
        specs: the types of the parameters.
        binary: the compiled code, which says which parameters are tensor maps.

    Raises:
        UnsupportedError: a parameter of a type that cannot be passed.
    """
    slots = [
        slot
        for index, (name, spec) in enumerate(zip(names, specs, strict=True))
        for slot in _slots(name, spec, f"v{index}", is_nested=False)
    ]
    if binary is None:
        return slots
    if binary.checks is not None and binary.checks.watches:
        # The last of the parameters that the kernel's IR has.
        slots += _watch_slots(binary.checks)
    for place, map_ in binary.tensor_maps.items():
        descriptor = slots[place].expression.removesuffix(_BASE_ADDRESS)
        slots[place] = replace(
            slots[place], code=_TENSOR_MAP, expression=descriptor, tensor_map=map_
        )
    slots += [_made_slot(slots, made) for made in binary.made_maps]
    if binary.workspace_bytes:
        slots.append(Slot(WORKSPACE, _ADDRESS, f"{WORKSPACE}.data_ptr()"))
    if binary.checks is not None and binary.checks.takes_table:
        slots += _check_slots(binary.checks)
    return slots


def _made_slot(slots: Sequence[Slot], made: MadeMap) -> Slot:
    """Return the slot of a tensor map that the launch makes of other arguments."""
    texts = [_signed_text(slot) for slot in slots]
    checked = [f"{{{place}}}" for place in made.non_negative]
    groups = [
        f"({''.join(f'{text}, ' for text in part)})".format(*texts)
        for part in (made.shape, made.strides, checked)
    ]
    base = slots[made.base]
    expression = ", ".join((base.expression, *groups))
    return Slot(f"tensor map of {base.name}", _TENSOR_MAP, expression, made_map=made)


def _check_slots(plan: CheckPlan) -> Iterator[Slot]:
    """Yield the slots of a checked kernel: its table, the host's view of it, tensors' bounds."""
    yield Slot("check table", _ADDRESS, f"{CHECKS}[0]")
    if plan.timeline is None:
        yield Slot("shown table", _ADDRESS, f"{CHECKS}[1]")
    for place, name in enumerate(plan.bounds):
        first = 2 + PLACES * place
        yield Slot(f"begin of {name}", _ADDRESS, f"{CHECKS}[{first}]")
        yield Slot(f"end of {name}", _ADDRESS, f"{CHECKS}[{first + 1}]")
        yield Slot(f"elements of {name}", _ELEMENTS, f"{CHECKS}[{first + 2}]")


def _watch_slots(plan: CheckPlan) -> Iterator[Slot]:
    """Yield the slots of a kernel with watched values: its counters and its records."""
    for name, place in zip(("counters", "records"), plan.watch_places, strict=True):
        yield Slot(f"watch {name}", _ADDRESS, f"{CHECKS}[{place}]")


def _signed_text(slot: Slot) -> str:
    """Return the expression of a slot's number, with unsigned ones wrapped to signed ones."""
    if slot.code not in _UNSIGNED_CODES:
        return slot.expression
    return f"wrapped({slot.expression}, {struct.calcsize(f'={slot.code}') * 8})"


def _slots(name: str, spec: ArgSpec, expression: str, is_nested: bool) -> Iterator[Slot]:
    if isinstance(spec, Constant):
        return
    if isinstance(spec, tuple):
        for index, item in enumerate(spec):
            yield from _slots(f"{name}.{index}", item, f"{expression}[{index}]", is_nested=True)
        return
    if isinstance(spec, tensor_descriptor_type):
        yield from _descriptor_slots(name, spec.rank, expression)
        return
    if spec.is_ptr():
        yield Slot(name, _ADDRESS, f"{expression}.data_ptr()" if is_nested else expression)
        return
    if spec == dtypes.bfloat16:
        yield Slot(name, "H", f"bfloat16_bits({expression})")
        return
    yield Slot(name, _scalar_code(name, spec), expression)


def _descriptor_slots(name: str, rank: int, expression: str) -> Iterator[Slot]:
    yield Slot(name, _ADDRESS, f"{expression}{_BASE_ADDRESS}")
    for part, codes in ((("shape", "strides"), "qq"), (("shape", "strides"), "iq")):
        for field, code in zip(part, codes, strict=True):
            for axis in range(rank):
                yield Slot(f"{name}.{field}.{axis}", code, f"{expression}.{field}[{axis}]")


def _scalar_code(name: str, spec: Any) -> str:
    if isinstance(spec, dtype):
        if spec == dtypes.int1:
            return _BOOL
        if spec in _FLOAT_CODES:
            return _FLOAT_CODES[spec]
        if spec.is_int():
            kind = "uint" if spec.name.startswith("uint") else "int"
            return _INT_CODES[kind, spec.itemsize * 8]
    raise UnsupportedError(
        f"parameter `{name}`: an argument of type {spec} cannot be passed to a native kernel; "
        "pass a tensor of one element, or a wider type"
    )


def padded_format(slots: Sequence[Slot]) -> str:
    """The struct format of all slots, each padded to a multiple of 8 bytes."""
    parts = []
    for slot in slots:
        unused = slot.padded_bytes - struct.calcsize(f"={slot.code}")
        parts.append(slot.code + (f"{unused}x" if unused else ""))
    return "".join(parts)


def bfloat16_bits(value: float) -> int:
    """`value` rounded to bfloat16, ties to even, as bits."""
    number = float(value)
    if math.isnan(number):
        return 0x7FC0
    # Through float32 first, as the hardware's conversion from a float argument would go.
    (bits,) = struct.unpack("=I", struct.pack("=f", _fit(number, "f")))
    rounded: int = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded


def checked_value(kernel: str, slot: Slot, value: Any) -> Any:
    """Return `value` as `struct` takes it for `slot`: converted as C would, or refused.

    Raises:
        ArgumentOverflowError: an int beyond the parameter's type.
        ArgumentTypeError: no number at all.
    """
    if slot.code == _BOOL:
        return bool(value)
    if slot.is_tensor_map:
        return value
    convert: Callable[[Any], Any] = float if slot.code in "efd" else operator.index
    try:
        number = convert(value)
    except TypeError as error:
        raise ArgumentTypeError(
            f"kernel {kernel}: argument `{slot.name}` is a {type(value).__name__}, "
            f"expected {_expected(slot.code)}"
        ) from error
    if slot.code in "efd":
        return _fit(number, slot.code)
    return _fit_int(kernel, slot, number)


def _expected(code: str) -> str:
    if code == _ADDRESS:
        return "an address of 64 bits, without sign"
    return "a number" if code in "efd" else "an int"


def _fit(number: float, code: str) -> float:
    try:
        struct.pack(f"={code}", number)
    except OverflowError:
        return math.copysign(math.inf, number)
    return number


def _fit_int(kernel: str, slot: Slot, number: int) -> int:
    bits = struct.calcsize(f"={slot.code}") * 8
    if slot.code.isupper():
        # Negative ints wrap, as in C: -1 is how people write all ones.
        if -(1 << bits - 1) <= number < 1 << bits:
            return number & (1 << bits) - 1
    elif -(1 << bits - 1) <= number < 1 << bits - 1:
        return number
    raise ArgumentOverflowError(
        f"kernel {kernel}: argument `{slot.name}` is {number}, which its {bits} bits cannot hold; "
        "annotate the parameter with a wider type"
    )
