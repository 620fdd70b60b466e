"""Writes random, race-free kernels: what one program does never depends on another's order.

Inputs are only read; each output is stored by one statement; `io` (passed twice, so that loads and
stores alias) is only touched in the program's own region.
"""

from __future__ import annotations

import numpy as np

INPUT_SIZE = 64
OUT_SIZE = 96
KEPT = 24
LANES = 64
INTS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
NAMES = {
    "i8": "tl.int8", "i16": "tl.int16", "i32": "tl.int32", "i64": "tl.int64",
    "u8": "tl.uint8", "u16": "tl.uint16", "u32": "tl.uint32", "u64": "tl.uint64",
    "f32": "tl.float32", "f16": "tl.float16", "f64": "tl.float64", "bf16": "tl.bfloat16",
    "b": "tl.int1",
}  # fmt: skip
HEADER = """import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def add(a, b):
    return a + b


@tkdebug.jit
def compose(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@tkdebug.jit
def first_largest(v1, i1, v2, i2):
    keep = (v1 > v2) | ((v1 == v2) & (i1 < i2))
    return tl.where(keep, v1, v2), tl.where(keep, i1, i2)


@tkdebug.jit
def kernel(a_ptr, b_ptr, f_ptr, l_ptr, io_ptr, io2_ptr, n, m, k,
           o0_ptr, o1_ptr, o2_ptr, o3_ptr,
           acc_ptr, ints_ptr, floats_ptr, R: tl.constexpr, C: tl.constexpr):
    px = tl.program_id(0)
    py = tl.program_id(1)
    lin = px + py * tl.num_programs(0)
    rows = tl.arange(0, R)
    cols = tl.arange(0, C)
"""


