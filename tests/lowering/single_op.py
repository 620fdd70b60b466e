"""Lowers a short piece of GPU IR whose tiles come in registers, and runs it without a GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from llvm_simulator import FLOATS, Simulator, to_bfloat
from simulated_tma import SimulatedMap

from tkdebug.compiler.ir import Module, Value
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.types import DescriptorType, MemDescType, TensorType
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.emitter import Emitter, LLVMValue
from tkdebug.compiler.targets.nvptx.lowering import arithmetic, conversions, shapes, sorting
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.dots import dot
from tkdebug.compiler.targets.nvptx.lowering.driver import TENSOR_MAP
from tkdebug.compiler.targets.nvptx.lowering.reductions import reduce, scan
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.shared_memory import async_copies, buffers, bulk_copies
from tkdebug.compiler.targets.nvptx.lowering.types import llvm_type

_FAMILIES = (
    arithmetic,
    async_copies,
    conversions,
    bulk_copies,
    shapes,
    reduce,
    scan,
    buffers,
    dot,
    sorting,
)
LOWERINGS = {name: rule for family in _FAMILIES for name, rule in family.LOWERINGS.items()}


class Piece:
    """The lowered text of a function whose arguments are tiles, scalars or pointers.

    Args:
        text: GPU IR of one `tt.func`.
        num_warps: warps of the block.
        target: name of the architecture.
    """

    def __init__(self, text: str, num_warps: int, target: str = "sm_90a") -> None:
        self.module: Module = parse_module(text)
        self.num_warps = num_warps
        function = self.module.function
        function.attributes["num_warps"] = num_warps
        self.shared_bytes = place_shared(self.module)
        self.arguments = function.regions[0].block.arguments
        types = [declared_type(a) for a in self.arguments for _ in range(registers(a))]
        self.parameters = len(types)
        emit = Emitter("k", [*types, "ptr addrspace(1)"], 32 * num_warps)
        self.ctx = Lowering(self.module, TARGETS[target], emit, LOWERINGS)
        emit.set_op(function.id)
        index = 0
        for argument in self.arguments:
            count = registers(argument)
            self.ctx.values[argument] = [emit.parameter(index + i) for i in range(count)]
            index += count
        self.terminator = self.ctx.lower_block(function.regions[0].block)
        self.results = [v for v in self.ctx.values if v.defining_op is not None]
        last = self.terminator
        emit.set_op(last.id)

    def llvm_ir(self) -> str:
        """The module, with everything computed last stored, so that none of it is dead."""
        emit = self.ctx.emit
        sink = emit.parameter(self.parameters)
        place = emit.add(emit.mul(self.ctx.thread, 4096), 0)
        for result in self.outputs():
            for i, value in enumerate(self.ctx.values[result]):
                if isinstance(result.type, TensorType) or not value.type.startswith("ptr"):
                    pointer = emit.gep(emit.gep(sink, "i8", place), "i8", i * 8)
                    stored = value
                    if value.type == "i1":
                        stored = emit.cast("zext", value, "i8")
                    emit.store(stored, pointer, 8)
        emit.ret()
        return emit.module("test")

    def outputs(self) -> list[Value]:
        """Return the values that nothing in the function uses."""
        kept = []
        for op in self.module.function.regions[0].block.operations:
            for result in op.results:
                is_buffer = isinstance(result.type, MemDescType) or "token" in str(result.type)
                if not result.uses and not is_buffer:
                    kept.append(result)
        return kept

    def run(
        self,
        *inputs: np.ndarray,
        memory: bytes = b"",
        tensor_maps: Sequence[SimulatedMap] = (),
    ) -> list[np.ndarray]:
        """The outputs for tiles given whole; checks that all copies are equal.

        A descriptor is given as its place among `tensor_maps`.
        """
        threads = 32 * self.num_warps
        parameters = []
        for argument, tile in zip(self.arguments, inputs, strict=True):
            parameters += distribute(argument, np.asarray(tile), threads)
        parameters.append(np.zeros(threads, np.uint64))
        self.ctx.emit.ret()
        text = self.ctx.emit.module("test")
        self.simulator = Simulator(text, parameters, threads, self.shared_bytes, memory)
        self.simulator.tensor_maps = list(tensor_maps)
        self.simulator.run()
        return [self._collect(value, threads) for value in self.outputs()]

    def _collect(self, value: Value, threads: int) -> np.ndarray:
        held = [self._held(v) for v in self.ctx.values[value]]
        if not isinstance(value.type, TensorType):
            (scalar,) = held
            assert same(scalar, scalar[0]).all(), "threads disagree about a scalar"
            return scalar[0]
        at = coordinates(self.ctx.layout(value), threads)
        found = np.zeros(value.type.shape, held[0].dtype)
        seen = np.zeros(value.type.shape, bool)
        found[at], seen[at] = held, True
        assert same(found[at], np.stack(held)).all(), "copies differ"
        assert seen.all()
        return found

    def _held(self, value: LLVMValue) -> np.ndarray:
        return np.broadcast_to(self.simulator.get(value.type, value.text), (32 * self.num_warps,))


def declared_type(value: Value) -> str:
    return TENSOR_MAP if isinstance(value.type, DescriptorType) else llvm_type(value.type)


def parameter_type(value: Value) -> str:
    return "ptr" if isinstance(value.type, DescriptorType) else llvm_type(value.type)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (a == b) | ((a != a) & (b != b))


def registers(value: Value) -> int:
    return Lowering.register_count(value)


@functools.cache
def coordinates(layout: LinearLayout, threads: int) -> tuple[np.ndarray, ...]:
    """Coordinates of what is held, by register and thread; one array for each dimension."""
    registers = range(layout.in_size(REGISTER))
    lanes = [{LANE: thread % 32, WARP: thread // 32} for thread in range(threads)]
    held = [[tuple(layout.apply({REGISTER: r, **at}).values()) for at in lanes] for r in registers]
    return tuple(np.moveaxis(np.array(held), -1, 0))


def distribute(value: Value, tile: np.ndarray, threads: int) -> list[np.ndarray]:
    """The tile's elements by register and thread."""
    type_ = parameter_type(value)
    if type_ == "bfloat":
        tile = to_bfloat(tile.astype(np.float32))
    elif type_ in FLOATS:
        tile = tile.astype(FLOATS[type_])
    elif type_ == "i1":
        tile = tile.astype(bool)
    else:
        width = 64 if type_.startswith("ptr") else int(type_[1:])
        tile = tile.astype(f"i{width // 8}").view(f"u{width // 8}")
    if not isinstance(value.type, TensorType):
        return [np.full(threads, tile)]
    return list(tile[coordinates(Lowering.layout(value), threads)])


def place_shared(module: Module) -> int:
    """Give every buffer and scratch its own place; the bytes in all."""
    total = 0
    for op in module.walk():
        if op.name == "ttg.local_alloc":
            total = -(-total // 1024) * 1024
            op.attributes["offset"] = total
            assert isinstance(op.result.type, MemDescType)
            total += op.result.type.size_bytes
        size = scratch_bytes(op)
        if size:
            total = -(-total // 16) * 16
            op.attributes["scratch_offset"] = total
            total += size
    return max(total, 16)
