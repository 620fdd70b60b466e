"""Op ids in PTX's `.loc` lines become Python lines; a table keeps the op of each PTX line.

LLVM is given the id of the op as the line number of each instruction. Here each `.loc` gets the
real place, with its chain of `inlined_at` where device functions were inlined (LLVM's PTX printer
drops those), so that NVIDIA's tools show Python.

Invariants: no `.loc` of line 0 is left, because ptxas would let its instructions inherit the line
before; an instruction to which LLVM gives no place (it drops places when it hoists) is under
`GENERATED_FILE`, except that a constant, a copy, a kernel parameter or integer arithmetic belongs
to the instruction that reads its result first. Memory accesses, floating-point arithmetic and ops
with effects never get a place in this way. Two more get one. A jump that block placement inserted
belongs to the op whose branches lead to its label, if that is one op: ptxas puts the first values
of loops there. A step of a reduction over lanes, which LLVM may move, belongs to the op of the step
before. Source: PTX ISA, "Debugging Directives": .file, .loc, .section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tkdebug.errors import Frame

GENERATED_FILE = "<tkdebug>"
_ENTRY_OP = -1
_ADOPTION_ROUNDS = 3
_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)\s")
_REGISTER = re.compile(r"%[a-zA-Z]+\d+")
_FOLLOWS_READER = re.compile(
    r"\s*(?:(?:mov|ld\.param|cvta|selp|setp)[.\w]*"
    r"|(?:add|sub|mul|mad|shl|shr|and|or|xor|not|neg|min|max|abs|cvt|bfe|bfi|prmt|shf|lop3)"
    r"(?:\.(?:wide|lo|hi|l|r|wrap|clamp|sat|pred|[sub]\d+))+)"
    r"\s+(%[a-zA-Z]+\d+)[,|]"
)
_SHUFFLE = re.compile(r"\s*shfl\.sync\.bfly\.b32\s+(%\w+), (%\w+),")
_COMBINATION = re.compile(r"\s*((?:add|mul|min|max|and|or|xor)[.\w]*)\s+(%\w+), (%\w+), (%\w+);")
_BRANCH = re.compile(r"\s*(@!?%p\d+\s+)?bra(?:\.uni)?\s+(\$\w+);")
_WRITES_NO_REGISTER = re.compile(r"\s*(?:@!?%p\d+\s+)?(?:st|red|cp|bra|bar|mbarrier|wgmma|call)\b")
# The beginnings of lines that are no instructions.
_NO_INSTRUCTION = (".", "//", "$")
_ASSEMBLY = ("// begin inline asm", "// end inline asm")


@dataclass(frozen=True, slots=True)
class PtxLine:
    """The instruction on `line` (1-based) of the PTX is of the op `op_id`, None for no op."""

    line: int
    op_id: int | None


def rewrite_locations(
    ptx: str, locations: Mapping[int, tuple[Frame, ...]], entry: tuple[Frame, ...] = ()
) -> tuple[str, tuple[PtxLine, ...]]:
    """PTX with Python lines in its `.loc`, and the op of each of its instructions.

    Args:
        ptx: text whose `.loc` lines carry op ids, or 0.
        locations: op id -> call chain, outermost first.
        entry: place of the kernel's `def`, for the code before its first op.

    Returns:
        The new text, and one entry per instruction line of it, in order.
    """
    lines = ptx.splitlines()
    has_routines = ".func" in ptx
    ops = _op_of_each_line(lines, has_routines)
    _adopt_unplaced(lines, ops)
    _adopt_jumps(lines, ops)
    _adopt_reduction_steps(lines, ops)
    places = _Places()
    output: list[str] = []
    table: list[PtxLine] = []
    current: int | None = None
    in_routine = False
    for text, op_id in zip(lines, ops, strict=True):
        in_routine = has_routines and _is_in_routine(text, in_routine)
        # A regular expression takes longer than a search for its fixed part.
        if op_id is None and (".loc" in text or ".file" in text):
            if _LOC.match(text) or text.lstrip().startswith(".file"):
                continue
        is_begin = text[:1] == "$" and text.startswith("$L__func_begin")
        if is_begin:
            current = None
            places.named.clear()
        if op_id is not None:
            if op_id != current:
                frames = entry if op_id == _ENTRY_OP else locations.get(op_id, ())
                output += places.directives(frames)
                current = op_id
            table.append(PtxLine(len(output) + 1, op_id if op_id in locations else None))
        output.append(text)
        if is_begin and entry and not in_routine:
            # ptxas's own code at the entry (the stack pointer) gets the first place of the
            # function.
            output += places.directives(entry)
            current = _ENTRY_OP
    output += places.sections()
    return "\n".join(output) + "\n", tuple(table)


def _op_of_each_line(lines: list[str], has_routines: bool) -> list[int | None]:
    """Return by line the op id of its `.loc`, 0 for no place; None for lines without an op."""
    ops: list[int | None] = []
    current: int | None = None
    at_entry = in_routine = False
    for text in lines:
        op_id = None
        in_routine = has_routines and _is_in_routine(text, in_routine)
        if text[:1] == "$":
            if text.startswith("$L__func_begin"):
                current, at_entry = None if in_routine else _ENTRY_OP, not in_routine
            elif text.startswith("$L__func_end"):
                current = None
        elif ".loc" in text and (found := _LOC.match(text)):
            # The first one after the label is the subprogram's own line, no op's.
            current = _ENTRY_OP if at_entry else int(found[1])
            at_entry = False
        elif current is not None and _is_instruction(text):
            op_id = current
        ops.append(op_id)
    return ops


def _is_in_routine(text: str, before: bool) -> bool:
    """Whether a line is in a `.func` that the kernel calls, whose code belongs to no op."""
    return text.startswith(".func") or (before and ".entry" not in text)


def _is_instruction(text: str) -> bool:
    stripped = text.lstrip()
    return (
        stripped not in "{}"
        and not stripped.startswith(_NO_INSTRUCTION)
        and not stripped.endswith(":")
    )


def _adopt_unplaced(lines: list[str], ops: list[int | None]) -> None:
    """Give instructions without a place that serve one reader the reader's place."""
    made: dict[int, str] = {}
    in_assembly = False
    for index, text in enumerate(lines):
        if "//" in text and text.lstrip() in _ASSEMBLY:
            in_assembly = text.lstrip() == _ASSEMBLY[0]
        elif ops[index] in (0, _ENTRY_OP) and not in_assembly:
            if found := _FOLLOWS_READER.match(text):
                made[index] = found[1]
    if not made:
        return
    readers = _readers(lines, ops, set(made.values()))
    for _ in range(_ADOPTION_ROUNDS):  # a reader above, in a loop, may need a place itself first
        for index in reversed([index for index in made if ops[index] in (0, _ENTRY_OP)]):
            placed = [r for r in readers.get(made[index], ()) if (ops[r] or 0) > 0]
            if placed:
                ops[index] = ops[next((r for r in placed if r > index), placed[0])]


