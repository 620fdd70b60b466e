# ruff: noqa: E501  IR lines are long.
"""Random kernels of shared-memory ops, and a machine that finds their races.

The machine runs one path of a kernel with concrete indices. Warps run freely between barriers, so
two accesses of overlapping bytes with no barrier in between race when one of them writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tkdebug.compiler.ir import Block, MemDescType, Module, Operation, Value
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

SIZES = (64, 128, 256)
STAGES = 3


def _aliases() -> str:
    lines = []
    for size in SIZES:
        bits = [[1 << i] for i in range(size.bit_length() - 1)]
        low, high = bits[:5], bits[6:]
        lines += [
            f"#s{size} = #ttg.shared_linear<{{offset = {bits}}}>",
            f"#l{size} = #ttg.linear<{{register = {high}, lane = {low}, warp = [[32]], block = []}}>",
            f"#x{size} = #ttg.linear<{{register = {high}, lane = {bits[1:6]}, warp = [[1]], block = []}}>",
        ]
    return "\n".join(lines)


class Generator:
    """Draws the text of one kernel."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%g{self.count}"

    def text(self) -> str:
        self.statements([], [], None, 2)
        constants = "\n".join(f"%c{i} = arith.constant {i} : i32" for i in range(STAGES + 1))
        pointers = "\n".join(
            f"%p{s} = tt.splat %x : !tt.ptr<f32> -> tensor<{s}x!tt.ptr<f32>, #l{s}>" for s in SIZES
        )
        body = "\n".join(self.lines)
        return (
            f"{_aliases()}\ntt.func @k(%x: !tt.ptr<f32>) "
            'attributes {arg_names = ["x"], num_warps = 2} {\n'
            f"{constants}\n{pointers}\n{body}\ntt.return\n}}"
        )

    def statements(
        self,
        buffers: list[tuple[str, int]],
        rings: list[tuple[str, int]],
        step: str | None,
        depth: int,
    ) -> None:
        """Some statements over what is in scope; `step` is the innermost loop's variable."""
        buffers, rings = list(buffers), list(rings)
        for _ in range(self.draw(st.integers(2, 7))):
            kinds = ["alloc", "ring", "convert", "commit", "wait"]
            kinds += ["store", "load"] * 4 + ["copy"] * 2 if buffers else []
            kinds += ["index"] * (6 if step else 3) if rings else []
            kinds += ["loop", "if"] if depth else []
            self.statement(self.draw(st.sampled_from(kinds)), buffers, rings, step, depth)

    def statement(
        self,
        kind: str,
        buffers: list[tuple[str, int]],
        rings: list[tuple[str, int]],
        step: str | None,
        depth: int,
    ) -> None:
        name = self.fresh()
        size = self.draw(st.sampled_from(SIZES))
        add = self.lines.append
        match kind:
            case "alloc":
                add(f"{name} = ttg.local_alloc : () -> {_one(size)}")
                buffers.append((name, size))
            case "ring":
                add(f"{name} = ttg.local_alloc : () -> {_many(size)}")
                rings.append((name, size))
            case "index":
                ring, size = self.draw(st.sampled_from(rings))
                index = self.index(step)
                add(
                    f"{name} = ttg.memdesc_index {ring}, {index} : ({_many(size)}, i32) -> {_one(size)}"
                )
                buffers.append((name, size))
            case "store":
                buffer, size = self.draw(st.sampled_from(buffers))
                add(f"{name} = arith.constant dense<{self.count}.0> : tensor<{size}xf32, #l{size}>")
                add(
                    f"ttg.local_store {name}, {buffer} : tensor<{size}xf32, #l{size}>, {_one(size)}"
                )
            case "load":
                buffer, size = self.draw(st.sampled_from(buffers))
                add(
                    f"{name} = ttg.local_load {buffer} : {_one(size)} -> tensor<{size}xf32, #l{size}>"
                )
            case "copy":
                buffer, size = self.draw(st.sampled_from(buffers))
                add(
                    f"{name} = ttg.async_copy_global_to_local %p{size}, {buffer} : "
                    f"(tensor<{size}x!tt.ptr<f32>, #l{size}>, {_one(size)}) -> !ttg.async.token"
                )
            case "commit":
                add(f"{name} = ttg.async_commit_group : () -> !ttg.async.token")
            case "wait":
                num = self.draw(st.integers(0, 2))
                add(f"{name} = ttg.async_wait {{num = {num}}} : () -> !ttg.async.token")
            case "convert":
                tile = f"tensor<{size}xf32, #"
                add(f"{name} = arith.constant dense<0.0> : {tile}l{size}>")
                add(f"{name}c = ttg.convert_layout {name} : {tile}l{size}> -> {tile}x{size}>")
            case "loop":
                trips = self.draw(st.integers(0, STAGES))
                add(f"scf.for {name} = %c0 to %c{trips} step %c1 : i32 {{")
                self.statements(buffers, rings, name, depth - 1)
                add("scf.yield\n}")
            case "if":
                add(f"{name} = arith.constant {self.draw(st.sampled_from(['true', 'false']))} : i1")
                add(f"scf.if {name} {{")
                self.statements(buffers, rings, step, depth - 1)
                add("scf.yield\n} else {")
                self.statements(buffers, rings, step, depth - 1)
                add("scf.yield\n}")

    def index(self, step: str | None) -> str:
        if step is None or self.draw(st.integers(0, 3)) == 0:
            return f"%c{self.draw(st.integers(0, STAGES - 1))}"
        ahead, index = self.fresh(), self.fresh()
        self.lines.append(f"{ahead} = arith.addi {step}, %c{self.draw(st.integers(0, 3))} : i32")
        self.lines.append(f"{index} = arith.remsi {ahead}, %c{STAGES} : i32")
        return index


