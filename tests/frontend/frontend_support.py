"""Parts that the front-end tests share: compiling, and a scalar evaluator.

The evaluator runs integer-only Tile IR, so that control flow is checked against Python itself
without the interpreter.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tkdebug.compiler import dtypes
from tkdebug.compiler.dtypes import LanguageType, int32, pointer_type
from tkdebug.compiler.frontend import Constant, compile_to_tile_ir
from tkdebug.compiler.ir import Block, Module, Operation
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.ops.emitter import CompileOptions
from tkdebug.compiler.verifier import verify
from tkdebug.errors import CompileError

FP32_PTR = pointer_type(dtypes.float32)
INT32_PTR = pointer_type(int32)


def compile_kernel(kernel: Any, **specs: Any) -> Module:
    """Compile, verify, and check that the text form round-trips."""
    arguments = {
        name: spec if isinstance(spec, LanguageType | Constant | tuple) else Constant(spec)
        for name, spec in specs.items()
    }
    module = compile_to_tile_ir(kernel, arguments, CompileOptions())
    verify(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    return module


def text_of(kernel: Any, **specs: Any) -> str:
    return print_module(compile_kernel(kernel, **specs))


def error_of(kernel: Any, **specs: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_kernel(kernel, **specs)
    return caught.value


def message_of(kernel: Any, **specs: Any) -> str:
    return error_of(kernel, **specs).message


def ops_named(module: Module, name: str) -> list[Operation]:
    return [op for op in module.walk() if op.name == name]


def body_of(text: str) -> list[str]:
    """The lines inside the function, without indentation."""
    return [line.strip() for line in text.splitlines()[1:-1]]


def line_of(text: str, pattern: str) -> str:
    return next(line for line in body_of(text) if re.search(pattern, line))


def _wrap(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


_BINARY = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shrsi": lambda a, b: a >> b,
    "tt.addptr": lambda a, b: a + b,
}
_PREDICATES = {
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


class ScalarMachine:
    """Runs a module on ints; a pointer is the index of a cell."""

    def __init__(self, module: Module) -> None:
        self.function = module.function
        self.memory: dict[int, int] = {}
        self.values: dict[Any, int] = {}

    def run(self, *arguments: int) -> dict[int, int]:
        self._block(self.function.regions[0].block, arguments)
        return self.memory

    def _block(self, block: Block, arguments: Any) -> list[int]:
        self.values.update(zip(block.arguments, arguments, strict=True))
        result: list[int] = []
        for op in block.operations:
            result = self._operation(op)
        return result

    def _operation(self, op: Operation) -> list[int]:
        operands = [self.values[value] for value in op.operands]
        results = self._results(op, operands)
        for value, result in zip(op.results, results, strict=False):
            bits = getattr(value.type, "bits", 64)
            self.values[value] = _wrap(int(result), bits)
        return results

    def _results(self, op: Operation, operands: list[int]) -> list[int]:
        match op.name:
            case "arith.constant":
                return [op.attributes["value"]]
            case "arith.cmpi":
                return [int(_PREDICATES[op.attributes["predicate"]](*operands))]
            case "arith.extsi" | "arith.extui" | "arith.trunci":
                return operands
            case "tt.store":
                self.memory[operands[0]] = operands[1]
                return []
            case "scf.yield" | "scf.condition" | "tt.return":
                return operands
            case "scf.if":
                return self._block(op.regions[0 if operands[0] & 1 else 1].block, [])
            case "scf.for":
                lower, upper, step, *carried = operands
                for index in range(lower, upper, step):
                    carried = self._block(op.regions[0].block, [index, *carried])
                return carried
            case "scf.while":
                carried = operands
                while True:
                    keep, *forwarded = self._block(op.regions[0].block, carried)
                    if not keep & 1:
                        return forwarded
                    carried = self._block(op.regions[1].block, forwarded)
            case name:
                return [_BINARY[name](*operands)]
