"""Computes scalars of LLVM IR that lowering writes, with the inline PTX among them.

Only what tests of tiles use is known; all other instructions are passed over, and so are the values
that need them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

_LINE = re.compile(r"\s+(%v\d+) = (.*?)(?:, !dbg !\d+)?$")
_ASM = re.compile(r'call i32 asm "(.*?)", "[^"]*"\((.*)\)')
_PTX = re.compile(r"([\w.]+) (.*);")
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
}
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "sge": operator.ge,
    "slt": operator.lt,
    "sgt": operator.gt,
    "eq": operator.eq,
    "ne": operator.ne,
    "ugt": operator.gt,
}


def signed(value: int, bits: int) -> int:
    """Return the low bits of a number as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def scalars(llvm_ir: str, known: Mapping[str, int]) -> dict[str, int]:
    """The values that are computed from others, as signed numbers.

    Args:
        llvm_ir: of a kernel.
        known: parameters by name, and program ids by the name of their register (`ctaid.x`).
    """
    values = dict(known)
    for line in llvm_ir.splitlines():
        parsed = _LINE.match(line)
        if parsed:
            value = _computed(parsed[2], values)
            if value is not None:
                values[parsed[1]] = value
    return values


def _computed(text: str, values: Mapping[str, int]) -> int | None:
    def number(operand: str) -> int | None:
        if operand in ("true", "false"):
            return -int(operand == "true")
        return int(operand) if operand.lstrip("-").isdigit() else values.get(operand)

    register = re.match(r"call i32 @llvm.nvvm.read.ptx.sreg.([\w.]+)", text)
    if register:
        return values.get(register[1])
    inline = _ASM.match(text)
    if inline:
        operands = [number(one.split()[-1]) for one in inline[2].split(", ")]
        return None if None in operands else _run(inline[1].split("\\0A"), operands)
    name, _, rest = text.partition(" ")
    cast = re.fullmatch(r".* (\S+) to i(\d+)", rest)
    if name in ("sext", "ptrtoint") and cast:
        return number(cast[1])
    if name == "trunc" and cast:
        whole = number(cast[1])
        return None if whole is None else signed(whole, int(cast[2]))
    moved = re.fullmatch(r"i(\d+), ptr addrspace\(1\) (\S+), i\d+ (\S+)", rest)
    if name == "getelementptr" and moved:
        base, offset = number(moved[2]), number(moved[3])
        by = int(moved[1]) // 8
        return None if base is None or offset is None else signed(base + offset * by, 64)
    binary = re.fullmatch(r"(?:(\w+) )?i(\d+) (\S+), (\S+)", rest)
    if binary is None or name not in ("icmp", *_ARITHMETIC):
        return None
    a, b = number(binary[3]), number(binary[4])
    if a is None or b is None:
        return None
    if name == "icmp":
        if binary[1].startswith("u"):
            a, b = (one & (1 << int(binary[2])) - 1 for one in (a, b))
        return -int(_RELATIONS[binary[1]](a, b))
    return signed(_ARITHMETIC[name](a, b), int(binary[2]))


def _compared(kind: str, operands: list[int]) -> int:
    """Return `setp`'s result for a relation, mostly with a predicate, and a type."""
    relation, *also, type_ = kind.split(".")
    a, b = (signed(one, int(type_[1:])) for one in operands[:2])
    if type_[0] == "u":
        a, b = (one & (1 << int(type_[1:])) - 1 for one in (a, b))
    holds = {"lt": a < b, "ge": a >= b, "gt": a > b, "eq": a == b}[relation]
    return int(holds and (not also or bool(operands[2])))


def _run(lines: list[str], operands: list[int]) -> int:
    registers = {f"${number}": value for number, value in enumerate(operands, 1)}

    def value(operand: str) -> int:
        return int(operand) if operand.lstrip("-").isdigit() else registers[operand]

    for line in lines:
        if line in ("{", "}") or line.startswith(".reg"):
            continue
        parsed = _PTX.fullmatch(line)
        assert parsed, line
        name, target, sources = parsed[1], *parsed[2].partition("}, " if "{" in line else ", ")[::2]
        operation, _, kind = name.partition(".")
        if operation == "setp":
            registers[target] = _compared(kind, [value(one) for one in sources.split(", ")])
        elif operation == "selp":
            chosen, other, by = map(value, sources.split(", "))
            registers[target] = chosen if by else other
        elif name == "cvt.u64.u32":
            registers[target] = value(sources) & (1 << 32) - 1
        elif name == "and.pred":
            registers[target] = int(all(map(value, sources.split(", "))))
        elif target.startswith("{"):
            low, high = target.strip("{}").split(", ")
            registers[low], registers[high] = (signed(value(sources) >> by, 32) for by in (0, 32))
        elif operation == "mov":
            registers[target] = value(sources)
        else:
            a, b = map(value, sources.split(", "))
            registers[target] = signed(_ARITHMETIC[operation](a, b), int(kind[1:]))
    return registers["$0"]