def _one(size: int) -> str:
    return f"!ttg.memdesc<{size}xf32, #s{size}, mutable>"


def _many(size: int) -> str:
    return f"!ttg.memdesc<{STAGES}x{size}xf32, #s{size}, mutable>"


@st.composite
def kernels(draw: st.DrawFn) -> Module:
    """Random kernels without barriers."""
    return parse_module(Generator(draw).text())


@dataclass(frozen=True)
class Bytes:
    """Bytes [start, end) of shared memory, and the op whose they are."""

    owner: Operation
    start: int
    end: int

    def overlaps(self, other: Bytes) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass
class Machine:
    """Runs a kernel after AllocateShared; `races` names pairs of ops that may run at once."""

    skipped: Operation | None = None
    races: list[tuple[Operation, Operation]] = field(default_factory=list)
    values: dict[Value, object] = field(default_factory=dict)
    epoch: list[tuple[Operation, Bytes, bool]] = field(default_factory=list)
    started: list[tuple[Operation, Bytes]] = field(default_factory=list)
    groups: list[list[tuple[Operation, Bytes]]] = field(default_factory=list)

    def access(self, op: Operation, where: Bytes, writes: bool) -> None:
        for other, there, wrote in self.epoch:
            if (writes or wrote) and where.overlaps(there):
                self.races.append((other, op))
        self.epoch.append((op, where, writes))

    def block(self, block: Block) -> None:
        for op in block.operations:
            self.operation(op)

    def at(self, value: Value) -> Bytes:
        found = self.values[value]
        assert isinstance(found, Bytes)
        return found

    def number(self, value: Value) -> int:
        found = self.values[value]
        assert isinstance(found, int)
        return found

    def operation(self, op: Operation) -> None:
        match op.name:
            case "arith.constant":
                self.values[op.result] = op.attributes["value"]
            case "arith.addi":
                self.values[op.result] = self.number(op.operands[0]) + self.number(op.operands[1])
            case "arith.remsi":
                self.values[op.result] = self.number(op.operands[0]) % self.number(op.operands[1])
            case "ttg.local_alloc":
                offset, type_ = op.attributes["offset"], op.result.type
                assert isinstance(offset, int)
                assert isinstance(type_, MemDescType)
                self.values[op.result] = Bytes(op, offset, offset + type_.size_bytes)
            case "ttg.memdesc_index":
                whole, type_ = self.at(op.operands[0]), op.operands[0].type
                assert isinstance(type_, MemDescType)
                start = whole.start + self.number(op.operands[1]) * type_.buffer_bytes
                self.values[op.result] = Bytes(whole.owner, start, start + type_.buffer_bytes)
            case "ttg.local_store":
                self.access(op, self.at(op.operands[1]), True)
            case "ttg.local_load":
                self.access(op, self.at(op.operands[0]), False)
            case "ttg.convert_layout":
                start = op.attributes["scratch_offset"]
                assert isinstance(start, int)
                where = Bytes(op, start, start + scratch_bytes(op))
                self.access(op, where, True)
                self.epoch = [(op, where, False)]
            case "gpu.barrier" if op is not self.skipped:
                self.epoch = []
            case "scf.for":
                low, high, step = (self.number(v) for v in op.operands[:3])
                for position in range(low, high, step):
                    self.values[op.regions[0].block.arguments[0]] = position
                    self.block(op.regions[0].block)
            case "scf.if":
                self.block(op.regions[0 if self.values[op.operands[0]] else 1].block)
            case name if name.startswith("ttg.async"):
                self.asynchronous(op)

    def asynchronous(self, op: Operation) -> None:
        if op.name == "ttg.async_copy_global_to_local":
            where = self.at(op.operands[1])
            self.access(op, where, True)
            # What it writes becomes visible only where it is waited for.
            self.epoch.pop()
            self.started.append((op, where))
        elif op.name == "ttg.async_commit_group":
            self.groups.append(self.started)
            self.started = []
        else:
            kept = op.attributes["num"]
            assert isinstance(kept, int)
            while len(self.groups) > kept:
                for copy, where in self.groups.pop(0):
                    self.epoch.append((copy, where, True))


def races(module: Module, skipped: Operation | None = None) -> list[tuple[Operation, Operation]]:
    """Pairs of ops that may touch the same bytes at once, with one barrier left out."""
    machine = Machine(skipped)
    machine.block(module.function.regions[0].block)
    return machine.races
