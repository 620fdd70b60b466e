"""Writes random kernels that move blocks: pointers, block pointers, descriptors, wrong bounds too.

One statement per kernel stores; what it stores went through loads, elementwise chains and sums.
"""

from dataclasses import dataclass

import torch

HEADER = """import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def kernel(x_ptr, y_ptr, out_ptr, m, n, sm, sn, om, on, shift, M: tl.constexpr, N: tl.constexpr):
    p0, p1, p2 = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i = p1 * M + tl.arange(0, M)
    j = p0 * N + tl.arange(0, N)
"""


class AccessWriter:
    """Builds one kernel from a random.Random."""

    def __init__(self, random):
        self.random = random
        self.lines = []

    def choose(self, *options):
        return options[self.random.randrange(len(options))]

    def write(self):
        for place in range(self.choose(1, 2, 3)):
            self.lines.append(f"    v{place} = {self.loaded(self.choose('x', 'y'))}")
        values = [f"v{place}" for place in range(len(self.lines))]
        chain = self.choose(*values)
        for _ in range(self.choose(0, 1, 2, 4)):
            chain = self.step(chain, values)
            name = f"w{len(self.lines)}"
            self.lines.append(f"    {name} = {chain}")
            chain = name
        chain = self.choose(
            chain, chain, f"{chain} + tl.max({chain}, 1)[:, None]",
            f"{chain} - tl.max({chain}, 0)[None, :]", f"tl.where(i[:, None] < m, {chain}, 3.0)",
            f"tl.where((i[:, None] < m) & (j[None, :] < n), {chain}, -1.0)",
        )  # fmt: skip
        self.store(chain)
        return HEADER + "\n".join(self.lines) + "\n"

    def step(self, chain, values):
        other = self.choose(
            *values, "2.0", "i[:, None].to(tl.float32)", "j[None, :].to(tl.float32)"
        )
        return self.choose(
            f"{chain} + {other}", f"{chain} * {other}", f"-{chain}", f"tl.abs({chain})",
            f"tl.maximum({chain}, {other})", f"{other} - {chain}", f"tl.sqrt(tl.abs({chain}))",
        )  # fmt: skip

    def bounds(self):
        rows = self.choose("m", "m", "m", "m", "m + 1", "m - 1", "m - p1")
        cols = self.choose("n", "n", "n", "n", "n + 2", "n - 1", "n - p0")
        return rows, cols

    def mask(self):
        rows, cols = self.bounds()
        row = self.choose(f"(i[:, None] < {rows})", f"(i[:, None] < {rows})",
                          f"((i[:, None] >= shift) & (i[:, None] < {rows}))",
                          f"((i[:, None] < {rows}) & (i[:, None] != 2))")  # fmt: skip
        col = self.choose(f"(j[None, :] < {cols})", f"(j[None, :] < {cols})",
                          "(j[None, :] <= i[:, None])", f"({cols} > j[None, :])")  # fmt: skip
        return self.choose(f"{row} & {col}", f"{row} & {col}", f"{row} & {col}", row, col, None)

    def place(self, strides):
        a, b = strides
        i = self.choose(
            "i[:, None]",
            "i[:, None]",
            "i[:, None]",
            "(m - 1 - i[:, None])",
            "(i[:, None] - shift)",
            "(i[:, None] % m)",
            "(i[:, None] // 2)",
        )
        j = self.choose(
            "j[None, :]",
            "j[None, :]",
            "j[None, :]",
            "(n - 1 - j[None, :])",
            "(j[None, :] % n)",
            "(j[None, :] * 0)",
        )
        return f"{i} * {a} + {j} * {b}"

    def loaded(self, tensor):
        rows, cols = self.bounds()
        kind = self.choose("pointer", "pointer", "block", "descriptor", "row")
        if kind == "pointer":
            mask = self.mask()
            extra = "" if mask is None else f", mask={mask}"
            extra += (
                self.choose("", ", other=1.5", ", other=i[:, None].to(tl.float32)") if extra else ""
            )
            return f"tl.load({tensor}_ptr + ({self.place(('sm', 'sn'))}){extra})"
        if kind == "block":
            order = f"({rows}, {cols}), (sm, sn), (p1 * M{self.choose('', ' - shift')}, p0 * N)"
            check = self.choose("(0, 1)", "(0, 1)", "(0,)", "(1,)")
            padding = self.choose("", ', padding_option="nan"', ', padding_option="zero"')
            block = f"tl.make_block_ptr({tensor}_ptr, {order}, (M, N), (1, 0))"
            moved = self.choose("", "", "tl.advance(")
            if moved:
                block = f"tl.advance({block}, ({self.choose('0', 'M', '-shift')}, 0))"
            return f"tl.load({block}, boundary_check={check}{padding})"
        if kind == "descriptor":
            # The last stride must be one: rows of y are.
            shape = f"[{rows}, {cols}], [n, 1], [M, N]"
            at = f"[p1 * M{self.choose('', ' - shift')}, p0 * N]"
            return f"tl.make_tensor_descriptor(y_ptr, {shape}).load({at})"
        row = f"tl.load({tensor}_ptr + p2 + j, mask=j < {cols})"
        return f"tl.broadcast_to({row}[None, :], [M, N])"

    def store(self, value):
        mask = self.mask()
        extra = "" if mask is None else f", mask={mask}"
        kind = self.choose("pointer", "pointer", "pointer", "block", "descriptor")
        rows, cols = self.bounds()
        offset = self.choose("", "", " + p2 * om * m")
        if kind == "pointer":
            where = self.place(("om", "on"))
            self.lines.append(f"    tl.store(out_ptr{offset} + ({where}), {value}{extra})")
        elif kind == "block":
            shape = f"({rows}, {cols}), (om, on), (p1 * M, p0 * N), (M, N), (1, 0)"
            self.lines.append(
                f"    tl.store(tl.make_block_ptr(out_ptr{offset}, {shape}), {value}, "
                f"boundary_check={self.choose('(0, 1)', '(0, 1)', '(0,)', '(1,)')})"
            )
        else:
            shape = f"[{rows}, {cols}], [om, 1], [M, N]"
            self.lines.append(
                f"    tl.make_tensor_descriptor(out_ptr{offset}, {shape})"
                f".store([p1 * M, p0 * N], {value})"
            )


