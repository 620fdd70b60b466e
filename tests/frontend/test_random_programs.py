"""Random integer programs compile to IR that does what Python does."""

from __future__ import annotations

import importlib.util
import linecache
import random
from itertools import count

import pytest
from frontend_support import INT32_PTR, ScalarMachine, compile_kernel

import tkdebug.language as tl
from tkdebug.compiler.dtypes import int32
from tkdebug.runtime.jit.function import jit

NAMES = ("a", "b", "c")


class Writer:
    """Writes a function whose every path is defined and short."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = count()
        self.lines: list[str] = []

    def expression(self, depth: int = 0) -> str:
        pick = self.random.random
        if depth > 1 or pick() < 0.4:
            return self.random.choice([*NAMES, str(self.random.randint(-3, 9))])
        left, right = self.expression(depth + 1), self.expression(depth + 1)
        if pick() < 0.15:
            return f"({left} if {self.condition()} else {right})"
        if pick() < 0.1:
            return f"helper({left} + a, {right} + a)"
        return f"({left} {self.random.choice(['+', '-', '*', '&', '|'])} {right})"

    def condition(self) -> str:
        symbol = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        left = f"{self.random.choice(NAMES)} {symbol} {self.random.randint(-2, 9)}"
        if self.random.random() < 0.3:
            other = f"{self.random.choice(NAMES)} > {self.random.randint(-2, 9)}"
            return f"({left} {self.random.choice(['and', 'or'])} not {other})"
        return left

    def block(self, indent: int, depth: int, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.statement(indent, depth, in_loop)

    def put(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def statement(self, indent: int, depth: int, in_loop: bool) -> None:
        kind = self.random.random()
        if depth > 3 or kind < 0.45:
            self.put(indent, f"{self.random.choice(NAMES)} = ({self.expression()}) & 1023")
        elif kind < 0.55:
            self.put(indent, f"{self.random.choice(NAMES)} += {self.expression()} & 15")
        elif kind < 0.6 and not in_loop:
            self.put(indent, "return")
        elif kind < 0.65:
            self.put(indent, "a, b = b, a")
        elif kind < 0.7:
            self.put(indent, f"tl.store(p + {self.random.randint(0, 7)}, {self.expression()})")
        elif kind < 0.85:
            self.put(indent, f"if {self.condition()}:")
            self.block(indent + 1, depth + 1, in_loop)
            if self.random.random() < 0.5:
                self.put(indent, f"elif {self.condition()}:")
                self.block(indent + 1, depth + 1, in_loop)
            if self.random.random() < 0.6:
                self.put(indent, "else:")
                self.block(indent + 1, depth + 1, in_loop)
        elif kind < 0.95:
            start, stop = self.random.randint(-2, 3), self.random.randint(-1, 5)
            step = self.random.choice([1, 2, -1])
            kind = self.random.choice(["range", "tl.static_range"])
            self.put(indent, f"for i{next(self.loops)} in {kind}({start}, {stop}, {step}):")
            self.block(indent + 1, depth + 1, True)
        else:
            counter = f"w{next(self.loops)}"
            self.put(indent, f"{counter} = 0")
            self.put(indent, f"while {counter} < 3 and {self.condition()}:")
            self.put(indent + 1, f"{counter} += 1")
            self.block(indent + 1, depth + 1, True)

    def source(self) -> str:
        self.lines = []
        self.put(0, "def helper(x, y):")
        self.put(1, "if x > y:")
        self.put(2, "return x - y")
        self.put(1, "if x == y:")
        self.put(2, "y = 4")
        self.put(1, "return y & 63")
        self.put(0, "")
        self.put(0, "def kernel(p, a, b):")
        self.put(1, "c = 0")
        for _ in range(6):
            self.statement(1, 0, False)
        for index, name in enumerate(NAMES):
            self.put(1, f"tl.store(p + {10 + index}, {name})")
        return "\n".join(self.lines) + "\n"


class PythonLanguage:
    """The few functions that random programs use, in Python."""

    static_range = staticmethod(range)

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}

    def store(self, pointer: int, value: int) -> None:
        self.memory[pointer] = (value + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("seed", range(60))
def test_random_program_agrees_with_python(seed, tmp_path):
    path = tmp_path / f"program_{seed}.py"
    path.write_text(Writer(seed).source())
    linecache.clearcache()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plain_kernel, plain_helper = module.kernel, module.helper
    module.tl = tl
    module.helper = jit(plain_helper)
    ir = compile_kernel(jit(plain_kernel), p=INT32_PTR, a=int32, b=int32)
    for a, b in ((0, 0), (5, 2), (-1, 8)):
        found = ScalarMachine(ir).run(0, a, b)
        module.tl, module.helper = PythonLanguage(), plain_helper
        plain_kernel(0, a, b)
        assert found == module.tl.memory, path.read_text()
