"""The instructions of a kernel's PTX, with names that are unique in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Types of PTX, and their bits.
WIDTHS = {"pred": 1} | {f"{k}{n}": n for k in "bus" for n in (8, 16, 32, 64)}
WIDTHS |= {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "b128": 128}

_STATEMENT = re.compile(
    r"\s*(?:([$\w]+):(?!:))|\s*([{}])|\s*([^;{}]*(?:\{[^{}]*\}[^;{}]*)*);", re.S
)
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w.$]+)\s+)?([\w.:]+)\s*(.*)", re.S)


@dataclass(frozen=True)
class Instruction:
    """One instruction; names of registers and labels are unique in the kernel.

    Attributes:
        guard: the predicate, and whether it has to be false; None for none.
    """

    guard: tuple[str, bool] | None
    parts: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def type(self) -> str:
        """Its last type, which most instructions have one of."""
        return next(part for part in reversed(self.parts) if part in WIDTHS)


class Program:
    """The instructions of a kernel's PTX.

    Attributes:
        code: in order.
        labels: label -> place in `code`.
        parameters: name -> number.
        shared: name of a shared variable -> its place; the last is the dynamic one.
        local: the same of local memory.
    """

    def __init__(self, ptx: str) -> None:
        head, _, body = ptx.partition(".visible .entry")
        listed, _, body = body.partition("\n{")
        names = re.findall(r"\.param\s[^,\n]*?(\w+)(?:\[\d+\])?\s*(?:,|\n|\))", listed)
        self.parameters = {name: number for number, name in enumerate(names)}
        self.shared: dict[str, int] = {}
        self.static_bytes = 0
        for size, align, name in _shared_variables(head + body):
            place = -(-self.static_bytes // align) * align
            self.shared[name] = place
            self.static_bytes = place + size
        found = re.findall(r"\.local\s+\.align\s+\d+\s+\.b8\s+(\w+)\[(\d+)\]", body)
        self.local: dict[str, int] = {}
        self.local_bytes = 0
        for name, size in found:
            self.local[name] = self.local_bytes
            self.local_bytes += -(-int(size) // 16) * 16
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self._read(re.sub(r"//[^\n]*", "", body))

    def _read(self, text: str) -> None:
        text = re.sub(r"^\s*\.(loc|file|section|pragma)\b[^\n]*$", "", text, flags=re.M)
        scopes: list[dict[str, str]] = [{}]
        uses: list[tuple[int, list[dict[str, str]]]] = []
        at, count = 0, 0
        while (found := _STATEMENT.match(text, at)) is not None:
            at = found.end()
            label, brace, statement = found.groups()
            if label is not None:
                count += 1
                scopes[-1][label] = f"{label}@{count}"
                self.labels[scopes[-1][label]] = len(self.code)
            elif brace == "{":
                scopes.append({})
            elif brace == "}":
                if len(scopes) == 1:
                    break
                scopes.pop()
            elif statement.strip().startswith(".reg"):
                count += 1
                for name in re.findall(r"([%\w]+)(?:<\d+>)?(?=\s*[,]|\s*$)", statement):
                    if not name.startswith("%"):
                        scopes[-1][name] = f"{name}@{count}"
            elif statement.strip() and not statement.strip().startswith("."):
                uses.append((len(self.code), list(scopes)))
                self.code.append(_instruction(statement))
        for place, seen in uses:
            self.code[place] = _renamed(self.code[place], seen)


def _shared_variables(text: str) -> list[tuple[int, int, str]]:
    found = re.findall(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d*)\]", text)
    return [(int(size or 0), int(align), name) for align, name, size in found]


def _instruction(statement: str) -> Instruction:
    parsed = _INSTRUCTION.fullmatch(statement.strip())
    assert parsed is not None, statement
    negated, guard, opcode, rest = parsed.groups()
    parts = tuple(part for part in opcode.replace("::", "..").split(".") if part)
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s|]+", rest)
    return Instruction(None if guard is None else (guard, bool(negated)), parts, tuple(operands))


def _renamed(one: Instruction, scopes: Sequence[Mapping[str, str]]) -> Instruction:
    def rename(found: re.Match[str]) -> str:
        for scope in reversed(scopes):
            if found[0] in scope:
                return scope[found[0]]
        return found[0]

    names = re.compile(r"(?<![%.\w])[$A-Za-z_][\w$]*")
    guard = None if one.guard is None else (names.sub(rename, one.guard[0]), one.guard[1])
    return Instruction(guard, one.parts, tuple(names.sub(rename, text) for text in one.operands))
