"""Readings of the clock in a kernel with timelines: one lane of each chosen warp writes them.

Every warp runs the same instructions; warps of programs that were not asked for have no room, and
write nothing. The assembler keeps a volatile reading in its place among other volatile ones, memory
accesses and barriers, but may move arithmetic over it.

Source: PTX ISA, "Special Registers": %clock, %globaltimer, %smid.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.sites.clocks import HEADER_WORDS, WORD_BYTES, clock_sites, warp_bytes
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.observers import LoweringObserver

_HEADER_BYTES = HEADER_WORDS * WORD_BYTES
_START = (
    "{ .reg .pred p; .reg .b64 t; .reg .b32 s, c; setp.ne.u64 p, $0, 0; "
    "mov.u64 t, %globaltimer; mov.u32 s, %smid; mov.u32 c, %clock; "
    "@p st.global.b64 [$0], t; @p st.global.v2.b32 [$0+16], {c, s}; }"
)
_MARK = (
    "{ .reg .pred p; .reg .b64 a; .reg .b32 c; setp.lt.u32 p, $1, $2; mov.u32 c, %clock; "
    "cvt.u64.u32 a, $1; add.u64 a, a, $3; @p st.global.v2.b32 [a], {c, $4}; "
    f"add.u32 $0, $1, {WORD_BYTES}; }}"
)
_END = (
    "{ .reg .pred p; .reg .b64 t; .reg .b32 c, n; setp.ne.u64 p, $0, 0; mov.u32 c, %clock; "
    f"mov.u64 t, %globaltimer; sub.u32 n, $1, {_HEADER_BYTES}; shr.u32 n, n, 3; "
    "@p st.global.b64 [$0+8], t; @p st.global.v2.b32 [$0+24], {c, n}; }"
)


class Timeline(LoweringObserver):
    """Reads the clock in one kernel.

    Args:
        ctx: the kernel on its way to LLVM IR, at its first instruction.
        room: address of the memory for all programs that are asked for.
    """

    def __init__(self, ctx: Lowering, room: LLVMValue) -> None:
        self._ctx, function = ctx, tt.Func(ctx.module.function)
        self._numbers = clock_sites(function.op)
        emit = ctx.emit
        marks, *programs = function.timeline
        size = warp_bytes(marks)
        program = ctx.program_number()
        place = integer("i32", -1)
        for index, number in enumerate(programs):
            is_this = emit.icmp("eq", program, number)
            place = emit.select(is_this, integer("i32", index), place)
        is_kept = emit.bit_and(emit.icmp("sge", place, 0), emit.icmp("eq", ctx.lane, 0))
        warp = emit.add(emit.mul(place, function.num_warps), ctx.warp)
        first = emit.cast("ptrtoint", room, "i64")
        first = emit.add(first, emit.mul(emit.cast("sext", warp, "i64"), size))
        self._first = emit.select(is_kept, first, integer("i64", 0))
        self._limit = emit.select(is_kept, integer("i32", size), integer("i32", 0))
        with emit.in_entry():
            self._cursor = emit.raw("ptr", "alloca i32, align 4")
        emit.store(integer("i32", _HEADER_BYTES), self._cursor, 4)
        emit.asm(_START, "l,~{memory}", "void", (self._first,))

    def before(self, op: Operation) -> None:
        """Read the clock where `op` is a site."""
        number = self._numbers.get(op)
        if number is None:
            return
        emit = self._ctx.emit
        emit.set_op(op.id)
        cursor = emit.load("i32", self._cursor, 4)
        arguments = (cursor, self._limit, self._first, integer("i32", number))
        moved = emit.asm(_MARK, "=r,r,r,l,n,~{memory}", "i32", arguments)
        emit.store(moved, self._cursor, 4)

    def ends(self) -> None:
        """Write the end times and the number of marks to the header."""
        emit = self._ctx.emit
        cursor = emit.load("i32", self._cursor, 4)
        emit.asm(_END, "l,r,~{memory}", "void", (self._first, cursor))
