"""Kernels around single ops: load operands, apply the op, store its results; lowered to PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.ir import Module, PointerType, Region, SourceLocation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.builder import Builder
from tkdebug.compiler.ir.core import Attribute, Block
from tkdebug.compiler.layouts import LinearLayout, blocked
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import emit_ptx
from tkdebug.compiler.targets.nvptx.lowering.driver import lower_module

NUM_WARPS = 4
SHAPE = (512,)
LAYOUT = blocked((4,), (32,), (NUM_WARPS,), (0,), SHAPE)


def type_named(name: str) -> ir.ScalarType | PointerType:
    """A scalar type by its MLIR name; `*f32` is a pointer."""
    return PointerType(ir.SCALARS[name[1:]]) if name[0] == "*" else ir.SCALARS[name]


class Kernel:
    """A `tt.func` that is built op by op.

    Args:
        layout: of the tiles that it loads; None for scalars.
        num_warps: warps of the block.
    """

    def __init__(self, layout: LinearLayout | None = LAYOUT, num_warps: int = NUM_WARPS) -> None:
        self.layout = layout
        self.shape = () if layout is None else tuple(size for _, size in layout.outs)
        self.module = Module("kernel")
        self.builder = Builder(self.module)
        self.builder.location = SourceLocation("kernel.py", 7, 3, "kernel")
        self.block = Block([])
        attributes: dict[str, Attribute] = {"sym_name": "kernel", "num_warps": num_warps}
        self.function = self.builder.build("tt.func", (), (), attributes, [Region([self.block])])
        self.builder.block = self.block

    def op(
        self,
        name: str,
        operands: Sequence[Value] = (),
        results: Sequence[ir.Type] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> tuple[Value, ...]:
        """Append an op."""
        return self.builder.build(name, operands, results, attributes, regions).results

    def tile(self, element: ir.ScalarType | PointerType) -> ir.Type:
        """A tile of the kernel's shape and layout, or the scalar."""
        return ir.tile(self.shape, element, self.layout)

    def pointers(self, element: ir.ScalarType | PointerType) -> Value:
        """A tile of consecutive pointers from a new argument on."""
        base = self.block.add_argument(PointerType(element))
        if self.layout is None:
            return base
        (index,) = self.op(
            "tt.make_range", (), [self.tile(ir.I32)], {"start": 0, "end": self.shape[0]}
        )
        (splat,) = self.op("tt.splat", [base], [self.tile(base.type)])
        return self.op("tt.addptr", [splat, index], [splat.type])[0]

    def operand(self, name: str) -> Value:
        """A loaded tile or scalar."""
        element = type_named(name)
        if name == "i1":
            return self.op("arith.trunci", [self.operand("i8")], [self.tile(ir.I1)])[0]
        return self.op("tt.load", [self.pointers(element)], [self.tile(element)])[0]

    def keep(self, value: Value) -> None:
        """Store a result."""
        if ir.element_of(value.type) == ir.I1:
            (value,) = self.op("arith.extui", [value], [ir.with_element(value.type, ir.I8)])
        self.op("tt.store", [self.pointers(ir.element_of(value.type)), value])

    def apply(
        self,
        name: str,
        operands: Sequence[str],
        results: Sequence[str],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> None:
        """Load operands, apply an op, keep its results."""
        values = [self.operand(operand) for operand in operands]
        types = [self.tile(type_named(result)) for result in results]
        for value in self.op(name, values, types, attributes):
            self.keep(value)

    def llvm(self, target: str = "sm_90a") -> str:
        """End the kernel; its LLVM IR."""
        self.op("tt.return")
        self.function.attributes["target"] = target
        return lower_module(self.module, TARGETS[target], "kernel")

    def ptx(self, target: str = "sm_90a") -> str:
        """End the kernel; its PTX."""
        return emit_ptx(self.llvm(target), "kernel", TARGETS[target])


def ptx_of(
    name: str,
    operands: Sequence[str],
    results: Sequence[str],
    attributes: Mapping[str, Attribute] | None = None,
    *,
    target: str = "sm_90a",
    layout: LinearLayout | None = LAYOUT,
) -> str:
    """PTX of a kernel around one op."""
    kernel = Kernel(layout)
    kernel.apply(name, operands, results, attributes)
    return kernel.ptx(target)
