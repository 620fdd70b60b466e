"""Random programs of index arithmetic, and their concrete meaning.

`IndexPrograms` draws a function as IR text; `Machine` runs one program of it on exact integers
and checks every fact that the analysis claims about every value, each time the value is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tkdebug.compiler.analysis.axis_facts import AxisInfo, extents, unit_of
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir.types import element_of, shape_of

ARGUMENTS = ("x", "y", "z")
_ARITHMETIC = ("addi", "addi", "subi", "subi", "muli", "divsi", "remsi", "divui", "remui", "andi",
               "ori", "xori", "minsi", "maxsi", "minui", "maxui")  # fmt: skip
_NUMBERS = st.sampled_from([8, 4, 16, 2, 1, 0, 3, 7, 12, 15, 24, 31, 32, 48, 64, -1, -4, -16])
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


class Rejected(Exception):
    """The program leaves what the analysis assumes: overflow, or a divisor that is not positive."""


class IndexPrograms:
    """Draws the text of one function."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.count = 0
        self.indent = "  "

    def emit(self, text: str, type_: str) -> tuple[str, str]:
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{self.indent}{name} = {text}")
        return name, type_

    def text(self, size: int) -> str:
        """`tt.func @k(x, y, z: i32, p: pointer)` with about `size` ops."""
        values = [(f"%{name}", "i32") for name in ARGUMENTS]
        values.append(self.emit("tt.get_program_id {axis = 0} : i32", "i32"))
        self.seed(values)
        self.block(values, size, depth=0)
        signature = ", ".join(f"%{name}: i32" for name in ARGUMENTS)
        body = "\n".join(self.lines)
        return f"tt.func @k({signature}, %p: !tt.ptr<f32>) {{\n{body}\n  tt.return\n}}"

    def seed(self, values: list[tuple[str, str]]) -> None:
        """A run that begins at an argument, its mirror image, quotient and remainder."""
        type_ = "tensor<16xi32>"
        start, _ = self.emit(f"tt.splat %{self.draw(st.sampled_from(ARGUMENTS))} : i32 -> {type_}",
                             type_)  # fmt: skip
        steps, _ = self.emit(f"tt.make_range {{start = 0, end = 16}} : {type_}", type_)
        run = self.emit(f"arith.addi {start}, {steps} : {type_}", type_)
        mirrored = self.emit(f"arith.subi {start}, {steps} : {type_}", type_)
        values += [(steps, type_), mirrored, run]
        for op in self.draw(st.lists(st.sampled_from(["divsi", "remsi", "divui", "muli"]))):
            number = self.draw(st.sampled_from([2, 4, 8, 16, 32]))
            cut, _ = self.emit(f"arith.constant dense<{number}> : {type_}", type_)
            values.append(self.emit(f"arith.{op} {run[0]}, {cut} : {type_}", type_))

    def block(self, values: list[tuple[str, str]], size: int, depth: int) -> None:
        for _ in range(size):
            kind = self.draw(st.integers(0, 16))
            if kind == 0 and depth < 2:
                self.loop(values, depth)
            elif kind == 1 and depth < 2:
                self.branch(values, depth)
            else:
                self.step(values, kind)

    def pick(self, values: Sequence[tuple[str, str]], type_: str | None = None) -> tuple[str, str]:
        fitting = [v for v in values if "i32" in v[1] and (type_ is None or v[1] == type_)]
        if not fitting:
            return self.number(type_ or "i32")
        # The newest are the most interesting.
        place = self.draw(st.integers(0, min(5, len(fitting) - 1)))
        return fitting[-1 - place]

    def number(self, type_: str) -> tuple[str, str]:
        number = self.draw(_NUMBERS)
        shown = f"dense<{number}>" if type_ != "i32" else number
        return self.emit(f"arith.constant {shown} : {type_}", type_)

    def step(self, values: list[tuple[str, str]], kind: int) -> None:
        match kind:
            case 2:
                start = self.draw(st.sampled_from([0, 0, 4, 5, 16]))
                extent = self.draw(st.sampled_from([4, 8, 16]))
                type_ = f"tensor<{extent}xi32>"
                text = f"tt.make_range {{start = {start}, end = {start + extent}}} : {type_}"
                values.append(self.emit(text, type_))
            case 3 | 4 | 5 | 6:
                self.reshape_step(values)
            case 7 | 8:
                self.comparison(values)
            case 9:
                self.shift(values)
            case 10:
                self.pointer(values)
            case _:
                a, type_ = self.pick(values)
                b, _ = self.other(values, type_)
                op = self.draw(st.sampled_from(_ARITHMETIC))
                values.append(self.emit(f"arith.{op} {a}, {b} : {type_}", type_))

    def other(self, values: list[tuple[str, str]], type_: str) -> tuple[str, str]:
        """A second operand: a value of the type, a number, a range, or a scalar made a tile."""
        choice = self.draw(st.integers(0, 3))
        if choice == 0:
            return self.number(type_)
        if choice == 3 and type_.count("x") == 1:
            extent = int(type_[7:].split("x")[0])
            return self.emit(f"tt.make_range {{start = 0, end = {extent}}} : {type_}", type_)
        if choice == 1 and type_ != "i32":
            scalar, _ = self.pick(values, "i32")
            return self.emit(f"tt.splat {scalar} : i32 -> {type_}", type_)
        return self.pick(values, type_)

    def reshape_step(self, values: list[tuple[str, str]]) -> None:
        a, type_ = self.pick(values)
        if type_ == "i32":
            return
        shape = [int(size) for size in type_[7:-1].split("x")[:-1]]
        axis = self.draw(st.integers(0, len(shape) - 1))
        match self.draw(st.integers(0, 4)):
            case 0 if len(shape) < 3:
                target = [*shape[:axis], 1, *shape[axis:]]
                text = f"tt.expand_dims {a} {{axis = {axis}}}"
            case 1 if 1 in shape and np.prod(shape) <= 32:
                target = [4 if size == 1 else size for size in shape]
                text = f"tt.broadcast {a}"
            case 2 if len(shape) > 1:
                order = self.draw(st.permutations(range(len(shape))))
                target = [shape[i] for i in order]
                text = f"tt.trans {a} {{order = {list(order)}}}"
            case 3:
                target = self.draw(st.sampled_from(_factorings(int(np.prod(shape)))))
                text = f"tt.reshape {a}"
            case 4 if len(shape) < 3:
                b, _ = self.other(values, type_)
                join, name = f"tt.join {a}, {b}", self.tile([*shape, 2])
                values.append(self.emit(f"{join} : ({type_}, {type_}) -> {name}", name))
                return
            case _:
                return
        values.append(self.emit(f"{text} : {type_} -> {self.tile(target)}", self.tile(target)))

    def tile(self, shape: Sequence[int]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}xi32>"

    def comparison(self, values: list[tuple[str, str]]) -> None:
        a, type_ = self.pick(values)
        b, _ = self.other(values, type_)
        mask_type = type_.replace("i32", "i1")
        predicate = self.draw(st.sampled_from(_PREDICATES))
        text = (
            f'arith.cmpi {a}, {b} {{predicate = "{predicate}"}} : ({type_}, {type_}) -> {mask_type}'
        )
        mask, _ = self.emit(text, mask_type)
        c, _ = self.pick(values, type_)
        text = f"arith.select {mask}, {c}, {b} : ({mask_type}, {type_}, {type_}) -> {type_}"
        values.append(self.emit(text, type_))

    def shift(self, values: list[tuple[str, str]]) -> None:
        a, type_ = self.pick(values)
        amount = self.draw(st.integers(0, 5))
        shown = f"dense<{amount}>" if type_ != "i32" else amount
        b, _ = self.emit(f"arith.constant {shown} : {type_}", type_)
        op = self.draw(st.sampled_from(["shli", "shrsi", "shrui"]))
        values.append(self.emit(f"arith.{op} {a}, {b} : {type_}", type_))

    def pointer(self, values: list[tuple[str, str]]) -> None:
        a, type_ = self.pick(values)
        wide = type_.replace("i32", "i64")
        pointers = type_.replace("i32", "!tt.ptr<f32>")
        offset, _ = self.emit(f"arith.extsi {a} : {type_} -> {wide}", wide)
        base = "%p"
        if type_ != "i32":
            base, _ = self.emit(f"tt.splat %p : !tt.ptr<f32> -> {pointers}", pointers)
        moved, _ = self.emit(
            f"tt.addptr {base}, {offset} : ({pointers}, {wide}) -> {pointers}", pointers
        )
        b, _ = self.other(values, type_)
        self.emit(f"tt.addptr {moved}, {b} : ({pointers}, {type_}) -> {pointers}", pointers)
        address, _ = self.emit(f"tt.ptr_to_int {moved} : {pointers} -> {wide}", wide)
        self.emit(f"arith.trunci {address} : {wide} -> {type_}", type_)

    def loop(self, values: list[tuple[str, str]], depth: int) -> None:
        carried = [self.pick(values) for _ in range(2)]
        lower, upper, step = (
            self.emit(f"arith.constant {number} : i32", "i32")[0]
            for number in (self.draw(st.sampled_from([0, 4, 3])), self.draw(st.integers(0, 20)),
                           self.draw(st.sampled_from([1, 2, 4, 8])))
        )  # fmt: skip
        names = [f"%v{self.count + i}" for i in range(5)]
        self.count += 5
        types = ", ".join(type_ for _, type_ in carried)
        inits = ", ".join(
            f"{name} = {init}" for name, (init, _) in zip(names[3:], carried, strict=True)
        )
        self.lines.append(
            f"{self.indent}{names[0]}, {names[1]} = scf.for {names[2]} = {lower} to {upper} "
            f"step {step} iter_args({inits}) -> ({types}) : i32 {{"
        )
        inner = [*values, (names[2], "i32")]
        inner += [(name, type_) for name, (_, type_) in zip(names[3:], carried, strict=True)]
        yielded = self.inside(inner, [type_ for _, type_ in carried], depth)
        self.lines.append(f"{self.indent}  scf.yield {yielded} : {types}")
        self.lines.append(f"{self.indent}}}")
        values += [(name, type_) for name, (_, type_) in zip(names, carried, strict=False)]

    def branch(self, values: list[tuple[str, str]], depth: int) -> None:
        a, _ = self.pick(values, "i32")
        zero, _ = self.emit("arith.constant 4 : i32", "i32")
        condition, _ = self.emit(
            f'arith.cmpi {a}, {zero} {{predicate = "sgt"}} : (i32, i32) -> i1', "i1"
        )
        type_ = self.pick(values)[1]
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{self.indent}{name} = scf.if {condition} -> ({type_}) {{")
        for end in ("} else {", "}"):
            yielded = self.inside(list(values), [type_], depth)
            self.lines.append(f"{self.indent}  scf.yield {yielded} : {type_}")
            self.lines.append(f"{self.indent}{end}")
        values.append((name, type_))

    def inside(self, values: list[tuple[str, str]], types: Sequence[str], depth: int) -> str:
        self.indent += "  "
        self.block(values, self.draw(st.integers(0, 4)), depth + 1)
        picked = ", ".join(self.pick(values, type_)[0] for type_ in types)
        self.indent = self.indent[2:]
        return picked


def _factorings(size: int) -> list[tuple[int, ...]]:
    splits = [1 << i for i in range(size.bit_length())]
    return [(size,), *[(a, size // a) for a in splits],
            *[(a, b, size // a // b) for a in splits for b in splits if a * b <= size]]  # fmt: skip


class Machine:
    """Runs one program and checks what is claimed of each value it computes.

    Args:
        claims: the facts by value.
        may_wrap: whether arithmetic wraps, and only aligned runs are checked; else a program
            that wraps is rejected.
    """

    def __init__(self, claims: Mapping[Value, AxisInfo], may_wrap: bool) -> None:
        self.claims = claims
        self.may_wrap = may_wrap
        self.values: dict[Value, Any] = {}

    def bind(self, value: Value, number: Any) -> None:
        array = np.empty(extents(value.type), dtype=object)
        array[...] = number
        self.values[value] = array
        check_claim(value, array, self.claims[value], self.may_wrap)

    def run(self, block: Block) -> list[Any]:
        for op in block.operations:
            if op.name in ("scf.yield", "tt.return"):
                return [self.values[v] for v in op.operands]
            for result, number in zip(op.results, self.step(op), strict=True):
                self.bind(result, number)
        return []

    def step(self, op: Operation) -> list[Any]:
        operands = [self.values[v] for v in op.operands]
        match op.name:
            case "scf.for":
                return self.loop(op, operands)
            case "scf.if":
                return self.run(op.regions[0 if operands[0].item() else 1].block)
            case "tt.get_program_id":
                return [5]
            case "arith.constant":
                return [int(op.attributes["value"])]
            case "tt.make_range":
                return [np.arange(op.attributes["start"], op.attributes["end"]).astype(object)]
            case "tt.expand_dims":
                return [np.expand_dims(operands[0], op.attributes["axis"])]
            case "tt.splat" | "tt.broadcast" | "ttg.convert_layout" | "tt.hint":
                return [operands[0]]
            case "tt.trans":
                return [operands[0].transpose(op.attributes["order"])]
            case "tt.reshape":
                return [operands[0].reshape(extents(op.result.type))]
            case "tt.join":
                return [np.stack(operands, -1)]
            case "arith.select":
                return [np.where(operands[0] != 0, operands[1], operands[2])]
            case "arith.extsi" | "tt.ptr_to_int":
                return [operands[0]]
            case "arith.trunci":
                return [_wrap(operands[0], 32)]
            case "tt.addptr":
                return [operands[0] + operands[1] * unit_of(op.result.type)]
            case "arith.cmpi":
                return [self.each(op, _compare, *operands)]
            case _:
                return [self.each(op, _arithmetic, *operands)]

    def each(self, op: Operation, fn: Callable[..., int], a: Any, b: Any) -> Any:
        bits = element_of(op.operands[0].type).bits
        result = np.empty(a.shape, dtype=object)
        for place in np.ndindex(a.shape):
            exact = fn(op, a[place], b[place], bits, self.may_wrap)
            wrapped = _wrap(exact, bits)
            if wrapped != exact and not self.may_wrap and op.name != "arith.cmpi":
                raise Rejected
            result[place] = wrapped
        return result

    def loop(self, op: Operation, operands: Sequence[Any]) -> list[Any]:
        lower, upper, step = (operand.item() for operand in operands[:3])
        carried = list(operands[3:])
        block = op.regions[0].block
        for position in range(lower, upper, step):
            for argument, number in zip(block.arguments, [position, *carried], strict=True):
                self.bind(argument, number)
            carried = self.run(block)
        return carried


def _wrap(number: Any, bits: int) -> Any:
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _compare(op: Operation, a: int, b: int, bits: int, may_wrap: bool) -> int:
    predicate = str(op.attributes["predicate"])
    if predicate[0] == "u":
        a, b = a % (1 << bits), b % (1 << bits)
    ordered = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    return int(ordered[predicate if predicate in ordered else predicate[1:]])


def _arithmetic(op: Operation, a: int, b: int, bits: int, may_wrap: bool) -> int:
    name = op.name.removeprefix("arith.")
    if name[-2:] == "ui":
        a, b = a % (1 << bits), b % (1 << bits)
    if name[:3] in ("div", "rem"):
        if b <= 0 or (may_wrap and name[-2:] == "si"):
            raise Rejected
        quotient = abs(a) // b * (1 if a >= 0 else -1)
        result = quotient if name[:3] == "div" else a - quotient * b
        return _wrap(result, bits) if name[-2:] == "ui" else result
    match name:
        case "addi":
            return a + b
        case "subi":
            return a - b
        case "muli":
            return a * b
        case "andi":
            return a & b
        case "ori":
            return a | b
        case "xori":
            return a ^ b
        case "minsi":
            return min(a, b)
        case "maxsi":
            return max(a, b)
        case "minui":
            return _wrap(min(a, b), bits)
        case "maxui":
            return _wrap(max(a, b), bits)
        case "shli":
            return a << b
        case "shrsi":
            return a >> b
        case "shrui":
            return _wrap((a % (1 << bits)) >> b, bits)
    raise AssertionError(name)


def check_claim(value: Value, array: Any, info: AxisInfo, may_wrap: bool = False) -> None:
    """Fail unless every fact of `info` holds of `array`."""
    unit, shape = unit_of(value.type), extents(value.type)
    assert array.shape == shape
    for facts in (info.contiguity, info.divisibility, info.constancy):
        assert len(facts) == len(shape)
    if info.constant is not None:
        assert (array == info.constant).all(), (value, info)
    if info.non_negative and not may_wrap:
        assert (array >= 0).all(), (value, info)
    for axis, extent in enumerate(shape):
        run, same = info.contiguity[axis], info.constancy[axis]
        assert run <= extent
        assert same <= extent
        assert extent % run == extent % same == 0
        lines = np.moveaxis(array, axis, -1)
        assert (lines[..., ::run] % info.divisibility[axis] == 0).all(), (value, axis, info, array)
        checked = info.run(axis, unit) if may_wrap else run
        groups = lines.reshape(*lines.shape[:-1], extent // checked, checked)
        steps = groups - groups[..., :1]
        assert (steps == np.arange(checked) * unit).all(), (value, axis, info, array)
        groups = lines.reshape(*lines.shape[:-1], extent // same, same)
        assert (groups == groups[..., :1]).all(), (value, axis, info, array)
    assert shape_of(value.type) == shape or shape == (1,)
