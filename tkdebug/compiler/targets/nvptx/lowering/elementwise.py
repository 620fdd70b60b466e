"""Lowering of mapped functions and of inline PTX over the elements of tiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, LoweringError, Registers, llvm_type

_ALLOWED_INSIDE = Effects.READ | Effects.TERMINATOR
_REGISTER_BITS = 32
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SHOWN_CHARS = 80


def lower_map_elementwise(
    ctx: Lowering, op: Operation, *operands: Registers
) -> Sequence[Registers]:
    """Lower `tt.map_elementwise`: its region for each `pack` registers; branches may diverge."""
    pack = tt.MapElementwise(op).pack
    _check_region(op)
    count = len(operands[0])
    if count % pack:
        raise LoweringError.at(
            op,
            f"map_elementwise: pack {pack} does not divide the {count} elements that a thread "
            "holds; use a smaller pack, fewer warps or a larger tile",
        )
    block = op.regions[0].block
    results: list[Registers] = [[] for _ in op.results]
    for first in range(0, count, pack):
        arguments = [value for tile in operands for value in tile[first : first + pack]]
        given = ctx.inline(block, arguments)
        for index, result in enumerate(results):
            result += given[index * pack : (index + 1) * pack]
    return results


def _check_region(op: Operation) -> None:
    for inner in op.walk():
        if inner.regions or not OPS[inner.name].effects & ~_ALLOWED_INSIDE:
            continue
        raise LoweringError.at(
            inner,
            f"map_elementwise: {inner.name} inside of a mapped function is not supported in "
            "native mode; it may compute and load, and no more",
        )


# Inline PTX. A letter of LLVM's constraints -> the type of such a register.
_LETTERS = {"h": "i16", "r": "i32", "l": "i64", "f": "float", "d": "double", "b": "i1"}
# Numbers that are written into the text, as the table of lop3.
_NUMBERS = ("n", "i")


@dataclass(frozen=True, slots=True)
class _Constraints:
    """LLVM's constraint string, taken apart: register types of outputs and of inputs.

    Attributes:
        numbers: indices of the inputs that have to be constants.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    numbers: frozenset[int]

    @staticmethod
    def of(op: Operation) -> _Constraints:
        text = tt.ElementwiseInlineAsm(op).constraints
        outputs: list[str] = []
        inputs: list[str] = []
        numbers = []
        for item in filter(None, (part.strip() for part in text.split(","))):
            if item[0] == "~":
                continue
            name = item.lstrip("=&+")
            if name.isdigit() and int(name) < len(outputs):
                inputs.append(outputs[int(name)])
            elif name in _LETTERS:
                (outputs if item[0] == "=" else inputs).append(_LETTERS[name])
            elif item in _NUMBERS:
                numbers.append(len(inputs))
                inputs.append("i32")
            else:
                raise LoweringError.at(
                    op,
                    f"inline_asm_elementwise: constraint {item!r} of {text!r} is not supported; "
                    f"expected one of {', '.join((*_LETTERS, *_NUMBERS))}, as in '=r,r'",
                )
        return _Constraints(tuple(outputs), tuple(inputs), frozenset(numbers))