@dataclass(frozen=True)
class RandomLaunch:
    """A kernel's source and what it is launched with."""

    source: str
    grid: tuple
    arguments: list
    options: dict
    described: str


def views(chooser, m, n):
    """A view of m by n elements inside a larger allocation, or a tensor of its own."""
    big = torch.tensor([float(chooser.randrange(-9, 10)) for _ in range(4 * (m + 4) * (n + 4))])
    options = [
        big[: m * n].view(m, n),
        big[5 : 5 + m * n].view(m, n),
        big[: m * 2 * n].view(m, 2 * n)[:, :n],
        big[: 2 * m * n].view(2 * m, n)[::2],
        big[: m * 3 * n].view(m, 3 * n)[:, 1::3],
        big[: m * n].view(n, m).t(),
        big[:n].expand(m, n),
        big[: m + n - 1].as_strided((m, n), (1, 1)),
    ]
    return chooser.choice(options)


def random_launch(chooser):
    """A random kernel on random views, in batches of a random size."""
    source = AccessWriter(chooser).write()
    rows, cols = chooser.choice([(8, 8), (4, 16), (16, 4), (1, 4), (2, 32)])
    m, n = chooser.choice([1, 3, 8, 13, 16, 17, 24]), chooser.choice([4, 7, 8, 9, 16, 21])
    x = views(chooser, m, n)
    y = torch.arange(float(m * n)).view(m, n)
    out = chooser.choice(
        [torch.zeros(m, n), torch.zeros(m + 3, n + 5)[2 : 2 + m, 3 : 3 + n], torch.zeros(n, m).t()]
    )
    spare = chooser.choice([0, 0, 1])
    grid = (
        -(-n // cols) + spare,
        -(-m // rows) + chooser.choice([0, 1]),
        chooser.choice([1, 1, 3]),
    )
    budget = chooser.choice([None, None, 64, 1 << 13, 1 << 15])
    # 1 would become a constant of the compilation, and take other ways there.
    shift = chooser.choice([0, 2, 3, rows])
    described = (
        f"grid {grid}, budget {budget}, {m}x{n} in {rows}x{cols}, x {x.stride()}, shift {shift}"
    )
    arguments = [x, y, out, m, n, *x.stride(), *out.stride(), shift]
    options = {"M": rows, "N": cols, "budget": budget}
    return RandomLaunch(source, grid, arguments, options, described)
