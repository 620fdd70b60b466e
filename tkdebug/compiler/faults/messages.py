"""Messages, severities and hints of each kind of fault, from plain facts.

Not responsible for the frames, the program or the count of a fault: its recorder adds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.faults.facts import AccessedTensor, Offender
from tkdebug.compiler.faults.hints import access_hint, counted, loaded_offset, stride_hint
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.records.events import FaultKind

_VERBS = {
    "oob-load": "load reads",
    "oob-store": "store writes",
    "oob-atomic": "atomic touches",
}


@dataclass(frozen=True, slots=True)
class FaultText:
    """The fields of `Fault` that do not depend on how the fault was found."""

    kind: FaultKind
    message: str
    severity: Literal["error", "warning"] = "error"
    tensor: str | None = None
    index: int | None = None
    legal: tuple[int, int] | None = None
    hint: str | None = None


def place_of(op: Operation, seen_from: Operation) -> str:
    """The line of `op`, after its file if the fault at `seen_from` is in another file."""
    place = op.location.primary
    if place.file == seen_from.location.primary.file:
        return f"line {place.line}"
    return f"{place.file}:{place.line}"


def named(tensor: str | None, unnamed: str = "memory") -> str:
    """Return a tensor's name in backquotes, or `unnamed` if it has none."""
    return f"`{tensor}`" if tensor else unnamed


def access_verb(op: Operation) -> str:
    """The verb of an access, such as "load reads"."""
    if "atomic" in op.name or "reduce" in op.name:
        return "atomic changes"
    return "store writes" if "store" in op.name or "scatter" in op.name else "load reads"


# Addresses below are those of null pointers and their offsets.
_LEAST_ADDRESS = 1 << 20


def _is_half_an_address(address: int | None) -> bool:
    """Whether a number may be the lower half of an address, signed or unsigned."""
    if address is None:
        return False
    return -(1 << 31) <= address < 0 or _LEAST_ADDRESS <= address < 1 << 32


def bad_access(
    op: Operation,
    kind: FaultKind,
    accessed: AccessedTensor | None,
    offender: Offender,
    mask: Value | None,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, object],
    misled_by: Operation | None = None,
    freed: str | None = None,
    negative: str | None = None,
) -> FaultText:
    """Return the text for an access outside a tensor, or between its elements.

    Args:
        op: the access.
        kind: "oob-load", "oob-store", "oob-atomic" or "between-elements".
        accessed: the tensor; None if the address belongs to none.
        offender: the first bad element; its index is an address where there is no tensor.
        mask: the mask of the access.
        grid: the grid of the launch.
        arguments: the arguments of the launch, by name; strides are looked for among them.
        misled_by: the op that made the offset, and wrapped or gave a negative remainder.
        freed: the tensor that had the address and was freed; None if it is not known.
        negative: the facts of negative numbers in the tensor that the offset was loaded from, in
            words.
    """
    hint = None
    if accessed is None and freed is not None:
        hint = f"it is in memory of {freed}: keep the tensor until the kernel has run"
    elif accessed is None and _is_half_an_address(offender.index):
        hint = (
            "it fits 32 bits, as an address does that was stored as an int32: tables of addresses "
            "are int64"
        )
    elif accessed is None:
        hint = (
            "it was loaded, or made of a number: is the tensor that it was taken of, by "
            "data_ptr(), still alive?"
        )
    elif misled_by is not None:
        did = "wrapped"
        if arith.RemSI.matches(misled_by):
            did = "is a negative remainder, made"
        hint = f"the offset {did} at {place_of(misled_by, op)}: fix that first"
    elif offender.index is not None:
        hint = _hint_of_access(op, accessed, offender, mask, grid, arguments)
        if negative is not None:
            hint += f", {negative}"
    return FaultText(
        kind,
        _access_text(kind, accessed, offender.index),
        "warning" if kind == "between-elements" else "error",
        None if accessed is None else accessed.name,
        offender.index,
        None if accessed is None else (0, accessed.hull_elems),
        hint,
    )


