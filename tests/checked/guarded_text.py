"""Runs the second way of a guarded access for one thread, from the inline PTX that lowering writes.

Only the instructions that `guarded_access` uses are known; all others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_ASM = re.compile(r'asm sideeffect "(\{\\0A\.reg \.pred q.*?)", "([^"]*)"')
_REPORT = re.compile(r'asm sideeffect "(\{\\0A\.reg \.pred here.*?)", "[^"]*"')
_LINE = re.compile(r"(?:@(!?)(\S+) )?([\w.:]+) (.*);")
_PLACE = re.compile(r"\[(\S+?)(?:\+(-?\d+))?\]")
_ARITHMETIC: dict[str, Callable[..., int]] = {
    "add.s64": lambda a, b: a + b,
    "sub.s64": lambda a, b: a - b,
    "sub.s32": lambda a, b: a - b,
    "max.s64": lambda a, b: max(_signed(a, 64), b),
    "max.s32": lambda a, b: max(_signed(a, 32), b),
    "min.u64": min,
    "and.b32": lambda a, b: a & b,
    "and.b64": lambda a, b: a & b,
    "and.b16": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b16": lambda a, b: a ^ b,
    "xor.b32": lambda a, b: a ^ b,
    "xor.b64": lambda a, b: a ^ b,
    "or.b64": lambda a, b: a | b,
    "shl.b32": lambda a, b: a << b,
    "shl.b64": lambda a, b: a << b,
    "shr.u32": lambda a, b: a >> b,
    "shr.s32": lambda a, b: _signed(a, 32) >> b,
    "shr.u16": lambda a, b: a >> b,
    "and.pred": lambda a, b: a & b,
    "or.pred": lambda a, b: a | b,
    "xor.pred": lambda a, b: a ^ b,
    "not.pred": lambda a: a ^ 1,
    "not.b32": lambda a: ~a,
    "bmsk.clamp.b32": lambda a, b: ((1 << min(b, 32)) - 1) << a,
    "selp.b32": lambda a, b, c: a if c else b,
    "selp.b64": lambda a, b, c: a if c else b,
    "add.u32": lambda a, b: a + b,
    "mul.wide.u32": lambda a, b: a * b,
    "popc.b32": int.bit_count,
    "brev.b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "clz.b32": lambda a: 32 - a.bit_length(),
}
_MOVES = ("mov.b16", "mov.b32", "mov.b64", "cvt.u32.u64", "cvt.u64.u32", "cvt.u16.u32")


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def guarded_texts(llvm_ir: str) -> list[str]:
    """The inline PTX of the guarded accesses in LLVM IR, in order."""
    return [text.replace("\\0A", "\n") for text, _ in _ASM.findall(llvm_ir)]


def report_texts(llvm_ir: str) -> list[str]:
    """The inline PTX that reports elements with a bit each, up to the report itself, in order."""
    texts = [text.replace("\\0A", "\n") for text in _REPORT.findall(llvm_ir)]
    return [text[: text.index("{\n.reg .pred more")] for text in texts]


@dataclass
class Thread:
    """A thread's registers, and what it did.

    Attributes:
        registers: by name; what a text does not define is an operand.
        memory: byte address -> what is there; 0x55 elsewhere.
        read: bytes that it read, but for flags.
        written: what it wrote, by address.
        flagged: whether it has set the site's flag.
        local: bytes of local memory, by address.
    """

    registers: dict[str, int]
    memory: Callable[[int], int]
    read: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)
    flagged: bool = False
    local: dict[int, int] = field(default_factory=dict)

    def run_far(self, text: str) -> None:
        """All but the usual way."""
        self.run(text.partition("NEAR:")[0].splitlines())

    def run(self, lines: list[str]) -> None:
        """Some instructions; there is no other thread, and no branch from one way to the other."""
        labels = {line[:-1]: place for place, line in enumerate(lines) if line.endswith(":")}
        labels.pop("DONE", None)
        self.registers.setdefault("check_scratch", 1 << 50)
        place = 0
        while place < len(lines):
            line, place = lines[place], place + 1
            is_code = not line.startswith((".", "barrier.")) and line not in ("{", "}")
            branch = re.fullmatch(r"(?:@(!?)(\S+) )?bra\S* (\w+);", line)
            if branch is not None:
                turned, guard, label = branch.groups()
                if guard is None or bool(self._value(guard)) != bool(turned):
                    place = labels.get(label, place)
            elif is_code and not line.endswith(":"):
                self._step(line)

    def _step(self, line: str) -> None:
        parsed = _LINE.fullmatch(line)
        assert parsed, line
        turned, guard, name, operands = parsed.groups()
        if guard is not None and bool(self._value(guard)) == bool(turned):
            return
        first, *rest = re.split(r", (?![^{]*\})", operands)
        if name.startswith("setp."):
            self._compare(name, first, rest)
        elif name == "mov.b64" and first.startswith("{"):
            for number, half in enumerate(first.strip("{}").split(", ")):
                self._put("mov.b32", half, self._value(rest[0]) >> 32 * number)
        elif name in _MOVES:
            self._put(name, first, self._value(rest[0]))
        elif name in _ARITHMETIC:
            self._put(name, first, _ARITHMETIC[name](*map(self._value, rest)))
        elif name.startswith("st.relaxed"):
            self.flagged = True
        elif name.startswith("ld."):
            self._load(name, first, rest[0])
        elif name.startswith("st."):
            self._store(name, first, rest[0])
        else:
            assert name.startswith("cp.async"), line
            self._copy(first, rest)

    def _value(self, operand: str) -> int:
        return int(operand) if operand.lstrip("-").isdigit() else self.registers[operand]

    def _put(self, name: str, register: str, value: int) -> None:
        bits = {"pred": 1, "16": 16, "32": 32, "64": 64}[
            re.sub(r"\D", "", name.split(".")[1 if name.startswith("cvt") else -1]) or "pred"
        ]
        bits *= 1 + (".wide" in name)
        self.registers[register] = value & (1 << bits) - 1

    def _compare(self, name: str, targets: str, operands: list[str]) -> None:
        _, relation, *kinds = name.split(".")
        a, b = (self._value(one) & (1 << 64) - 1 for one in operands[:2])
        if kinds[-1] == "s64":
            a, b = _signed(a, 64), _signed(b, 64)
        holds = {"lt": a < b, "ge": a >= b, "ne": a != b, "eq": a == b}[relation]
        also = self._value(operands[2]) if kinds[0] == "and" else 1
        for target, found in zip(targets.split("|"), (holds, not holds), strict=False):
            self.registers[target] = int(found and also)

    def _address(self, place: str) -> int:
        found = _PLACE.fullmatch(place)
        assert found, place
        return self._value(found[1]) + int(found[2] or 0)

    def _load(self, name: str, target: str, place: str) -> None:
        size, address = int(name.rpartition(".b")[2]) // 8, self._address(place)
        is_local = name.startswith("ld.local")
        for register in target.strip("{}").split(", "):
            there = range(address, address + size)
            memory = self.local.__getitem__ if is_local else self.memory
            self.read.update(() if is_local else there)
            self.registers[register] = int.from_bytes(bytes(map(memory, there)), "little")
            address += size

    def _store(self, name: str, place: str, source: str) -> None:
        size, address = int(name.rpartition(".b")[2]) // 8, self._address(place)
        written = self.local if name.startswith("st.local") else self.written
        for operand in source.strip("{}").split(", "):
            for byte in (self._value(operand) & (1 << 64) - 1).to_bytes(8, "little")[:size]:
                written[address] = byte
                address += 1

    def _copy(self, target: str, rest: list[str]) -> None:
        place, size, *count = rest
        taken = self._value(count[0]) if count else int(size)
        for byte in range(int(size)):
            address = self._address(place) + byte
            self.written[self._address(target) + byte] = self.memory(address) if byte < taken else 0
            self.read.update((address,) if byte < taken else ())
