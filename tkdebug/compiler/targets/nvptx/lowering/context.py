"""`Lowering`: the state of one kernel's lowering, and the vocabulary that all ops share.

Responsible for where values are (registers per thread), for thread and tensor indices, and for
shared memory, barriers and shuffles. The code of an op is written by its family's file.

Invariant: `values[v]` has one entry for each register of v's layout; entries whose threads hold
copies are equal in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from tkdebug.compiler.analysis.axis_info import AxisInfo, analyse
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import PointerType, ScalarType, TensorType, element_of
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout, f2
from tkdebug.compiler.targets import Target
from tkdebug.compiler.targets.nvptx.emitter import Emitter, LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.observers import AccessGuard, LoweringObserver
from tkdebug.compiler.targets.nvptx.lowering.types import (
    SHARED_POINTER,
    Lower,
    LoweringError,
    Registers,
    llvm_scalar,
    llvm_type,
)

WARP_SIZE = 32
FULL_WARP = -1


class Lowering:
    """One kernel on its way to LLVM IR.

    Args:
        module: GPU IR after all passes.
        target: the architecture.
        emit: the emitter.
        table: the lowering of each op.
    """

    def __init__(
        self, module: Module, target: Target, emit: Emitter, table: Mapping[str, Lower]
    ) -> None:
        self.module = module
        self.target = target
        self.emit = emit
        self.table = table
        self.values: dict[Value, Registers] = {}
        # The parameters with the tensor maps that launches make.
        self.tensor_maps: dict[Operation, LLVMValue] = {}
        # The observers; none at bare kernels.
        self.observers: Sequence[LoweringObserver] = ()
        self._lowered_early: set[Operation] = set()
        # The program's visits to each watch: memory that LLVM keeps in registers.
        self.visits: dict[int, LLVMValue] = {}
        # Where this program writes the tensor maps that it makes itself.
        self.map_places: dict[Operation, LLVMValue] = {}
        # Bytes that were read as part of a word, and which part.
        self.words_of_bytes: dict[str, tuple[LLVMValue, int]] = {}
        self._thread_parts: dict[LinearLayout, dict[str, LLVMValue]] = {}
        self._owners: dict[tuple[int, int], LLVMValue | None] = {}
        self._l2_policies: dict[str, LLVMValue] = {}
        function = tt.Func(module.function)
        self.num_warps = function.num_warps
        self.flushes_subnormals = function.flush_subnormals

    # Ops and values

    def lower_block(self, block: Block) -> Operation:
        """Lower all ops of `block` but its terminator, which is returned."""
        for op in block.operations[:-1]:
            if op not in self._lowered_early:
                self.lower(op)
        return block.terminator

    def lower(self, op: Operation) -> None:
        """Lower one op and keep the registers of its results."""
        rule = self.table.get(op.name)
        if rule is None:
            raise LoweringError.at(op, f"{op.name} is not supported in native mode")
        for observer in self.observers:
            observer.before(op)
        self.emit.set_op(op.id)
        results = rule(self, op, *(self.values[operand] for operand in op.operands))
        self.emit.set_op(op.id)
        for result, registers in zip(op.results, results, strict=True):
            self.values[result] = registers
        for observer in self.observers:
            observer.after(op)

    def lower_early(self, op: Operation) -> None:
        """Lower an op before its turn comes in its block."""
        self._lowered_early.add(op)
        self.lower(op)

    def guard(
        self, op: Operation, pointers: Registers, mask: Registers | None, group: int
    ) -> AccessGuard | None:
        """Return the test of an access, as `LoweringObserver.guard`."""
        guards = (observer.guard(op, pointers, mask, group) for observer in self.observers)
        return next((guard for guard in guards if guard is not None), None)

    def inline(self, block: Block, arguments: Sequence[LLVMValue]) -> list[LLVMValue]:
        """Lower a region of scalars in place, and return its terminator's operands."""
        for argument, value in zip(block.arguments, arguments, strict=True):
            self.values[argument] = [value]
        terminator = self.lower_block(block)
        return [self.values[operand][0] for operand in terminator.operands]

    @cached_property
    def axis_info(self) -> Mapping[Value, AxisInfo]:
        """Contiguity, divisibility and constancy of every value."""
        return analyse(self.module.function)

    @staticmethod
    def layout(value: Value) -> LinearLayout:
        """The layout of a tensor."""
        assert isinstance(value.type, TensorType), f"{value} is no tensor"
        layout = value.type.encoding
        assert isinstance(layout, LinearLayout), f"{value} has no layout"
        return layout

    @staticmethod
    def register_count(value: Value) -> int:
        """Count the registers that a thread holds of a value; 1 for scalars."""
        if not isinstance(value.type, TensorType):
            return 1
        return Lowering.layout(value).in_size(REGISTER)

    @staticmethod
    def element_type(value: Value) -> str:
        """LLVM type of a scalar or of a tensor's elements."""
        return llvm_type(value.type)

    @staticmethod
    def element_bits(value: Value) -> int:
        """Width of a scalar or of a tensor's elements."""
        return element_of(value.type).bits

    # Threads and coordinates

    @cached_property
    def thread(self) -> LLVMValue:
        """Number of the thread in its block, i32."""
        with self.emit.in_entry():
            return self.emit.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x")

    @cached_property
    def lane(self) -> LLVMValue:
        """Number of the thread in its warp, i32."""
        thread = self.thread
        if self.num_warps == 1:
            return thread
        with self.emit.in_entry():
            return self.emit.bit_and(thread, WARP_SIZE - 1)

    def program_number(self) -> LLVMValue:
        """Compute the number of the program in the grid here, x fastest, i64."""
        emit, names = self.emit, ("ctaid.z", "nctaid.y", "ctaid.y", "nctaid.x", "ctaid.x")
        z, height, y, width, x = (
            emit.cast("zext", emit.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}"), "i64")
            for name in names
        )
        return emit.add(emit.mul(emit.add(emit.mul(z, height), y), width), x)

    @cached_property
    def warp(self) -> LLVMValue:
        """Number of the warp in its block, i32."""
        if self.num_warps == 1:
            return integer("i32", 0)
        thread = self.thread
        with self.emit.in_entry():
            return self.emit.lshr(thread, WARP_SIZE.bit_length() - 1)

    @cached_property
    def uniform_warp(self) -> LLVMValue:
        """`warp`, from a shuffle: so ptxas knows that it is the same in all lanes.

        It keeps only such values in uniform registers, from which wgmma takes its descriptors.
        """
        warp = self.warp
        if self.num_warps == 1:
            return warp
        with self.emit.in_entry():
            return self.shuffle("idx", warp, 0)

    def warp_part(self, layout: LinearLayout) -> Mapping[str, LLVMValue]:
        """The warp's part of each output of `layout`, i32, in uniform registers."""
        key = LinearLayout(tuple(i for i in layout.ins if i[0] == WARP), layout.outs)
        warp = self.uniform_warp if any(key.packed_bases(WARP)) else integer("i32", 0)
        with self.emit.in_entry():
            return self._linear_map(key, {WARP: warp})

    def thread_part(self, layout: LinearLayout) -> Mapping[str, LLVMValue]:
        """The part of each output of `layout` that lane and warp give, i32."""
        key = LinearLayout(tuple(i for i in layout.ins if i[0] in (LANE, WARP)), layout.outs)
        known = self._thread_parts.get(key)
        if known is None:
            lane, warp = self.lane, self.warp
            with self.emit.in_entry():
                known = self._linear_map(key, {LANE: lane, WARP: warp})
            self._thread_parts[key] = known
        return known

    def _linear_map(
        self, layout: LinearLayout, inputs: Mapping[str, LLVMValue]
    ) -> dict[str, LLVMValue]:
        parts: dict[str, LLVMValue] = {}
        for out in layout.out_dims:
            total, seen = integer("i32", 0), 0
            for name, value in inputs.items():
                if name not in layout.in_dims:
                    continue
                bases = [layout.unpack_out(v)[out] for v in layout.packed_bases(name)]
                for first, length in _runs(bases):
                    mask = bases[first] * ((1 << length) - 1)
                    term = self._shifted_bits(value, first, length, bases[first], len(bases))
                    total = self.emit.binary("xor" if seen & mask else "or disjoint", total, term)
                    seen |= mask
            parts[out] = total
        return parts

    def _shifted_bits(
        self, value: LLVMValue, first: int, length: int, weight: int, width: int
    ) -> LLVMValue:
        """Bits first … first + length - 1 of `value`, moved so that the lowest weighs `weight`."""
        if weight & (weight - 1):
            # One bit that contributes to several places.
            bit = self.emit.bit_and(self.emit.lshr(value, first), 1)
            return self.emit.mul(bit, weight)
        kept = value
        if first + length < width or first:
            kept = self.emit.bit_and(value, ((1 << length) - 1) << first)
        shift = weight.bit_length() - 1 - first
        return self.emit.shl(kept, shift) if shift >= 0 else self.emit.lshr(kept, -shift)

    def coordinates(self, layout: LinearLayout) -> list[tuple[LLVMValue, ...]]:
        """Return the index in each output dimension for each register of `layout`, i32."""
        return self._of_registers(layout, self.thread_part(layout))

    def fresh_coordinates(self, layout: LinearLayout) -> list[tuple[LLVMValue, ...]]:
        """The `coordinates` of a thread, whose number is read again here.

        ptxas merges computations that start from one read, but not two reads.
        """
        thread = self.emit.asm("mov.u32 $0, %tid.x;", "=r", "i32", ())
        key = LinearLayout(tuple(i for i in layout.ins if i[0] in (LANE, WARP)), layout.outs)
        lane = self.emit.bit_and(thread, WARP_SIZE - 1)
        warp = self.emit.lshr(thread, WARP_SIZE.bit_length() - 1)
        return self._of_registers(layout, self._linear_map(key, {LANE: lane, WARP: warp}))

    def _of_registers(
        self, layout: LinearLayout, base: Mapping[str, LLVMValue]
    ) -> list[tuple[LLVMValue, ...]]:
        used = {
            out: _union(
                layout.unpack_out(v)[out] for d in (LANE, WARP) for v in layout.packed_bases(d)
            )
            for out in layout.out_dims
        }
        found = []
        for packed in f2.spanned(layout.packed_bases(REGISTER)):
            here = layout.unpack_out(packed)
            found.append(
                tuple(
                    self.emit.binary(
                        "xor" if here[out] & used[out] else "or disjoint",
                        base[out],
                        integer("i32", here[out]),
                    )
                    for out in layout.out_dims
                )
            )
        return found

    def owner(self, layout: LinearLayout) -> LLVMValue | None:
        """i1: whether this thread is the one that acts for its elements; None if all threads do."""
        free = layout.free_masks
        return self._is_owner(free.get(LANE, 0), free.get(WARP, 0))

    def l2_policy(self, priority: str) -> LLVMValue:
        """i64: the policy of L2 for all of an access's memory; `priority` as `evict_last`."""
        known = self._l2_policies.get(priority)
        if known is None:
            with self.emit.in_entry():
                text = f"createpolicy.fractional.L2::{priority}.b64 $0, 1.0;"
                known = self.emit.asm(text, "=l", "i64", [], side_effects=False)
            self._l2_policies[priority] = known
        return known

    @cached_property
    def is_first_thread(self) -> LLVMValue:
        """i1: whether this is thread 0, which acts for scalars."""
        thread = self.thread
        with self.emit.in_entry():
            return self.emit.icmp("eq", thread, 0)

    @cached_property
    def in_first_warp(self) -> LLVMValue:
        """i1: whether this thread is in warp 0, which acts if a whole warp has to."""
        thread = self.thread
        with self.emit.in_entry():
            return self.emit.icmp("ult", thread, WARP_SIZE)

    def _is_owner(self, lane_mask: int, warp_mask: int) -> LLVMValue | None:
        mask = lane_mask | warp_mask << 5
        if not mask:
            return None
        known = self._owners.get((lane_mask, warp_mask))
        if known is None:
            thread = self.thread
            with self.emit.in_entry():
                known = self.emit.icmp("eq", self.emit.bit_and(thread, mask), 0)
            self._owners[lane_mask, warp_mask] = known
        return known

    # Shared memory, barriers, shuffles

    def shared(self, offset: int) -> LLVMValue:
        """Pointer to byte `offset` of the block's shared memory."""
        return self.emit.gep(LLVMValue(SHARED_POINTER, "@shared"), "i8", offset)

    def scratch(self, op: Operation) -> LLVMValue:
        """Pointer to the scratch memory that `op` was given."""
        offset = OpView(op).scratch_offset
        assert isinstance(offset, int), f"{op.name} #{op.id} was given no scratch memory"
        return self.shared(offset)

    def barrier(self) -> None:
        """Have all threads of the block wait for each other."""
        if self.num_warps == 1:
            self.emit.asm("bar.warp.sync -1;", "~{memory}", "void", (), convergent=True)
        else:
            self.emit.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", integer("i32", 0))

    def shuffle(self, kind: str, value: LLVMValue, lane: LLVMValue | int) -> LLVMValue:
        """Another lane's value.

        Args:
            kind: `bfly` (this lane xor `lane`), `idx` (from `lane`), or `up` (from `lane` below).
            value: a value of any type.
            lane: i32 or a constant.
        """
        other = integer("i32", lane) if isinstance(lane, int) else lane
        clamp = integer("i32", 0 if kind == "up" else 31)
        words = self.to_words(value)
        moved = [
            self.emit.intrinsic(
                f"llvm.nvvm.shfl.sync.{kind}.i32", integer("i32", FULL_WARP), word, other, clamp
            )
            for word in words
        ]
        return self.from_words(moved, value.type)

    def to_words(self, value: LLVMValue) -> list[LLVMValue]:
        """The bits of a value as i32 words, zero-extended; two for 64-bit types."""
        bits = self.to_bits(value)
        width = int(bits.type[1:])
        if width <= 32:
            return [self.emit.cast("zext", bits, "i32")]
        low = self.emit.cast("trunc", bits, "i32")
        return [low, self.emit.cast("trunc", self.emit.lshr(bits, 32), "i32")]

    def from_words(self, words: Sequence[LLVMValue], type_: str) -> LLVMValue:
        """The value of `type_` whose bits are `words`."""
        width = TYPE_BITS[type_]
        if width <= 32:
            return self.from_bits(self.emit.cast("trunc", words[0], f"i{width}"), type_)
        low, high = (self.emit.cast("zext", word, "i64") for word in words)
        return self.from_bits(self.emit.binary("or", low, self.emit.shl(high, 32)), type_)

    def to_bits(self, value: LLVMValue) -> LLVMValue:
        """A value as the integer of its bits."""
        if value.type.startswith("ptr"):
            return self.emit.cast("ptrtoint", value, "i64")
        if value.type[0] == "i":
            return value
        return self.emit.cast("bitcast", value, f"i{TYPE_BITS[value.type]}")

    def from_bits(self, bits: LLVMValue, type_: str) -> LLVMValue:
        """The value of `type_` with these bits."""
        if type_.startswith("ptr"):
            return self.emit.cast("inttoptr", bits, type_)
        return self.emit.cast("bitcast", bits, type_)

    def zero(self, value: Value) -> LLVMValue:
        """Zero of a value's element type."""
        return self.zero_of(element_of(value.type))

    @staticmethod
    def zero_of(element: ScalarType | PointerType) -> LLVMValue:
        """Zero of a type."""
        type_ = llvm_scalar(element)
        if type_.startswith("ptr"):
            return LLVMValue(type_, "null")
        return integer(type_, 0) if type_[0] == "i" else LLVMValue(type_, ZEROS[type_])


TYPE_BITS = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "half": 16,
    "bfloat": 16,
    "float": 32,
    "double": 64,
    "ptr addrspace(1)": 64,
}
ZEROS = {"half": "0xH0000", "bfloat": "0xR0000", "float": "0.0", "double": "0.0"}


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


def _runs(bases: Sequence[int]) -> list[tuple[int, int]]:
    """Maximal runs (first bit, length) of bits whose weights double."""
    runs: list[tuple[int, int]] = []
    bit = 0
    while bit < len(bases):
        weight = bases[bit]
        length = 1
        if weight and not weight & (weight - 1):
            while bit + length < len(bases) and bases[bit + length] == weight << length:
                length += 1
        if weight:
            runs.append((bit, length))
        bit += length
    return runs