def _adopt_jumps(lines: list[str], ops: list[int | None]) -> None:
    """Give jumps without a place the place of the other branches to their label."""
    branches = {
        i: found for i, text in enumerate(lines) if "bra" in text and (found := _BRANCH.match(text))
    }
    jumps = [i for i, found in branches.items() if ops[i] in (0, _ENTRY_OP) and not found[1]]
    if not jumps:
        return
    leading: dict[str, set[int]] = {}
    before: int | None = None
    for index, text in enumerate(lines):
        if text.startswith("$") and text.rstrip().endswith(":"):
            if before in branches and branches[before][1]:  # its other way falls through to here
                leading.setdefault(text.rstrip()[:-1], set()).add(ops[before] or 0)
        elif ops[index] is not None:
            before = index
            if index in branches:
                leading.setdefault(branches[index][2], set()).add(ops[index] or 0)
    for index in jumps:
        placed = leading[branches[index][2]] - {0, _ENTRY_OP}
        if len(placed) == 1:
            (ops[index],) = placed


def _adopt_reduction_steps(lines: list[str], ops: list[int | None]) -> None:
    """Give `c = f(b, shuffled b)` that has no place the op of `b = f(…)`."""
    if not any("shfl.sync.bfly" in text for text in lines):
        return
    shuffled: dict[str, str] = {}
    made: dict[str, tuple[str, int]] = {}
    for index, text in enumerate(lines):
        if "shfl" in text and (found := _SHUFFLE.match(text)):
            shuffled[found[1]] = found[2]
        elif found := _COMBINATION.match(text):
            name, result, left, right = found.groups()
            before, op_id = made.get(left, ("", 0))
            if ops[index] in (0, _ENTRY_OP) and shuffled.get(right) == left and before == name:
                ops[index] = op_id
            if (op := ops[index] or 0) > 0:
                made[result] = name, op
        elif written := _REGISTER.search(text.partition(",")[0]):
            made.pop(written[0], None)
            shuffled.pop(written[0], None)


