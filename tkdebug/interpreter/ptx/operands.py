"""Operands of PTX instructions: raw bits in int64 tensors, read and written under PTX types.

A register holds the bits of whatever type an instruction gives it, zero-extended to 64.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Operand = Any  # a Tensor of raw bits, a number, or a tuple of such

# Float types: the torch dtype, and the integer dtype of the same width.
FLOATS = {
    "f16": (torch.float16, torch.int16),
    "bf16": (torch.bfloat16, torch.int16),
    "f32": (torch.float32, torch.int32),
    "tf32": (torch.float32, torch.int32),
    "f64": (torch.float64, torch.int64),
}
_TYPE = re.compile(
    r"[bus](?:8|16|32|64)|t?f(?:16|32|64)|bf16|b?f16x2|f32x2|[us]16x2|pred"
    r"|e4m3x2|e5m2x2|e2m1x2|ue8m0x2"
)
_HARMLESS = {"approx", "full", "rn", "ftz", "lo", "wrap", "to", "volatile"}
# Modifiers that round to another float, by the names of `interpreter.numerics.rounding`.
DIRECTED = {"rz": "rz", "rm": "rd", "rp": "ru"}


class NotUnderstoodError(Exception):
    """An instruction that only a GPU can run; its text."""


class Reader:
    """Reads and writes raw bits under one instruction's types."""

    def __init__(self, device: Any, opcode: tuple[str, ...], text: str) -> None:
        self.device = device
        self.opcode = opcode
        self.text = text
        self.types = [part for part in opcode[1:] if _TYPE.fullmatch(part)]
        self.modifiers = {part for part in opcode[1:] if not _TYPE.fullmatch(part)}

    @property
    def type(self) -> str:
        """The instruction's only type, or its last one."""
        if not self.types:
            raise NotUnderstoodError(self.text)
        return self.types[-1]

    def part(self) -> tuple[str, int]:
        """Return the type of a packed part and its bits; the whole type and 0 if not packed."""
        if len(self.types) != 1:  # as `fma.rn.f32.bf16`
            raise NotUnderstoodError(self.text)
        if not self.type.endswith("x2"):
            return self.type, 0
        return self.type.removesuffix("x2"), 32 if self.type == "f32x2" else 16

    def allow(self, *modifiers: str) -> None:
        """Raise NotUnderstoodError on modifiers other than these and the harmless ones."""
        if self.modifiers - _HARMLESS - set(modifiers):
            raise NotUnderstoodError(self.text)

    def rounding(self, modes: Mapping[str, str], default: str) -> str:
        """Return the rounding mode that a modifier in `modes` names, else `default`."""
        asked = self.modifiers & modes.keys()
        return modes[asked.pop()] if asked else default

    def immediate(self, text: str) -> float | int | None:
        """Return a literal as a number, also hexadecimal floats; None if it is no literal."""
        if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return float(struct.unpack(">f", bytes.fromhex(match.group(1)))[0])
        if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
            return float(struct.unpack(">d", bytes.fromhex(match.group(1)))[0])
        if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
            return float(text)
        if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?", text):
            text = text.rstrip("U")
            return int(text, 8 if re.fullmatch(r"-?0\d+", text) else 0)
        return None

    def width(self, type_: str) -> int:
        """Bits of an integer type or a predicate."""
        if type_ == "pred":
            return 1
        if type_[0] not in "bus" or not type_[1:].isdigit():
            raise NotUnderstoodError(self.text)
        return int(type_[1:])

    def integer(self, value: Operand, type_: str) -> Tensor:
        """Raw bits as an integer of a type."""
        if isinstance(value, tuple):
            raise NotUnderstoodError(self.text)
        if isinstance(value, float):
            value = self.raw(torch.tensor([value], device=self.device), "f32")
        if isinstance(value, int):
            wrapped = (value + 2**63) % 2**64 - 2**63
            value = torch.tensor([wrapped], dtype=torch.int64, device=self.device)
        width = self.width(type_)
        if width == 64:
            return value  # type: ignore[no-any-return]
        value = value & ((1 << width) - 1)
        if type_[0] == "s":
            value = value - ((value >> (width - 1)) << width)
        return value  # type: ignore[no-any-return]

    def float(self, value: Operand, type_: str) -> Tensor:
        """Raw bits as a float of a type."""
        if type_ not in FLOATS or isinstance(value, tuple):
            raise NotUnderstoodError(self.text)
        dtype, carrier = FLOATS[type_]
        if isinstance(value, float):
            return torch.tensor([value], dtype=dtype, device=self.device)
        if isinstance(value, int):
            value = self.integer(value, "b64")
        return self._flushed(value.to(carrier).view(dtype))

    def _flushed(self, value: Tensor) -> Tensor:
        # The .ftz of cvt is for single precision only.
        is_meant = value.dtype == torch.float32 or self.opcode[0] != "cvt"
        if "ftz" not in self.modifiers or value.dtype == torch.float64 or not is_meant:
            return value
        return torch.where(value.abs() < torch.finfo(value.dtype).tiny, value * 0.0, value)

    def raw(self, value: Tensor, type_: str) -> Tensor:
        """A number as the raw bits of a type."""
        if type_ in FLOATS:
            dtype, carrier = FLOATS[type_]
            stored = self._flushed(value.to(dtype)).view(carrier).to(torch.int64)
            width = 8 * dtype.itemsize
        else:
            stored = value.to(torch.int64)
            width = self.width(type_)
        return stored if width == 64 else stored & ((1 << width) - 1)

    def is_float(self, type_: str) -> bool:
        """Whether a type is a float."""
        return type_ in FLOATS


def half_of(r: Reader, operand: Operand, place: int) -> Tensor:
    """One of the two 16-bit halves of an operand."""
    return parts_of(r, operand, 16)[place]


def parts_of(r: Reader, operand: Operand, width: int) -> tuple[Tensor, Tensor]:
    """Return a register's low and high part, of a width in bits; PTX has no packed literals."""
    if not isinstance(operand, Tensor):
        raise NotUnderstoodError(r.text)
    both = r.integer(operand, f"b{2 * width}")
    mask = (1 << width) - 1
    return both & mask, (both >> width) & mask
