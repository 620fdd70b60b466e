"""Straight-line PTX on tensors: the effect of inline assembly, if its instructions are known.

A register holds the raw bits of every instance in one int64 tensor; instructions read them under
their own types. Labels, branches, memory and special registers are not understood: such assembly
fails by name. Invariant: nothing is guessed; an unknown instruction or modifier is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects.tt import ElementwiseInlineAsm
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter.ptx.instructions import evaluate
from tkdebug.interpreter.ptx.operands import NotUnderstoodError, Operand, Reader

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_REGISTER = re.compile(r"\$\d+|\$\{\d+(?::\w+)?\}|%?[A-Za-z_][\w$.]*")
_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `@guard opcode operands;`, vectors as tuples."""

    text: str
    opcode: tuple[str, ...]
    operands: tuple[str | tuple[str, ...], ...]
    guard: str | None = None
    negated: bool = False


@lru_cache(maxsize=256)
def parse(text: str) -> tuple[Instruction, ...]:
    """Return the instructions of PTX text, without declarations and comments.

    Raises:
        NotUnderstoodError: something that is no plain instruction.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = []
    for statement in text.split(";"):
        # A brace that opens or closes a scope stands before the opcode, a vector's after it.
        statement = " ".join(statement.split())
        while statement.startswith(("{", "}")):
            statement = statement[1:].strip()
        if not statement or statement.startswith(".reg"):
            continue
        found.append(_instruction(statement))
    return tuple(found)


def _instruction(statement: str) -> Instruction:
    match = re.fullmatch(r"(?:@(!?)(%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)", statement)
    if match is None or ":" in match.group(3):
        raise NotUnderstoodError(statement)
    negated, guard, opcode, rest = match.groups()
    operands: list[str | tuple[str, ...]] = []
    for piece in re.findall(r"\{[^}]*\}|[^,{}]+", rest):
        piece = piece.strip()
        if piece.startswith("{"):
            operands.append(tuple(part.strip() for part in piece[1:-1].split(",")))
        elif piece:
            operands.append(piece)
    return Instruction(statement, tuple(opcode.split(".")), tuple(operands), guard, bool(negated))


def run(
    view: ElementwiseInlineAsm,
    inputs: Sequence[Tensor],
    targets: Sequence[torch.dtype],
    device: Any,
) -> list[Tensor]:
    """Run a `tt.elementwise_inline_asm` on flat inputs; return flat results of `targets`' dtypes.

    Raises:
        UnsupportedError: the assembly does something that only a GPU can do.
    """
    try:
        return _Machine(view, device).run(inputs, targets)
    except NotUnderstoodError as error:
        where = view.op.location.primary
        raise UnsupportedError(
            f"{where.file}:{where.line}: inline assembly `{error}` is not understood under "
            "interpret, which expects straight-line PTX of arithmetic, logic, conversions, selects "
            "and moves between registers; the rest needs a GPU"
        ) from None


class _Machine:
    """The registers of all instances while one piece of assembly runs."""

    def __init__(self, view: ElementwiseInlineAsm, device: Any) -> None:
        self.text = view.asm
        self.constraints = view.constraints.split(",")
        self.pack = view.pack
        self.where = view.op.location.primary
        self.device = device
        self.registers: dict[str, Tensor] = {}
        # Operands that are part of the text, not registers: constraint `n`.
        self.constants: dict[str, int] = {}

    def run(self, inputs: Sequence[Tensor], targets: Sequence[torch.dtype]) -> list[Tensor]:
        instructions = parse(self.text)
        elements = inputs[0].shape[0] if inputs else 1
        instances = -(-elements // self.pack)
        counts = [self._count(target.itemsize) for target in targets]
        self._load(inputs, instances, sum(counts))
        computing = [each for each in instructions if not _only_orders(each)]
        for instruction in computing:
            self._step(instruction, instances)
        if not computing:  # its results are there only for the sake of the syntax
            zero = torch.zeros(1, dtype=torch.int64, device=self.device)
            self.registers.update((f"${place}", zero) for place in range(sum(counts)))
        results, first = [], 0
        for target, count in zip(targets, counts, strict=True):
            columns = [
                self._read(f"${place}").expand(instances) for place in range(first, first + count)
            ]
            first += count
            results.append(self._unpacked(columns, target)[:elements])
        return results

    def _count(self, itemsize: int) -> int:
        """Return the number of registers that `pack` elements of `itemsize` bytes take."""
        per_register = max(1, _REGISTER_BYTES // itemsize)
        return -(-self.pack // per_register)

    def _load(self, inputs: Sequence[Tensor], instances: int, place: int) -> None:
        """Put the inputs into registers from number `place` on; the ones before hold results."""
        for tile in inputs:
            size = tile.element_size()
            raw = tile.to(torch.int8) if tile.dtype == torch.bool else tile.view(_INTEGERS[size])
            bits = raw.to(torch.int64)
            if size < 8:
                bits = bits & ((1 << (8 * size)) - 1)
            missing = instances * self.pack - bits.shape[0]
            if missing:
                bits = torch.cat([bits, bits[-1:].expand(missing)])
            columns = bits.reshape(instances, self.pack)
            per_register = max(1, _REGISTER_BYTES // size)
            for start in range(0, self.pack, per_register):
                register = columns[:, start]
                for offset in range(1, min(per_register, self.pack - start)):
                    register = register | (columns[:, start + offset] << (8 * size * offset))
                self.registers[f"${place}"] = register
                self._note_constant(place, register)
                tied = self.constraints[place].strip() if place < len(self.constraints) else ""
                if tied.isdigit():
                    self.registers[f"${tied}"] = register
                place += 1

    def _note_constant(self, place: int, register: Tensor) -> None:
        """Note an operand of constraint `n` or `i`.

        Raises:
            UnsupportedError: it is not the same number in every instance.
        """
        if place >= len(self.constraints) or self.constraints[place].strip() not in ("n", "i"):
            return
        if bool((register != register[0]).any()):
            where = self.where
            raise UnsupportedError(
                f"{where.file}:{where.line}: inline assembly: ${place} is of constraint "
                f"{self.constraints[place].strip()!r} and has more than one value; pass a constexpr"
            )
        self.constants[f"${place}"] = int(register[0])

    def _unpacked(self, columns: list[Tensor], target: torch.dtype) -> Tensor:
        size = target.itemsize
        per_register = max(1, _REGISTER_BYTES // size)
        parts = [
            columns[place // per_register] >> (8 * size * (place % per_register))
            for place in range(self.pack)
        ]
        bits = torch.stack(parts, dim=1).reshape(-1)
        if target == torch.bool:
            return (bits & 1) != 0
        return bits.to(_INTEGERS[size]).view(target)

    def _read(self, name: str) -> Tensor:
        found = self.registers.get(_plain(name))
        if found is None:
            raise NotUnderstoodError(name)
        return found

    def _step(self, instruction: Instruction, instances: int) -> None:
        if not instruction.operands:
            raise NotUnderstoodError(instruction.text)
        target, *sources = instruction.operands
        reader = Reader(self.device, instruction.opcode, instruction.text)
        value = evaluate(reader, [self._operand(source, reader) for source in sources], target)
        # `p|q` are two predicates.
        names = target.split("|") if isinstance(target, str) else list(target)
        values = value if isinstance(value, list) else [value]
        if len(names) != len(values):
            raise NotUnderstoodError(instruction.text)
        for name, bits in zip(names, values, strict=True):
            self._write(instruction, _plain(name), bits.expand(instances))

    def _write(self, instruction: Instruction, name: str, bits: Tensor) -> None:
        if instruction.guard is not None:
            holds = self._read(instruction.guard) != 0
            holds = ~holds if instruction.negated else holds
            old = self.registers.get(name)
            bits = torch.where(holds, bits, 0 if old is None else old)
        self.registers[name] = bits

    def _operand(self, source: str | tuple[str, ...], reader: Reader) -> Operand:
        if isinstance(source, tuple):
            return tuple(self._scalar(part, reader) for part in source)
        return self._scalar(source, reader)

    def _scalar(self, source: str, reader: Reader) -> Tensor | float | int:
        if _plain(source) in self.constants:
            return self.constants[_plain(source)]
        if source.startswith("!"):
            return (self._read(source[1:].strip()) == 0).to(torch.int64)
        if _REGISTER.fullmatch(source):
            return self._read(source)
        number = reader.immediate(source)
        if number is None:
            raise NotUnderstoodError(reader.text)
        return number


def _only_orders(instruction: Instruction) -> bool:
    """Whether it is a barrier or a fence: no effect here, as ops end for all threads in turn."""
    name, *modifiers = instruction.opcode
    return name in ("membar", "fence") or (name in ("bar", "barrier") and "sync" in modifiers)


def _plain(name: str) -> str:
    """Return `${3:modifier}` as `$3`; any other name unchanged."""
    match = re.match(r"\$\{(\d+)", name)
    return f"${match.group(1)}" if match else name