def lower_inline_asm(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
    """Lower `tt.elementwise_inline_asm`: its text for each `pack` elements.

    Elements below 32 bits share registers.
    """
    pack = tt.ElementwiseInlineAsm(op).pack
    constraints = _Constraints.of(op)
    widths = [_per_register(llvm_type(result.type), pack) for result in op.results]
    _check_counts(op, constraints, pack, operands, widths)
    _check_closed(op)
    count = ctx.register_count(op.results[0])
    results: list[Registers] = [[] for _ in op.results]
    for first in range(0, count, pack):
        arguments: list[LLVMValue] = []
        for tile in operands:
            # A last instance that is not full sees the last element again.
            part = [tile[min(first + i, count - 1)] for i in range(pack)]
            arguments += _packed(ctx, part, constraints.inputs[len(arguments) :])
        _check_numbers(op, constraints, arguments)
        values = _run(ctx, op, constraints, arguments)
        for result, registers, per_register in zip(op.results, results, widths, strict=True):
            type_ = llvm_type(result.type)
            words, values = values[: pack // per_register], values[pack // per_register :]
            for word in words:
                registers += _unpacked(ctx, word, type_, per_register)
    return [registers[:count] for registers in results]


def _per_register(type_: str, pack: int) -> int:
    """The number of elements that share a register."""
    return min(max(1, _REGISTER_BITS // max(8, TYPE_BITS[type_])), pack)


def _check_counts(
    op: Operation,
    constraints: _Constraints,
    pack: int,
    operands: Sequence[Registers],
    widths: Sequence[int],
) -> None:
    wanted = sum(pack // _per_register(tile[0].type, pack) for tile in operands)
    for what, have, want in (
        ("inputs", len(constraints.inputs), wanted),
        ("outputs", len(constraints.outputs), sum(pack // width for width in widths)),
    ):
        if have != want:
            raise LoweringError.at(
                op,
                "inline_asm_elementwise: the constraints "
                f"{tt.ElementwiseInlineAsm(op).constraints!r} name {have} {what}, "
                f"but with pack={pack} there must be {want}",
            )


def _check_numbers(
    op: Operation, constraints: _Constraints, arguments: Sequence[LLVMValue]
) -> None:
    for place in constraints.numbers:
        if arguments[place].constant is None:
            raise LoweringError.at(
                op,
                f"inline_asm_elementwise: input {place} of "
                f"{tt.ElementwiseInlineAsm(op).constraints!r} has to be a number that is known "
                "when the kernel is compiled; pass a constexpr",
            )


def _check_closed(op: Operation) -> None:
    """Refuse text that would swallow the PTX after it, which ptxas blames on the kernel's end."""
    text = _COMMENT.sub(" ", tt.ElementwiseInlineAsm(op).asm)
    depth = 0
    for brace in re.findall(r"[{}]|/\*", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0 or brace == "/*":
            break
    else:
        if depth == 0:
            return
        brace = "{"
    side = "opened" if depth < 0 else "closed"
    raise LoweringError.at(
        op, f"inline_asm_elementwise: `{brace}` is never {side} in `{_shown(text)}`"
    )


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"


def _packed(ctx: Lowering, part: Sequence[LLVMValue], registers: Sequence[str]) -> list[LLVMValue]:
    """Pack elements into the registers that the constraints name."""
    emit = ctx.emit
    per_register = _per_register(part[0].type, len(part))
    words = []
    for index, register in enumerate(registers[: len(part) // per_register]):
        shared = part[index * per_register : (index + 1) * per_register]
        if shared[0].type == "i1" and register != "i1":
            shared = [emit.cast("zext", value, "i8") for value in shared]
        bits = [ctx.to_bits(value) for value in shared]
        word = bits[0] if per_register == 1 else _joined(ctx, bits)
        words.append(_as_register(ctx, word, register))
    return words


def _joined(ctx: Lowering, bits: Sequence[LLVMValue]) -> LLVMValue:
    width = TYPE_BITS[bits[0].type]
    return ctx.emit.cast("bitcast", ctx.emit.vector(bits), f"i{width * len(bits)}")


def _as_register(ctx: Lowering, bits: LLVMValue, register: str) -> LLVMValue:
    """Convert bits to a register's type, cut or extended with zeros."""
    want, have = TYPE_BITS[register], int(bits.type[1:])
    resized = ctx.emit.cast("zext" if want > have else "trunc", bits, f"i{want}")
    return ctx.from_bits(resized, register)


def _unpacked(ctx: Lowering, word: LLVMValue, type_: str, per_register: int) -> list[LLVMValue]:
    emit = ctx.emit
    bits = ctx.to_bits(word)
    width = TYPE_BITS[type_] if per_register == 1 else max(8, TYPE_BITS[type_])
    total = width * per_register
    have = int(bits.type[1:])
    bits = emit.cast("zext" if total > have else "trunc", bits, f"i{total}")
    parts = [bits]
    if per_register > 1:
        vector = emit.cast("bitcast", bits, f"<{per_register} x i{width}>")
        parts = emit.elements(vector, per_register, f"i{width}")
    if type_ == "i1":
        return [emit.cast("trunc", part, "i1") for part in parts]
    return [ctx.from_bits(part, type_) for part in parts]


_MEMORY = re.compile(r"\b(ld|ldu|st|atom|red|cp|mbarrier|membar|fence)\b")
_TOGETHER = re.compile(r"\.sync\b|\b(bar|barrier|shfl|vote|match|activemask)\b")


def _run(
    ctx: Lowering, op: Operation, constraints: _Constraints, arguments: Sequence[LLVMValue]
) -> list[LLVMValue]:
    """Write one instance of the text, and return the output registers."""
    text, outputs = tt.ElementwiseInlineAsm(op).asm, constraints.outputs
    result = "void" if not outputs else outputs[0]
    if len(outputs) > 1:
        result = f"{{ {', '.join(outputs)} }}"
    got = ctx.emit.asm(
        text,
        tt.ElementwiseInlineAsm(op).constraints.replace(" ", ""),
        result,
        arguments,
        # Text that reads memory may not move, whatever its author says of purity.
        side_effects=not tt.ElementwiseInlineAsm(op).pure or _MEMORY.search(text) is not None,
        convergent=_TOGETHER.search(text) is not None,
    )
    if len(outputs) <= 1:
        return [got] if outputs else []
    return [ctx.emit.extract_value(got, i, type_) for i, type_ in enumerate(outputs)]


LOWERINGS: dict[str, Lower] = {
    tt.MapElementwise.name: lower_map_elementwise,
    tt.ElementwiseInlineAsm.name: lower_inline_asm,
}
