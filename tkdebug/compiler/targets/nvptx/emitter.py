"""Writes LLVM IR as text, instruction by instruction, each under the op it comes from.

Responsible for names, types, attributes, declarations and debug locations; knows no op and no
layout. Text, because the code generator reads text in another process, and because it takes a
tenth of the time of building objects and printing them (cold compiles are to be fast).

Invariants: integer arithmetic on constants folds; every instruction carries the id of the op it
lowers as its debug line (real lines take their place in PTX); values of the entry block dominate
everything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tkdebug.compiler.targets.nvptx.intrinsics import INTRINSICS


class LLVMValue(NamedTuple):
    """A value of the function that is written.

    Attributes:
        type: the type as LLVM writes it: `i32`, `float`, `ptr addrspace(1)`.
        text: `%name`, `@name`, or a constant.
    """

    type: str
    text: str

    @property
    def constant(self) -> int | None:
        """The value of an integer constant; None for anything else."""
        if self.type[0] != "i":
            return None
        if self.text in ("true", "false"):
            return int(self.text == "true")
        return int(self.text) if self.text.lstrip("-").isdigit() else None


class Phi:
    """A phi whose incoming values become known while its block's predecessors are written."""

    def __init__(self, value: LLVMValue, suffix: str) -> None:
        self.value = value
        self._suffix = suffix
        self._incoming: list[str] = []

    def add_incoming(self, value: LLVMValue, block: str) -> None:
        """Take `value` when control comes from `block`."""
        assert value.type == self.value.type, f"phi of {self.value.type} gets {value.type}"
        self._incoming.append(f"[ {value.text}, %{block} ]")

    def __str__(self) -> str:
        incoming = ", ".join(self._incoming)
        return f"  {self.value.text} = phi {self.value.type} {incoming}{self._suffix}"


def integer(type_: str, value: int) -> LLVMValue:
    """An integer constant."""
    if type_ == "i1":
        return LLVMValue(type_, "true" if value & 1 else "false")
    bits = int(type_[1:])
    value &= (1 << bits) - 1
    return LLVMValue(type_, str(value - (1 << bits) if value >> (bits - 1) else value))


def floating(type_: str, value: float) -> LLVMValue:
    """A floating-point constant; half and bfloat values must be exact in their type."""
    if type_ == "half":
        return LLVMValue(type_, f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}")
    if type_ == "bfloat":
        return LLVMValue(type_, f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}")
    if type_ == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return LLVMValue(type_, f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}")


_FOLDS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "or disjoint": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
}
# op -> the right operand with which it gives its left one.
_IDENTITIES = {
    "add": 0,
    "sub": 0,
    "mul": 1,
    "or": 0,
    "or disjoint": 0,
    "xor": 0,
    "shl": 0,
    "lshr": 0,
    "ashr": 0,
}
_COMMUTATIVE = frozenset(("add", "mul", "and", "or", "or disjoint", "xor"))
_FLOAT_OPS = frozenset(("fadd", "fsub", "fmul", "fdiv", "frem"))
# Numbers of the metadata that are debug locations; those below are the module's own.
_FIRST_LOCATION = 100
# Numbers of the metadata for loops; a kernel has fewer ops.
_FIRST_LOOP = 1 << 30
# Attributes of calls of inline assembly, as `Emitter.module` defines them.
_CONVERGENT, _WITH_EFFECTS, _PURE = " #1", " #2", " #3"


