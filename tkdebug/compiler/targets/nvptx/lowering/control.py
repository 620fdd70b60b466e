"""Lowering of functions and structured control flow to basic blocks and phis.

All scalars are equal in every thread of a block, so that branches never diverge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, Phi
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    elements_of_word,
    word_of_elements,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers

_WORD_BITS = 32


def _phis(ctx: Lowering, like: Sequence[Registers]) -> list[list[Phi]]:
    return [[ctx.emit.phi(value.type) for value in registers] for registers in like]


def _values(phis: Sequence[Sequence[Phi]]) -> list[Registers]:
    return [[phi.value for phi in slot] for slot in phis]


def _feed(phis: Sequence[Sequence[Phi]], values: Sequence[Registers], block: str) -> None:
    for slot, registers in zip(phis, values, strict=True):
        for phi, value in zip(slot, registers, strict=True):
            phi.add_incoming(value, block)


def _bind(ctx: Lowering, names: Sequence[Value], values: Sequence[Registers]) -> None:
    for name, registers in zip(names, values, strict=True):
        ctx.values[name] = registers


def _operands(ctx: Lowering, op: Operation) -> list[Registers]:
    return [ctx.values[operand] for operand in op.operands]


def _is_fragment(value: Value) -> bool:
    """Whether `value` is only used as an operand of mma.sync dots, which take it as words."""
    return bool(value.uses) and all(
        tt.Dot.matches(user)
        and tt.Dot(user).unit == "mma"
        and tt.Dot(user).accumulator is not value
        for user in value.uses
    )


def _as_words(
    ctx: Lowering, slots: Sequence[Registers], elements: Sequence[str | None]
) -> list[Registers]:
    """Pack iter args that are fragments into mma.sync's words; those with element None stay."""
    return [
        [word_of_elements(ctx, group) for group in _grouped(slot, element)] if element else slot
        for slot, element in zip(slots, elements, strict=True)
    ]


def _grouped(registers: Registers, element: str) -> Iterator[Registers]:
    count = _WORD_BITS // TYPE_BITS[element]
    return (registers[i : i + count] for i in range(0, len(registers), count))


def _from_words(
    ctx: Lowering, slots: Sequence[Registers], elements: Sequence[str | None]
) -> list[Registers]:
    """Unpack the words of iter args that `_as_words` packed."""
    return [
        [
            value
            for word in slot
            for value in elements_of_word(ctx, word, element, _WORD_BITS // TYPE_BITS[element])
        ]
        if element
        else slot
        for slot, element in zip(slots, elements, strict=True)
    ]


def lower_for(
    ctx: Lowering,
    op: Operation,
    lower: Registers,
    upper: Registers,
    step: Registers,
    *inits: Registers,
) -> Sequence[Registers]:
    """Lower `scf.for` to a loop that tests at its top; LLVM rotates it."""
    emit, body = ctx.emit, op.regions[0].block
    elements = [
        slot[0].type if _is_fragment(argument) else None
        for argument, slot in zip(body.arguments[1:], inits, strict=True)
    ]
    first = _as_words(ctx, inits, elements)
    for observer in ctx.observers:
        observer.loop_begins(op)
    head, inside, after = (emit.new_block(stem) for stem in ("for.head", "for.body", "for.end"))
    before = emit.block
    emit.branch(head)
    emit.start(head)
    counter = emit.phi(lower[0].type)
    carried = _phis(ctx, first)
    counter.add_incoming(lower[0], before)
    _feed(carried, first, before)
    for observer in ctx.observers:
        observer.loop_head(op, before)
    emit.branch_if(emit.icmp("slt", counter.value, upper[0]), inside, after)
    emit.start(inside)
    _bind(ctx, body.arguments, [[counter.value], *_from_words(ctx, _values(carried), elements)])
    terminator = ctx.lower_block(body)
    emit.set_op(op.id)
    for observer in ctx.observers:
        observer.loop_round_ends(op)
    following = emit.add(counter.value, step[0])
    counter.add_incoming(following, emit.block)
    _feed(carried, _as_words(ctx, _operands(ctx, terminator), elements), emit.block)
    emit.branch(head, keeps_invariants=bool(scf.Loop(op).disable_licm))
    emit.start(after)
    return _from_words(ctx, _values(carried), elements)


def lower_while(ctx: Lowering, op: Operation, *inits: Registers) -> Sequence[Registers]:
    """Lower `scf.while`: region `before` computes the condition, `after` is the body."""
    emit = ctx.emit
    for observer in ctx.observers:
        observer.loop_begins(op)
    condition_block, body = op.regions[0].block, op.regions[1].block
    head, inside, after = (
        emit.new_block(stem) for stem in ("while.head", "while.body", "while.end")
    )
    before = emit.block
    emit.branch(head)
    emit.start(head)
    carried = _phis(ctx, inits)
    _feed(carried, inits, before)
    for observer in ctx.observers:
        observer.loop_head(op, before)
    _bind(ctx, condition_block.arguments, _values(carried))
    terminator = ctx.lower_block(condition_block)
    condition, *handed = _operands(ctx, terminator)
    emit.set_op(op.id)
    emit.branch_if(condition[0], inside, after)
    emit.start(inside)
    _bind(ctx, body.arguments, handed)
    terminator = ctx.lower_block(body)
    emit.set_op(op.id)
    for observer in ctx.observers:
        observer.loop_round_ends(op)
    _feed(carried, _operands(ctx, terminator), emit.block)
    emit.branch(head, keeps_invariants=bool(scf.Loop(op).disable_licm))
    emit.start(after)
    return handed


def lower_if(ctx: Lowering, op: Operation, condition: Registers) -> Sequence[Registers]:
    """Lower `scf.if` to a branch, the blocks of its regions, and a join."""
    emit = ctx.emit
    then, otherwise, after = (emit.new_block(stem) for stem in ("then", "else", "endif"))
    emit.branch_if(condition[0], then, otherwise)
    ends: list[tuple[list[Registers], str]] = []
    for label, region in zip((then, otherwise), op.regions, strict=True):
        emit.start(label)
        terminator = ctx.lower_block(region.block)
        ends.append((_operands(ctx, terminator), emit.block))
        emit.set_op(op.id)
        emit.branch(after)
    emit.start(after)
    phis = _phis(ctx, ends[0][0])
    for values, block in ends:
        _feed(phis, values, block)
    return _values(phis)


def lower_program_id(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `tt.get_program_id` to %ctaid."""
    return ([_grid_register(ctx, "ctaid", op)],)


def lower_num_programs(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `tt.get_num_programs` to %nctaid."""
    return ([_grid_register(ctx, "nctaid", op)],)


def _grid_register(ctx: Lowering, register: str, op: Operation) -> LLVMValue:
    axis = tt.GridQuery(op).axis
    return ctx.emit.intrinsic(f"llvm.nvvm.read.ptx.sreg.{register}.{'xyz'[axis]}")


LOWERINGS: dict[str, Lower] = {
    scf.For.name: lower_for,
    scf.While.name: lower_while,
    scf.If.name: lower_if,
    tt.GetProgramId.name: lower_program_id,
    tt.GetNumPrograms.name: lower_num_programs,
}