def _readers(lines: list[str], ops: list[int | None], registers: set[str]) -> dict[str, list[int]]:
    """Return, for each of `registers`, the lines that read it, in order."""
    readers: dict[str, list[int]] = {}
    for index, text in enumerate(lines):
        if ops[index] is None or "%" not in text:
            continue
        if not _WRITES_NO_REGISTER.match(text) and not text.lstrip().startswith("{"):
            guard = text[: text.index(" ")] if text.lstrip().startswith("@") else ""
            text = guard + text.partition(",")[2]
        for register in _REGISTER.findall(text):
            if register in registers:
                readers.setdefault(register, []).append(index)
    return readers


@dataclass(slots=True)
class _Places:
    """Files, function names and call chains that were given numbers in this PTX."""

    files: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    chains: dict[tuple[Frame, ...], tuple[int, int, int]] = field(default_factory=dict)
    columns: dict[tuple[int, int], int] = field(default_factory=dict)
    named: set[tuple[Frame, ...]] = field(default_factory=set)

    def directives(self, frames: tuple[Frame, ...]) -> list[str]:
        """The `.loc` lines that bring `frames` into force; () is generated code."""
        if not frames:
            return [f"\t.loc\t{self._file(GENERATED_FILE)} 1 0"]
        # A position must have been named in this function before `inlined_at` may name it.
        outer = [frames[:depth] for depth in range(1, len(frames))]
        chains = [*(chain for chain in outer if chain not in self.named), frames]
        self.named.update(chains)
        return [self._loc(chain) for chain in chains]

    def _loc(self, chain: tuple[Frame, ...]) -> str:
        file, line, column = self._position(chain)
        text = f"\t.loc\t{file} {line} {column}"
        if len(chain) == 1:
            return text
        label = self.functions.setdefault(chain[-1].function, len(self.functions))
        outer = " ".join(str(number) for number in self._position(chain[:-1]))
        return f"{text}, function_name $L__info_string{label}, inlined_at {outer}"

    def _position(self, chain: tuple[Frame, ...]) -> tuple[int, int, int]:
        # The column distinguishes chains that end on one line; it does not reach the cubin.
        if chain not in self.chains:
            place = self._file(chain[-1].file), max(1, chain[-1].line)
            column = self.columns[place] = self.columns.get(place, -1) + 1
            self.chains[chain] = (*place, column)
        return self.chains[chain]

    def _file(self, name: str) -> int:
        return self.files.setdefault(name, len(self.files) + 1)

    def sections(self) -> list[str]:
        """The `.file` lines and the string section, for the end of the text."""
        lines = [f'\t.file\t{number} "{_quoted(name)}"' for name, number in self.files.items()]
        if self.functions:
            lines += ["\t.section\t.debug_str", "\t{"]
            for name, label in self.functions.items():
                data = ",".join(str(byte) for byte in (*name.encode(errors="replace"), 0))
                lines += [f"$L__info_string{label}:", f"\t.b8 {data}"]
            lines.append("\t}")
        return lines


def _quoted(name: str) -> str:
    # ptxas takes ASCII only, knows no escapes, and turns backslashes into slashes.
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"%{byte:02X}"
        for byte in name.encode(errors="surrogateescape")
    )