class Writer:
    """Builds one kernel; `pick` is random.Random or hypothesis' stand-in for it."""

    def __init__(self, random, rows, cols, statements):
        self.random = random
        self.rows, self.cols = rows, cols
        self.lines = []
        self.depth = 1
        self.count = 0
        self.in_loop = 0
        self.outputs = ["o0", "o1", "o2", "o3"]
        self.atomics = ["acc"]
        self.pool = {
            "px": ("i32", ()), "py": ("i32", ()), "lin": ("i32", ()), "n": ("i32", ()),
            "m": ("i32", ()), "k": ("i64", ()), "rows": ("i32", (rows,)), "cols": ("i32", (cols,)),
        }  # fmt: skip
        self.statements = statements

    def write(self):
        self.bind("rows[:, None]", "i32", (self.rows, 1))
        self.bind("cols[None, :]", "i32", (1, self.cols))
        for _ in range(self.statements):
            self.statement()
        for _ in range(2):
            self.store()
        self.keep_results()
        return HEADER + "\n".join(self.lines) + "\n"

    def keep_results(self):
        """Store what was computed where each program and variable has a place of its own."""
        for place, (name, (kind, shape)) in enumerate(list(self.pool.items())[::-1][:KEPT]):
            if self.chance(40):
                continue
            lane = {0: "0", 1: f"tl.arange(0, {shape[0] if shape else 1})"}.get(len(shape))
            if lane is None:
                lane = f"(tl.arange(0, {shape[0]})[:, None] * {shape[1]} + "
                lane += f"tl.arange(0, {shape[1]})[None, :])"
            where = f"(lin * {KEPT} + {place}) * {LANES} + {lane}"
            if kind in INTS or kind == "b":
                self.emit(f"tl.store(ints_ptr + ({where}), {name}.to(tl.int64))")
            else:
                self.emit(f"tl.store(floats_ptr + ({where}), {name}.to(tl.float64))")

    # -- choices ----------------------------------------------------------------------------

    def choose(self, options):
        options = list(options)
        return options[self.random.randrange(len(options))]

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def emit(self, text):
        self.lines.append("    " * self.depth + text)

    def bind(self, expression, kind, shape):
        name = f"v{self.count}"
        self.count += 1
        self.emit(f"{name} = {expression}")
        self.pool[name] = (kind, tuple(shape))
        return name

    def variable(self, kinds=None, shape=None, fits=None):
        """A variable of the pool, or None: of one of `kinds`, of `shape`, or broadcasting to it."""
        found = [
            name
            for name, (kind, have) in self.pool.items()
            if (kinds is None or kind in kinds)
            and (shape is None or have == shape)
            and (fits is None or broadcasts(have, fits))
        ]
        return self.choose(found) if found else None

    def shape_of(self, name):
        return self.pool[name][1]

    # -- expressions ------------------------------------------------------------------------

    def integer(self, kind, shape):
        """An expression of integer `kind` that broadcasts to `shape`."""
        name = self.variable(kinds=INTS, fits=shape)
        if name is None or self.chance(20):
            return f"tl.full([], {self.choose([0, 1, 2, 3, 5, 7, 16, 100])}, {NAMES[kind]})"
        if self.pool[name][0] == kind:
            return name
        return f"{name}.to({NAMES[kind]})"

    def small(self, shape):
        """An i32 expression of modest size, affine more often than not."""
        terms = []
        for _ in range(self.choose([1, 2, 2, 3])):
            name = self.variable(kinds=["i32"], fits=shape)
            factor = self.choose([1, 1, 1, 2, 3, 4, 8, -1, -2, 0])
            terms.append(f"{name} * {factor}" if factor != 1 else name)
        text = " + ".join(terms)
        return text + self.choose(["", "", f" + {self.choose([1, 5, 17, -3, -8])}"])

    def mask(self, shape, depth=2):
        """An i1 expression that broadcasts to `shape`."""
        if depth and self.chance(50):
            left, right = self.mask(shape, depth - 1), self.mask(shape, depth - 1)
            return self.choose([f"({left} & {right})"] * 3 + [f"({left} | {right})", f"(~{left})"])
        name = self.variable(kinds=["b"], fits=shape)
        if name and self.chance(20):
            return name
        operator = self.choose(["<", "<=", ">", ">=", "==", "!="])
        if self.chance(30):
            kind = self.choose(INTS)
            return f"({self.integer(kind, shape)} {operator} {self.integer(kind, shape)})"
        bound = self.choose(["n", "m", "3", "5", "n - lin * 3", "px * 2 + 1", "m - py", "0"])
        return f"({self.small(shape)} {operator} {bound})"

    def offset(self, shape, size):
        """An i32 offset expression; most often one that stays inside [0, size)."""
        text = self.small(shape)
        if self.chance(60):
            return text
        return f"((({text}) % {size} + {size}) % {size})"

    def shapes(self):
        r, c = self.rows, self.cols
        return self.choose([(), (r,), (c,), (r, 1), (1, c), (r, c), (r, c), (r, c)])

    # -- statements -------------------------------------------------------------------------

    def statement(self):
        options = [
            self.arithmetic, self.arithmetic, self.arithmetic, self.load, self.load, self.load,
            self.select, self.convert, self.reshape, self.reduce, self.scan, self.own_region,
            self.float_arithmetic, self.boolean, self.redefine, self.store,
        ]  # fmt: skip
        if self.depth < 4:
            options += [self.branch, self.loop, self.while_loop]
        if self.depth == 1:
            options += [self.atomic]
        self.choose(options)()

    def arithmetic(self):
        kind, shape = self.choose([*INTS, "i32", "i32", "i32"]), self.shapes()
        a, b = self.integer(kind, shape), self.integer(kind, shape)
        operator = self.choose(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "min", "max"])
        if operator in ("<<", ">>"):
            b = f"({b} & {INTS[kind] - 1})" if self.chance(80) else b
        if operator in ("min", "max"):
            text = f"tl.{operator}imum({a}, {b})"
        else:
            text = f"{a} {operator} {b}"
        # Products in the language widen nothing; the cast pins the kind.
        self.bound_like(f"({text}).to({NAMES[kind]})", kind, shape)

    def bound_like(self, expression, kind, shape):
        """Bind an expression that only broadcasts to `shape` at that very shape."""
        if shape == ():
            self.bind(expression, kind, shape)
        else:
            self.bind(f"tl.broadcast_to({expression}, {list(shape)})", kind, shape)

    def float_arithmetic(self):
        kind = self.choose(["f32", "f32", "f16", "f64", "bf16"])
        shape = self.shapes()
        a, b = self.floating(kind, shape), self.floating(kind, shape)
        text = self.choose(
            [
                f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"tl.maximum({a}, {b})",
                f"tl.minimum({a}, {b})", f"-{a}", f"tl.abs({a})", f"{a} / {b}",
            ]
        )  # fmt: skip
        self.bound_like(f"({text}).to({NAMES[kind]})", kind, shape)

    def floating(self, kind, shape):
        name = self.variable(kinds=["f32", "f16", "f64", "bf16"], fits=shape)
        if name is None or self.chance(20):
            return f"{self.integer('i32', shape)}.to({NAMES[kind]})"
        return name if self.pool[name][0] == kind else f"{name}.to({NAMES[kind]})"

    def boolean(self):
        shape = self.shapes()
        self.bound_like(self.mask(shape), "b", shape)

    def select(self):
        shape = self.shapes()
        kind = self.choose(["i32", "i64", "u8", "f32", "b"])
        if kind == "f32":
            a, b = self.floating(kind, shape), self.floating(kind, shape)
        elif kind == "b":
            a, b = self.mask(shape, 1), self.mask(shape, 1)
        else:
            a, b = self.integer(kind, shape), self.integer(kind, shape)
        self.bound_like(f"tl.where({self.mask(shape)}, {a}, {b})", kind, shape)

    def convert(self):
        name = self.choose(self.pool)
        kind = self.choose([*INTS, "f32", "f16", "bf16", "b"])
        shape = self.shape_of(name)
        self.bind(f"{name}.to({NAMES[kind]})", kind, shape)

    def reshape(self):
        r, c = self.rows, self.cols
        change = self.choose(["trans", "flatten", "split", "expand", "cat", "fold"])
        if change == "trans":
            name = self.variable(shape=(r, c))
            if name and r == c:
                self.bind(f"tl.trans({name})", self.pool[name][0], (r, c))
        elif change == "flatten" and r * c <= 256:
            name = self.variable(shape=(r, c))
            if name:
                kind = self.pool[name][0]
                flat = self.bind(f"tl.reshape({name}, [{r * c}])", kind, (r * c,))
                self.bind(f"tl.reshape({flat}, [{r}, {c}])", kind, (r, c))
        elif change == "split":
            name = self.variable(shape=(r, c))
            if name and c >= 2:
                kind = self.pool[name][0]
                halves = [f"v{self.count}", f"v{self.count + 1}"]
                self.count += 2
                self.emit(f"{', '.join(halves)} = tl.split(tl.reshape({name}, [{r}, {c // 2}, 2]))")
                for half in halves:
                    self.pool[half] = (kind, (r, c // 2))
                joined = f"tl.join({halves[1]}, {halves[0]})"
                self.bind(f"tl.reshape({joined}, [{r}, {c}])", kind, (r, c))
        elif change == "expand":
            name = self.variable(shape=(r,))
            if name:
                self.bind(f"{name}[:, None]", self.pool[name][0], (r, 1))
            name = self.variable(shape=(c,))
            if name:
                self.bind(f"{name}[None, :]", self.pool[name][0], (1, c))
        elif change == "cat":
            name = self.variable(shape=(r,))
            other = name and self.variable(kinds=[self.pool[name][0]], shape=(r,))
            if other:
                kind = self.pool[name][0]
                both = self.bind(f"tl.cat({name}, {other}, can_reorder=True)", kind, (2 * r,))
                if kind in INTS:
                    self.bind(f"tl.max({both}.to(tl.int64), 0)", "i64", ())
        elif change == "fold":
            name = self.variable(shape=(c,))
            if name and c >= 4:
                kind = self.pool[name][0]
                self.bind(f"tl.trans(tl.reshape({name}, [2, {c // 2}]))", kind, (c // 2, 2))

    def reduce(self):
        r, c = self.rows, self.cols
        axis = self.choose([0, 1])
        name = self.variable(kinds=["i32", "i64", "u32", "f32"], shape=(r, c))
        if not name:
            return
        kind = self.pool[name][0]
        shape = (c,) if axis == 0 else (r,)
        how = self.choose(["sum", "max", "min", "argmax", "argmin", "compose", "arg", "xor_sum"])
        if kind == "f32" and how in ("sum", "compose", "xor_sum"):
            name, kind = f"{name}.to(tl.int32)", "i32"
        if how in ("sum", "max", "min", "xor_sum"):
            self.bind(f"tl.{how}({name}, {axis})", kind, shape)
        elif how in ("argmax", "argmin"):
            # A NaN makes the winner depend on the order of comparisons.
            name = name if kind != "f32" else f"tl.where({name} == {name}, {name}, 0.0)"
            self.bind(f"tl.{how}({name}, {axis})", "i32", shape)
        elif how == "compose":
            first, second = f"v{self.count}", f"v{self.count + 1}"
            self.count += 2
            self.emit(f"{first}, {second} = tl.reduce(({name}, {name} + 1), {axis}, compose)")
            self.pool[first] = self.pool[second] = (kind, shape)
        else:
            name = name if kind != "f32" else f"tl.where({name} == {name}, {name}, 0.0)"
            first, second = f"v{self.count}", f"v{self.count + 1}"
            self.count += 2
            lanes = "rows[:, None]" if axis == 0 else "cols[None, :]"
            index = f"tl.broadcast_to({lanes}, [{r}, {c}])"
            self.emit(f"{first}, {second} = tl.reduce(({name}, {index}), {axis}, first_largest)")
            self.pool[first] = (kind, shape)
            self.pool[second] = ("i32", shape)

    def scan(self):
        r, c = self.rows, self.cols
        axis, reverse = self.choose([0, 1]), self.choose(["False", "True"])
        name = self.variable(kinds=["i32", "i64", "u32"], shape=(r, c))
        if not name:
            return
        kind = self.pool[name][0]
        how = self.choose(["cumsum", "cumprod", "compose", "add"])
        if how in ("cumsum", "cumprod"):
            self.bind(f"tl.{how}({name}, {axis}, reverse={reverse})", kind, (r, c))
        elif how == "add":
            text = f"tl.associative_scan({name}, {axis}, add, reverse={reverse})"
            self.bind(text, kind, (r, c))
        else:
            first, second = f"v{self.count}", f"v{self.count + 1}"
            self.count += 2
            self.emit(
                f"{first}, {second} = tl.associative_scan(({name}, {name} + 1), {axis}, compose, "
                f"reverse={reverse})"
            )
            self.pool[first] = self.pool[second] = (kind, (r, c))

    def load(self):
        shape = self.shapes()
        pointer, kind = self.choose(
            [
                ("a_ptr", "i32"),
                ("a_ptr", "i32"),
                ("b_ptr", "i8"),
                ("f_ptr", "f32"),
                ("l_ptr", "i64"),
            ]
        )
        offset = self.offset(shape, INPUT_SIZE)
        if shape != ():
            offset = f"tl.broadcast_to({offset}, {list(shape)})"
        extra = ""
        if self.chance(75):
            mask = self.mask(shape)
            if self.chance(50):
                mask = f"{mask} & ({offset} >= 0) & ({offset} < {INPUT_SIZE})"
            extra = f", mask={mask}"
            if self.chance(50):
                other = self.choose(["0", "1", "7"])
                if self.chance(30):
                    other = (
                        self.floating(kind, shape) if kind == "f32" else self.integer(kind, shape)
                    )
                extra += f", other={other}"
        self.bind(f"tl.load({pointer} + {offset}{extra})", kind, shape)

    def own_region(self):
        """A load or a store in this program's part of `io`, through either argument."""
        r, c = self.rows, self.cols
        size = r * c
        lane = f"(rows[:, None] * {c} + cols[None, :])"
        place = self.choose(
            [
                lane, lane, f"({size - 1} - {lane})", f"(rows[:, None] + cols[None, :] * {r})",
                f"({lane} // 2)", f"({lane} ^ 1)", f"({lane} * 3 % {size})",
                "(rows[:, None] * 0 + cols[None, :])", f"(rows[:, None] * {c} + cols[None, :] * 0)",
                f"(({lane} + n) % {size} * ({lane} + n >= 0))",
            ]
        )  # fmt: skip
        pointer = f"{self.choose(['io_ptr', 'io2_ptr'])} + (lin * {size} + {place})"
        extra = f", mask={self.mask((r, c))}" if self.chance(50) else ""
        if self.chance(50):
            self.bind(f"tl.load({pointer}{extra})", "i32", (r, c))
        else:
            value = f"tl.broadcast_to({self.integer('i32', (r, c))}, [{r}, {c}])"
            self.emit(f"tl.store({pointer}, {value}{extra})")

    def store(self):
        """A store to an output of its own; outside loops programs may overlap."""
        if not self.outputs or self.in_loop:
            return
        output = self.outputs.pop()
        shape = self.shapes()
        kind = {"o0": "i32", "o1": "f32", "o2": "i64", "o3": "i8"}[output]
        value = self.floating(kind, shape) if kind == "f32" else self.integer(kind, shape)
        offset = self.offset(shape, OUT_SIZE)
        if shape != ():
            offset = f"tl.broadcast_to({offset}, {list(shape)})"
            value = f"tl.broadcast_to({value}, {list(shape)})"
        extra = f", mask={self.mask(shape)}" if self.chance(60) else ""
        self.emit(f"tl.store({output}_ptr + {offset}, {value}{extra})")

    def atomic(self):
        if not self.atomics:
            return
        self.atomics.pop()
        shape = self.shapes()
        offset = f"((({self.small(shape)}) % 16 + 16) % 16)"
        value = self.integer("i32", shape)
        if shape != ():
            offset = f"tl.broadcast_to({offset}, {list(shape)})"
            value = f"tl.broadcast_to({value}, {list(shape)})"
        how = self.choose(["add", "max", "min", "and", "or", "xor", "xchg"])
        extra = f", mask={self.mask(shape)}" if self.chance(50) else ""
        text = f"tl.atomic_{how}(acc_ptr + {offset}, {value}{extra})"
        if self.chance(50):
            self.emit(text)
            return
        # What masked-off lanes give is undefined.
        if extra:
            mask = extra.removeprefix(", mask=")
            text = f"tl.where({mask}, {text}, 0)"
        self.bound_like(text, "i32", shape)

    def redefine(self):
        """Give a variable a new value of its own kind and shape (what loops and ifs carry)."""
        name = self.variable(kinds=["i32", "i64", "f32", "u8"])
        if name in (None, "px", "py", "lin", "rows", "cols", "n", "m", "k"):
            return
        kind, shape = self.pool[name]
        value = self.floating(kind, shape) if kind == "f32" else self.integer(kind, shape)
        operator = self.choose(["+", "-", "*"])
        text = f"({name} {operator} {value}).to({NAMES[kind]})"
        self.emit(
            f"{name} = tl.broadcast_to({text}, {list(shape)})" if shape else f"{name} = {text}"
        )

    def block(self):
        """Some statements one level deeper; their own variables are gone afterwards."""
        before = dict(self.pool)
        self.depth += 1
        start = len(self.lines)
        for _ in range(self.choose([1, 2, 3])):
            self.statement()
        self.redefine()
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1
        self.pool = before

    def condition(self):
        return self.mask((), 1)

    def branch(self):
        self.emit(f"if {self.condition()}:")
        self.block()
        if self.chance(50):
            self.emit("else:")
            self.block()

    def trips(self):
        name = self.variable(kinds=["i32"], shape=())
        return self.choose(["2", "3", f"({name} & 3)", f"({name} & 1)", "(lin & 3)"])

    def loop(self):
        start = self.choose(["0", "1", "px", "py"])
        step = self.choose(["1", "1", "2"])
        it = f"t{self.count}"
        self.count += 1
        self.emit(f"for {it} in range({start}, {start} + {self.trips()}, {step}):")
        before = dict(self.pool)
        self.pool[it] = ("i32", ())
        self.in_loop += 1
        self.block()
        self.in_loop -= 1
        self.pool = before

    def while_loop(self):
        left = self.bind(f"{self.trips()} + (lin - lin)", "i32", ())
        del self.pool[left]
        self.emit(f"while {left} > 0:")
        self.in_loop += 1
        self.block()
        self.in_loop -= 1
        self.emit(f"    {left} -= 1")


def broadcasts(have, want):
    """Whether a shape broadcasts to another, axes aligned from the last, ranks equal or scalar."""
    if have == ():
        return True
    if len(have) != len(want):
        return False
    try:
        return np.broadcast_shapes(have, want) == tuple(want)
    except ValueError:
        return False
