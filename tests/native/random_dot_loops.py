"""Writes random loops with dots: what pipelining, overlap and operand layouts have to get right.

All numbers are small integers, and so is every sum: each order of additions, and each precision
that a tensor core sums with, gives the same bits. Sides of tiles, warps, stages, types, the order
in memory, masks, what happens to operands between their load and the dot, chained dots, branches
and stores in the loop vary.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

HEADER = """import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def scaled(x, y):
    return x * 2 + y


@tkdebug.jit
def kernel(a_ptr, b_ptr, v_ptr, x_ptr, out_ptr, out2_ptr, side_ptr, K, limit,
           M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
           STAGES: tl.constexpr):
    m, n, d, kk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D), tl.arange(0, BLOCK)
    a_ptr += tl.program_id(0) * M * K
    out_ptr += tl.program_id(0) * M * N
    out2_ptr += tl.program_id(0) * M * D
"""
PROGRAMS = 3


@dataclass
class DotLoop:
    """One kernel and how it is launched.

    Attributes:
        source: of a module with the kernel, `kernel`.
        constants: its compile-time arguments.
        num_warps: threads / 32.
        dtype: of both operands of the first dot.
        depth: its length along K.
        limit: what the loop's branch compares with.
        turned: whether A and B lie in memory with K along their rows' other side.
        seed: of the inputs.
    """

    source: str
    constants: dict[str, int]
    num_warps: int
    dtype: torch.dtype
    depth: int
    limit: int
    turned: tuple[bool, bool]
    seed: int

    def arguments(self) -> tuple[list[Any], list[torch.Tensor]]:
        """The inputs and the outputs, on the CPU."""
        m, n, d = (self.constants[name] for name in "MND")
        generator = torch.Generator().manual_seed(self.seed)

        def whole(*shape: int) -> torch.Tensor:
            return torch.randint(-2, 3, shape, generator=generator)

        a_shape = (self.depth, PROGRAMS * m) if self.turned[0] else (PROGRAMS * m, self.depth)
        b_shape = (n, self.depth) if self.turned[1] else (self.depth, n)
        a, b = (whole(*shape).float().to(self.dtype) for shape in (a_shape, b_shape))
        total = torch.int32 if self.dtype == torch.int8 else torch.float32
        outputs = [
            torch.zeros(PROGRAMS * m, n, dtype=total),
            torch.zeros(PROGRAMS * m, d, dtype=torch.float32),
            torch.zeros(PROGRAMS, -(-self.depth // self.constants["BLOCK"]) + 1, m),
        ]
        x = whole(self.depth).float()
        return [a, b, whole(n, d).half(), x], outputs


class Writer:
    """Builds one kernel from a random.Random."""

    def __init__(self, chooser: random.Random, seed: int) -> None:
        self.chooser, self.seed = chooser, seed
        self.lines: list[str] = []
        self.dtype = self.choose(
            torch.float16, torch.float16, torch.bfloat16, torch.float32, torch.int8,
            torch.float8_e4m3fn, torch.float8_e5m2,
        )  # fmt: skip
        self.narrow = self.dtype.itemsize == 1
        self.block = self.choose(32, 64) if self.narrow else self.choose(16, 32, 64)
        self.turned = (self.chance(30), self.chance(50))
        self.integer = self.dtype == torch.int8

    def choose(self, *options: Any) -> Any:
        return options[self.chooser.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self.chooser.randrange(100) < percent

    def write(self) -> DotLoop:
        sides = {"M": self.choose(16, 32, 64, 64, 128), "N": self.choose(16, 32, 64, 128)}
        sides |= {
            "D": self.choose(16, 32, 64),
            "BLOCK": self.block,
            "STAGES": self.choose(1, 2, 3, 4),
        }
        whole_blocks = self.chance(60)
        depth = self.block * self.choose(1, 2, 3, 5) - (0 if whole_blocks else self.block // 2)
        self._start()
        self._loop("K" if whole_blocks else "masked")
        self.emit("tl.store(out_ptr + m[:, None] * N + n[None, :], acc)")
        return DotLoop(
            HEADER + "\n".join(self.lines) + "\n",
            sides,
            self.choose(1, 2, 4, 4, 8),
            self.dtype,
            depth,
            self.choose(0, 1, 100),
            self.turned,
            self.seed,
        )

    def emit(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    def _start(self) -> None:
        self.emit(f"acc = tl.zeros((M, N), tl.{'int32' if self.integer else 'float32'})")
        self.emit("acc2 = tl.zeros((M, D), tl.float32)")
        self.emit("count = 0")
        self.moved = self.chance(50)
        if self.moved:
            self.emit(f"a_at = a_ptr + {self._a_offset('0')}")
            self.emit(f"b_at = b_ptr + {self._b_offset('0')}")

    def _a_offset(self, first: str) -> str:
        k = f"({first} + kk)"
        if self.turned[0]:
            # The programs' rows lie side by side: undo the offset of whole rows.
            return f"{k}[:, None] * ({PROGRAMS} * M) + m[None, :] + tl.program_id(0) * (M - M * K)"
        return f"m[:, None] * K + {k}[None, :]"

    def _b_offset(self, first: str) -> str:
        k = f"({first} + kk)"
        return (
            f"n[:, None] * K + {k}[None, :]" if self.turned[1] else f"{k}[:, None] * N + n[None, :]"
        )

    def _loop(self, bound: str) -> None:
        stages = self.choose("", "", ", num_stages=STAGES")
        self.emit(f"for first in tl.range(0, K, BLOCK{stages}):")
        masked = bound == "masked"
        along_a, along_b = self.turned[0], not self.turned[1]
        self._load("a", self._a_offset("first"), along_a, masked)
        if self.chance(30):
            self._branch()
        self._load("b", self._b_offset("first"), along_b, masked)
        if self.turned[0]:
            self.emit("a = tl.trans(a)", 2)
        if self.turned[1]:
            self.emit("b = tl.trans(b)", 2)
        self._change()
        self._dot()
        if not self.integer and self.chance(40):
            self._second_dot()
        if self.chance(25):
            self.emit("count += 1", 2)
            self.emit(
                "tl.store(side_ptr + tl.program_id(0) * (tl.cdiv(K, BLOCK) + 1) * M "
                "+ (first // BLOCK) * M + m, tl.sum(acc, 1).to(tl.float32))",
                2,
            )
        if self.moved:
            step_a = f"BLOCK * ({PROGRAMS} * M)" if self.turned[0] else "BLOCK"
            step_b = "BLOCK" if self.turned[1] else "BLOCK * N"
            self.emit(f"a_at += {step_a}", 2)
            self.emit(f"b_at += {step_b}", 2)
        if self.chance(50) and any("acc2 =" in line for line in self.lines[2:]):
            self.emit("acc2 = acc2 + 1.0", 2)
        self.emit("tl.store(out2_ptr + m[:, None] * D + d[None, :], acc2)")

    def _load(self, name: str, offset: str, along_rows: bool, masked: bool) -> None:
        place = f"{name}_at" if self.moved else f"{name}_ptr + {offset}"
        mask = ""
        if masked:
            k = "kk[:, None]" if along_rows else "kk[None, :]"
            mask = f", mask={k} < K - first, other={self.choose('0', '0.0')}"
        self.emit(f"{name} = tl.load({place}{mask})", 2)

    def _branch(self) -> None:
        self.emit("if first > limit:", 2)
        self.emit(self.choose("acc += 1", "count += 3", "acc = acc * 0"), 3)
        if self.chance(50):
            self.emit("else:", 2)
            self.emit(self.choose("acc -= 1", "count -= 1"), 3)

    def _change(self) -> None:
        """Something between the loads and the dot."""
        kind = self.chooser.randrange(6)
        if kind == 0 and not self.narrow:
            self.emit("a = a * 2", 2)
        elif kind == 1 and not self.narrow:
            self.emit("x = tl.load(x_ptr + first + kk, mask=kk < K - first, other=0)", 2)
            self.emit("b = (b + x[:, None].to(b.dtype)).to(b.dtype)", 2)
        elif kind == 2 and self.dtype != torch.float32:
            self.emit("a = a.to(tl.float32).to(a_ptr.dtype.element_ty)", 2)
        elif kind == 3 and not self.narrow:
            self.emit("b = scaled(b, b)", 2)
        elif kind == 4 and not self.narrow:
            self.emit("a = tl.where(m[:, None] % 3 == 1, a, -a)", 2)

    def _dot(self) -> None:
        out = ", out_dtype=tl.int32" if self.integer else ""
        self.emit(
            self.choose(
                f"acc = tl.dot(a, b, acc{out})",
                f"acc += tl.dot(a, b{out})",
                f"acc = acc + tl.dot(a, b{out})",
                f"acc = tl.dot(a, b, acc{out}) + 1",
                f"acc = tl.dot(a, b, acc - 1{out})",
            ),
            2,
        )

    def _second_dot(self) -> None:
        """The first product, narrowed, times a tile of its own, as in attention."""
        product = self.choose("acc", "tl.dot(a, b)", "tl.minimum(acc, 100.0)")
        self.emit(f"p = {product}.to(tl.float16)", 2)
        self.emit(
            "p = tl.where(p > 0, p, 0.0).to(tl.float16)" if self.chance(50) else "p = p + 0", 2
        )
        where = "v_ptr + n[:, None] * D + d[None, :]"
        self.emit(f"v = tl.load({where})", 2)
        self.emit(self.choose("acc2 = tl.dot(p, v, acc2)", "acc2 += tl.dot(p, v)"), 2)


def written(seed: int) -> DotLoop:
    """The kernel of a seed."""
    return Writer(random.Random(seed), seed).write()