def _access_text(kind: FaultKind, accessed: AccessedTensor | None, index: int | None) -> str:
    verb = _VERBS.get(kind, "access touches")
    if accessed is None:
        return f"{verb} address {index:#x}, which belongs to no tensor"
    offset = f"{verb} offset {index} of {named(accessed.name)}"
    if kind == "between-elements":
        return f"{offset}, between the elements of a view of shape {list(accessed.shape)}"
    extent = accessed.hull_elems
    if not extent:
        return f"{offset}, which is empty"
    if index is not None and index < 0:
        return f"{offset}, which is negative: it has {counted(extent)} (legal: 0 to {extent - 1})"
    return f"{offset}, which has {counted(extent)} (legal: 0 to {extent - 1})"


def _hint_of_access(
    op: Operation,
    accessed: AccessedTensor,
    offender: Offender,
    mask: Value | None,
    grid: tuple[int, int, int],
    arguments: Mapping[str, object],
) -> str:
    hint = access_hint(op, accessed, mask, offender, grid)
    strides = stride_hint(op, accessed, arguments)
    if strides is not None:
        hint += f"; {strides}"
    source = loaded_offset(op)
    if source is not None:
        load, name = source
        hint += f"; the offset is computed from what {place_of(load, op)} loads from `{name}`"
    return hint


def bad_index(index: int | None, axis: int, extent: int) -> FaultText:
    """Return the text for a gather's index outside the axis that it counts along."""
    which = "which is negative: it" if index is not None and index < 0 else "which"
    return FaultText(
        "oob-load",
        f"gather reads index {index} along axis {axis}, {which} has {extent} elements "
        f"(legal: 0 to {extent - 1})",
        index=index,
        legal=(0, extent),
        hint="clamp the index, or choose with tl.where where it is outside",
    )


def misaligned_descriptor(tensor: str | None, part: str, size_bytes: int | None) -> FaultText:
    """Return the text for a tensor descriptor with an address or stride that no tensor map allows.

    Args:
        tensor: the described tensor.
        part: "address", counted from the beginning of the allocation, or "stride 0".
        size_bytes: the address or the stride.
    """
    where = " bytes into its allocation" if part == "address" else " bytes"
    return FaultText(
        "misaligned-descriptor",
        f"the descriptor of {named(tensor)} has {part} {size_bytes}{where}, which is no multiple "
        f"of {tt.DESCRIPTOR_ALIGNMENT_BYTES}",
        "warning",
        tensor,
        hint="a GPU that makes a tensor map of it (sm_90 and later) traps here: pad the rows, pass "
        "an aligned view, or use pointers and masks",
    )


def misaligned_block(op: Operation, tensor: str | None, unit: int, start: int | None) -> FaultText:
    """Return the text for a descriptor's block of one axis whose start no bulk copy allows."""
    return FaultText(
        "misaligned-descriptor",
        f"{access_verb(op)} a block of {named(tensor)} from offset {start} of its descriptor on, "
        f"which is no multiple of {unit} elements ({tt.DESCRIPTOR_ALIGNMENT_BYTES} bytes)",
        "warning",
        tensor,
        hint="Triton's kernel ends with an illegal instruction on an sm_90 GPU, and its "
        f"interpreter refuses this: begin blocks at multiples of {unit} and let the last one "
        "reach past the end, where nothing is stored, or use pointers and masks",
    )


def failed_assertion(op: Operation) -> FaultText:
    """Return the text for a device_assert that failed."""
    text = tt.Assert(op).message
    return FaultText("assert", "device assertion failed" + (f": {text}" if text else ""))


