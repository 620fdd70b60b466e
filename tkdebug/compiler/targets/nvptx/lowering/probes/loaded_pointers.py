"""Pointers that are no parameter's: where they may lead, by the map of memory.

Where all pointers of a tile are offsets from one that was loaded, that one is looked up once, when
it is there, and the tile has to stay in the allocation that it leads to, by the tests that tiles of
parameters have. Otherwise each of them is looked up. The map says what is live, gone or unknown
(`compiler.probes.live_memory`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tkdebug.compiler.analysis.pointer_origins import loaded_root
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.probes.live_memory import ENTRY_BYTES, GONE, LIVE, LOWEST
from tkdebug.compiler.probes.sites import probe_sites
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX

if TYPE_CHECKING:
    from tkdebug.compiler.targets.nvptx.lowering.probes.kernel_probes import Probes

_FARTHEST: Final = (1 << 63) - 1
# $0 first address of the interval, $1 its end, $2 its state; $3 the address, $4 the map. Of the
# intervals that begin at the address or before it, it is the last.
SEARCH: Final = f"""{{
.reg .pred more, here;
.reg .b64 low, high, at, first;
mov.u64 low, 0;
ld.global.u64 high, [$4];
PROBE_HALF:
add.u64 at, low, high;
shr.u64 at, at, 1;
mad.lo.u64 $2, at, {ENTRY_BYTES}, $4;
ld.global.u64 first, [$2+{ENTRY_BYTES}];
setp.le.u64 here, first, $3;
selp.u64 low, at, low, here;
selp.u64 high, high, at, here;
sub.u64 at, high, low;
setp.gt.u64 more, at, 1;
@more bra PROBE_HALF;
mad.lo.u64 at, low, {ENTRY_BYTES}, $4;
ld.global.u64 high, [$4];
ld.global.u64 $0, [at+{ENTRY_BYTES}];
ld.global.u64 $2, [at+{ENTRY_BYTES + 8}];
add.u64 low, low, 1;
setp.lt.u64 more, low, high;
mov.u64 $1, -1;
@more ld.global.u64 $1, [at+{2 * ENTRY_BYTES}];
}}"""


@dataclass(frozen=True, slots=True)
class Interval:
    """One of the map's, i64 each."""

    first: LLVMValue
    end: LLVMValue
    state: LLVMValue


class LoadedPointers:
    """Those of one kernel.

    Args:
        function: the `tt.func`.
        ctx: the kernel on its way to LLVM IR.
        probes: its probes.
    """

    def __init__(self, function: Operation, ctx: Lowering, probes: Probes) -> None:
        self._ctx = ctx
        self._probes = probes
        sites = probe_sites(function)
        self._bases: set[Value] = set()
        self._found: dict[Value, Interval] = {}
        if not any(site.is_loaded for site in sites):
            return
        for op in function.walk():
            number = OpView(op).probe
            if number is not None and sites[number].is_loaded:
                base = loaded_root(op)
                if base is not None:
                    self._bases.add(base)

    def look_at(self, op: Operation) -> None:
        """Look a pointer up that others are offsets from, where `op` has just made it."""
        for result in op.results if self._bases else ():
            if result in self._bases:
                self._found[result] = self._search(self._ctx.to_bits(self._ctx.values[result][0]))

    def are_related(self, op: Operation) -> bool:
        """Whether all pointers of an access are offsets from one that was looked up."""
        return loaded_root(op) in self._found

    def ends(self, op: Operation) -> tuple[LLVMValue, LLVMValue]:
        """Between which addresses all of an access has to be, whose pointers are related; i64.

        What is an offset from nothing is an address, which may be anywhere but there.
        """
        found, emit = self._of(op), self._ctx.emit
        is_live, is_gone = (emit.icmp("eq", found.state, state) for state in (LIVE, GONE))
        is_null = emit.icmp("eq", found.first, 0)
        first = emit.select(is_null, integer("i64", LOWEST), integer("i64", 0))
        is_nowhere = emit.bit_and(is_gone, emit.xor(is_null, 1))
        is_known = emit.binary("or", is_live, is_nowhere)
        first = emit.select(is_known, found.first, first)
        end = emit.select(is_live, found.end, integer("i64", _FARTHEST))
        return first, emit.select(is_nowhere, found.first, end)

    def origin(self, op: Operation) -> LLVMValue:
        """What the pointers of an access are offsets from, i64; 0 where they are unrelated."""
        if not self.are_related(op):
            return integer("i64", 0)
        root = loaded_root(op)
        assert root is not None
        return self._ctx.to_bits(self._ctx.values[root][0])

    def may_access(self, pointer: LLVMValue) -> LLVMValue:
        """i1: whether an address is that of no memory that is certainly gone."""
        return self._ctx.emit.icmp("ne", self._search(self._ctx.to_bits(pointer)).state, GONE)

    def _of(self, op: Operation) -> Interval:
        root = loaded_root(op)
        assert root is not None
        return self._found[root]

    def _search(self, address: LLVMValue) -> Interval:
        text = InlinePTX(("i64", "i64", "i64"))
        where, memory = text.use(address), text.use(self._probes.memory_map)
        assert (where, memory) == ("$3", "$4")
        text.put(SEARCH)
        return Interval(*text.emit(self._ctx))
