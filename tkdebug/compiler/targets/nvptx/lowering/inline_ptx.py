"""Inline PTX of many instructions, written one by one, with its operands by name."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

# LLVM type -> its constraint letter; pointers are 64 bits wide.
_LETTERS = {"i1": "b", "i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}


class InlinePTX:
    """Inline PTX that is written, and its operands.

    Args:
        results: LLVM types of its results.
    """

    def __init__(self, results: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.results = tuple(results)
        self._inputs: list[LLVMValue] = []
        self._names: dict[LLVMValue, str] = {}

    def use(self, value: LLVMValue) -> str:
        """Return the name of a value as an input, which is added if it is new."""
        if value not in self._names:
            self._names[value] = f"${len(self.results) + len(self._inputs)}"
            self._inputs.append(value)
        return self._names[value]

    def put(self, *lines: str) -> None:
        """Append instructions."""
        self.lines += lines

    def emit(
        self, ctx: Lowering, *, side_effects: bool = True, convergent: bool = False
    ) -> Registers:
        """Write the inline PTX, and return its results.

        Args:
            ctx: the kernel.
            side_effects: whether it may be neither dropped nor merged; without, it reads no memory.
            convergent: whether threads wait for each other in it.
        """
        outputs = [f"=&{_LETTERS[type_]}" for type_ in self.results]
        inputs = [_LETTERS.get(value.type, "l") for value in self._inputs]
        whole = "void"
        if self.results:
            several = f"{{ {', '.join(self.results)} }}"
            whole = self.results[0] if len(self.results) == 1 else several
        clobbered = ("~{memory}",) if side_effects else ()
        got = ctx.emit.asm(
            "\n".join(self.lines),
            ",".join((*outputs, *inputs, *clobbered)),
            whole,
            self._inputs,
            side_effects=side_effects,
            convergent=convergent,
        )
        if len(self.results) == 1:
            return [got]
        return [ctx.emit.extract_value(got, i, type_) for i, type_ in enumerate(self.results)]