class Emitter:
    """The body of one kernel, and the module around it.

    Args:
        name: the kernel's symbol.
        parameters: LLVM types of its parameters, attributes included (`ptr addrspace(1) align 16`).
        threads: threads of a block.
        contracts: whether float products and sums may become FMA.
    """

    def __init__(
        self, name: str, parameters: Sequence[str], threads: int, contracts: bool = True
    ) -> None:
        self.name = name
        self._contract = " contract" if contracts else ""
        self._parameters = tuple(parameters)
        self._threads = threads
        self._entry: list[str] = []
        self._lines: list[str | Phi] = []
        self._target: list[str] | list[str | Phi] = self._lines
        self._next_value = 0
        self._next_block = 0
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        # Op id -> number of its debug location.
        self._locations: dict[int, int] = {}
        # Loops with properties, numbered from _FIRST_LOOP.
        self._loops = 0
        self._rare_branches = False
        self._suffix = ""
        self.block = "start"

    # Where instructions go

    def set_op(self, op_id: int) -> None:
        """Write under the op `op_id` from now on."""
        number = self._locations.setdefault(op_id, _FIRST_LOCATION + len(self._locations))
        self._suffix = f", !dbg !{number}"

    @contextmanager
    def in_entry(self) -> Iterator[None]:
        """Write into the entry block, whose values are known everywhere; no branches there."""
        previous, self._target = self._target, self._entry
        try:
            yield
        finally:
            self._target = previous

    def new_block(self, stem: str) -> str:
        """A label for a block to be started later."""
        self._next_block += 1
        return f"{stem}{self._next_block}"

    def start(self, block: str) -> None:
        """Begin `block`; the one before must have ended with a branch."""
        self._lines.append(f"{block}:")
        self.block = block

    def branch(self, block: str, *, keeps_invariants: bool = False) -> None:
        """Jump to `block`; the end of a loop may keep LLVM from moving code out of the loop."""
        loop = ""
        if keeps_invariants:
            loop = f", !llvm.loop !{_FIRST_LOOP + self._loops}"
            self._loops += 1
        self._lines.append(f"  br label %{block}{self._suffix}{loop}")

    def branch_if(self, condition: LLVMValue, then: str, otherwise: str) -> None:
        """Jump to one of two blocks."""
        self._lines.append(
            f"  br i1 {condition.text}, label %{then}, label %{otherwise}{self._suffix}"
        )

    def branch_rarely(self, condition: LLVMValue, rare: str, usual: str) -> None:
        """Jump to one of two blocks, nearly always to the second; the first is put out of line."""
        self._rare_branches = True
        self._lines.append(
            f"  br i1 {condition.text}, label %{rare}, label %{usual}{self._suffix}, !prof !8"
        )

    def ret(self) -> None:
        """Return from the kernel."""
        self._lines.append(f"  ret void{self._suffix}")

    def phi(self, type_: str) -> Phi:
        """A phi at the start of the current block."""
        phi = Phi(self._name(type_), self._suffix)
        self._lines.append(phi)
        return phi

    # Instructions

    def raw(self, type_: str, text: str) -> LLVMValue:
        """Write `%new = text`, and return the new value, of type `type_`."""
        value = self._name(type_)
        self._target.append(f"  {value.text} = {text}{self._suffix}")
        return value

    def raw_void(self, text: str) -> None:
        """Write an instruction without a value."""
        self._target.append(f"  {text}{self._suffix}")

    def binary(self, op: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """A two-operand instruction by LLVM's name; float ones may be contracted to FMA."""
        assert a.type == b.type, f"{op} of {a.type} and {b.type}"
        if op in _FLOAT_OPS:
            return self.raw(a.type, f"{op}{self._contract} {a.type} {a.text}, {b.text}")
        if a.type[0] == "i":
            folded = self._fold(op, a, b)
            if folded is not None:
                return folded
        return self.raw(a.type, f"{op} {a.type} {a.text}, {b.text}")

    def _fold(self, op: str, a: LLVMValue, b: LLVMValue) -> LLVMValue | None:
        x, y = a.constant, b.constant
        if x is not None and y is not None and op in _FOLDS:
            return integer(a.type, _FOLDS[op](x, y))
        if x is not None and op in _COMMUTATIVE:
            a, b, x, y = b, a, y, x
        if y is None:
            return None
        if y == _IDENTITIES.get(op, None):
            return a
        if y == 0 and op in ("mul", "and"):
            return integer(a.type, 0)
        return None

    def add(self, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        """Integer sum."""
        return self.binary("add", a, self._like(a, b))

    def mul(self, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        """Integer product."""
        return self.binary("mul", a, self._like(a, b))

    def bit_and(self, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        """Bitwise and."""
        return self.binary("and", a, self._like(a, b))

    def xor(self, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        """Bitwise exclusive or."""
        return self.binary("xor", a, self._like(a, b))

    def shl(self, a: LLVMValue, bits: int) -> LLVMValue:
        """Shift left."""
        return self.binary("shl", a, self._like(a, bits))

    def lshr(self, a: LLVMValue, bits: int) -> LLVMValue:
        """Logical shift right."""
        return self.binary("lshr", a, self._like(a, bits))

    def fneg(self, a: LLVMValue) -> LLVMValue:
        """Float negation."""
        return self.raw(a.type, f"fneg {a.type} {a.text}")

    def icmp(self, predicate: str, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        """Integer or pointer comparison (`eq`, `slt`, `ult`, …)."""
        other = self._like(a, b)
        return self.raw("i1", f"icmp {predicate} {a.type} {a.text}, {other.text}")

    def fcmp(self, predicate: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """Float comparison (`oeq`, `une`, …)."""
        return self.raw("i1", f"fcmp {predicate} {a.type} {a.text}, {b.text}")

    def select(self, condition: LLVMValue, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """`a` where the condition holds, else `b`."""
        if a == b:
            return a
        known = condition.constant
        if known is not None:
            return a if known else b
        return self.raw(a.type, f"select i1 {condition.text}, {a.type} {a.text}, {b.type} {b.text}")

    def cast(self, op: str, value: LLVMValue, type_: str) -> LLVMValue:
        """A conversion by LLVM's name (`sext`, `bitcast`, `fpext`, `ptrtoint`, …)."""
        if value.type == type_:
            return value
        known = value.constant
        if known is not None and op in ("sext", "zext", "trunc") and type_[0] == "i":
            if op == "zext":
                known &= (1 << int(value.type[1:])) - 1
            elif op == "sext" and value.type == "i1":
                known = -known
            return integer(type_, known)
        return self.raw(type_, f"{op} {value.type} {value.text} to {type_}")

    def gep(self, pointer: LLVMValue, element: str, index: LLVMValue | int) -> LLVMValue:
        """The pointer moved by `index` elements (i32 by default; sign-extended)."""
        if isinstance(index, int):
            index = integer("i32", index)
        if index.constant == 0:
            return pointer
        return self.raw(
            pointer.type,
            f"getelementptr {element}, {pointer.type} {pointer.text}, {index.type} {index.text}",
        )

    def load(self, type_: str, pointer: LLVMValue, align: int) -> LLVMValue:
        """Read memory; `align` in bytes."""
        return self.raw(type_, f"load {type_}, {pointer.type} {pointer.text}, align {align}")

    def store(self, value: LLVMValue, pointer: LLVMValue, align: int) -> None:
        """Write memory; `align` in bytes."""
        self.raw_void(
            f"store {value.type} {value.text}, {pointer.type} {pointer.text}, align {align}"
        )

    def extract_value(self, aggregate: LLVMValue, index: int, type_: str) -> LLVMValue:
        """Member `index` of a struct."""
        return self.raw(type_, f"extractvalue {aggregate.type} {aggregate.text}, {index}")

    def vector(self, values: Sequence[LLVMValue]) -> LLVMValue:
        """A vector of equal-typed values."""
        type_ = f"<{len(values)} x {values[0].type}>"
        whole = LLVMValue(type_, "poison")
        for index, value in enumerate(values):
            whole = self.raw(
                type_,
                f"insertelement {type_} {whole.text}, {value.type} {value.text}, i32 {index}",
            )
        return whole

    def elements(self, vector: LLVMValue, count: int, type_: str) -> list[LLVMValue]:
        """The elements of a vector."""
        return [
            self.raw(type_, f"extractelement {vector.type} {vector.text}, i32 {index}")
            for index in range(count)
        ]

    def intrinsic(self, name: str, *arguments: LLVMValue) -> LLVMValue:
        """Call an intrinsic of the table (`intrinsics.INTRINSICS`), by its full LLVM name."""
        signature = INTRINSICS[name]
        self._declarations.setdefault(name, signature.declaration)
        return self._call(signature.result, name, arguments)

    def function(self, result: str, name: str, arguments: Sequence[LLVMValue]) -> LLVMValue:
        """Call a function that is linked later (libdevice)."""
        types = ", ".join(value.type for value in arguments)
        self._declarations.setdefault(name, f"declare {result} @{name}({types})")
        return self._call(result, name, arguments)

    def define(self, name: str, definition: str, intrinsics: Sequence[str]) -> None:
        """Add a function of our own once, which calls `intrinsics`."""
        self._functions.setdefault(name, definition)
        for intrinsic in intrinsics:
            self._declarations.setdefault(intrinsic, INTRINSICS[intrinsic].declaration)

    def local(self, name: str, size_bytes: int) -> None:
        """Allocate memory of the thread, under a name; in the entry block alone."""
        self.raw_void(f"{name} = alloca [{size_bytes} x i8], align 16")

    def _call(self, result: str, name: str, arguments: Sequence[LLVMValue]) -> LLVMValue:
        text = f"call {result} @{name}({_typed(arguments)})"
        if result == "void":
            self.raw_void(text)
            return LLVMValue("void", "void")
        return self.raw(result, text)

    def asm(
        self,
        template: str,
        constraints: str,
        result: str,
        arguments: Sequence[LLVMValue],
        *,
        side_effects: bool = True,
        convergent: bool = False,
    ) -> LLVMValue:
        """Inline PTX.

        Args:
            template: PTX with `$0`, `$1`… for operands, results first.
            constraints: LLVM's, as `=r,l,r`.
            result: LLVM type, a literal struct for several, or `void`.
            arguments: the inputs.
            side_effects: whether it may be neither dropped nor merged; without, it reads no memory.
            convergent: whether all threads of a warp must run it together.
        """
        escaped = template.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
        flag = "sideeffect " if side_effects else ""
        attributes = _CONVERGENT if convergent else _WITH_EFFECTS if side_effects else _PURE
        text = f'call {result} asm {flag}"{escaped}", "{constraints}"({_typed(arguments)})'
        if result == "void":
            self.raw_void(text + attributes)
            return LLVMValue("void", "void")
        return self.raw(result, text + attributes)

    def global_(self, name: str, definition: str) -> None:
        """Add a module-level definition once, e.g. `@fmt = internal constant …`."""
        self._globals.setdefault(name, definition)

    # The module

    def module(self, file: str, attributes: str = "") -> str:
        """The whole module as text; `file` names it in debug information."""
        params = ", ".join(f"{type_} %arg{i}" for i, type_ in enumerate(self._parameters))
        body = [
            *self._globals.values(),
            *self._declarations.values(),
            *self._functions.values(),
            "@shared = external addrspace(3) global [0 x i8], align 1024",
            f"define ptx_kernel void @{self.name}({params}) #0 !dbg !4 {{",
            "entry:",
            *self._entry,
            "  br label %start, !dbg !6",
            "start:",
            *map(str, self._lines),
            "}",
            f'attributes #0 = {{ nounwind "nvvm.reqntid"="{self._threads}"{attributes} }}',
            "attributes #1 = { convergent nounwind }",
            "attributes #2 = { nounwind }",
            "attributes #3 = { nounwind willreturn memory(none) }",
            "!llvm.dbg.cu = !{!0}",
            "!llvm.module.flags = !{!1, !2}",
            "!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !3, producer: "
            '"tkdebug", isOptimized: true, runtimeVersion: 0, '
            "emissionKind: DebugDirectivesOnly)",
            '!1 = !{i32 2, !"Debug Info Version", i32 3}',
            '!2 = !{i32 4, !"nvvm-reflect-ftz", i32 0}',
            f'!3 = !DIFile(filename: "{file}", directory: "")',
            f'!4 = distinct !DISubprogram(name: "{self.name}", file: !3, line: 1, type: !5, '
            "unit: !0, spFlags: DISPFlagDefinition | DISPFlagOptimized)",
            "!5 = !DISubroutineType(types: !{null})",
            f"!6 = !DILocation(line: {next(iter(self._locations), 1)}, column: 1, scope: !4)",
        ]
        body += [
            f"!{number} = !DILocation(line: {op_id}, column: 1, scope: !4)"
            for op_id, number in self._locations.items()
        ]
        if self._rare_branches:
            body.append('!8 = !{!"branch_weights", i32 1, i32 100000}')
        if self._loops:
            body.append('!7 = !{!"llvm.licm.disable"}')
            numbers = range(_FIRST_LOOP, _FIRST_LOOP + self._loops)
            body += [f"!{number} = distinct !{{!{number}, !7}}" for number in numbers]
        return "\n".join(body) + "\n"

    def parameter(self, index: int) -> LLVMValue:
        """The kernel's parameter `index`."""
        words = self._parameters[index].split()
        is_in_space = len(words) > 1 and words[1].startswith("addrspace")
        type_ = " ".join(words[:2]) if is_in_space else words[0]
        return LLVMValue(type_, f"%arg{index}")

    def _name(self, type_: str) -> LLVMValue:
        self._next_value += 1
        return LLVMValue(type_, f"%v{self._next_value}")

    def _like(self, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        return integer(a.type, b) if isinstance(b, int) else b


def _typed(values: Sequence[LLVMValue]) -> str:
    return ", ".join(f"{value.type} {value.text}" for value in values)