def false_assumption(op: Operation, call: str, what: str) -> FaultText:
    """Return the text for an assumption that the kernel gives the compiler, and that is not true.

    Args:
        op: the op that the assumption is made of, or about.
        call: the call that states it, such as "tl.assume".
        what: how it is wrong, such as "is false".
    """
    return FaultText(
        "assumption",
        f"{call} {what}",
        "error" if tt.Assume.matches(op) else "warning",
        hint="native code is generated as if it held, and may read and write elsewhere: "
        f"take {call} away, or make it true",
    )


def unwritten_read(op: Operation, tensor: str | None, index: int | None) -> FaultText:
    """Return the text for a read of memory that nothing has written."""
    return FaultText(
        "uninitialised-read",
        f"{access_verb(op)} offset {index} of {named(tensor)}, which nothing has written",
        tensor=tensor,
        index=index,
        hint="its memory is of torch.empty or the like: make it by torch.zeros, or write it first; "
        "a mask that is too wide reads it too",
    )


def op_text(op: Operation, operands: Sequence[str]) -> str:
    """The text of an elementwise op with its operands: "1 / 0", "exp(89)"."""
    binary = arith.Binary.cast(op)
    if binary is not None and binary.sign:
        return f" {binary.sign} ".join(operands)
    function = tt.ExternElementwise.cast(op)
    name = op.name.rpartition(".")[2] if function is None else function.function
    return f"{name}({', '.join(operands)})"


def nan_made(
    op: Operation,
    cause: str,
    store: Operation,
    tensor: str | None,
    index: int,
    is_of_input: bool = False,
) -> FaultText:
    """Return the text for a NaN that `op` made of `cause`, such as "0 / 0", and `store` stored.

    A NaN that a function gives for the kernel's input as passed is a warning: the caller may know
    that the input is outside the function's domain.
    """
    of = f", of {cause}," if cause else ""
    written = "added" if tt.AtomicRmw.matches(store) else "stored"
    return FaultText(
        "nan",
        f"a NaN is made here{of} and {written} at {place_of(store, op)} to offset {index} of "
        f"{named(tensor)}",
        "warning" if is_of_input else "error",
        tensor=tensor,
        index=index,
        hint="guard the operands, or choose with tl.where what is stored instead",
    )


def undefined_result(op: Operation, shown: str, is_negative: bool = False) -> FaultText:
    """Return the text for an undefined result or a negative remainder; the recorder adds its use.

    Args:
        op: a division, a shift, sums and products that wrap, or a load without `other`.
        shown: the op at the element, such as "7 // 0"; "" for a load.
        is_negative: whether the result is defined, but a negative remainder.
    """
    if is_negative:
        return FaultText(
            "negative-remainder",
            f"`{shown}` is negative, as its left operand",
            "warning",
            hint="`%` of the kernel language truncates, as in C and not as in Python: add the "
            "divisor before, (a + n) % n, or after where the remainder is below 0",
        )
    if tt.Load.matches(op):
        return FaultText(
            "undefined-value",
            "this load has no `other`, so what it gives where its mask is false is undefined",
            "warning",
            hint="tkdebug reads 0 there: pass other=, with what the rest of the kernel wants "
            "there, or mask off the result",
        )
    bits = ir.element_of(op.result.type).bits
    if arith.WrappingBinary.matches(op):
        return FaultText(
            "offset-overflow",
            f"`{shown}` does not fit int{bits} and wraps",
            hint="cast a factor before it is multiplied, as in row.to(tl.int64) * stride; a "
            "program id and an int argument below 2**31 are int32",
        )
    if arith.IntegerDivision.matches(op):
        return FaultText(
            "division-by-zero",
            f"integer division by zero, `{shown}`",
            hint="a GPU does not trap here, it gives an arbitrary number: divide by "
            "tl.where(d == 0, 1, d), or mask off the result",
        )
    return FaultText(
        "shift-range",
        f"`{shown}` shifts {bits} bits by {shown.split()[-1]} (legal: 0 to {bits - 1})",
        "warning",
        hint="a GPU may give anything here: limit the amount, or choose with tl.where",
    )
