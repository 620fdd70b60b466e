"""A naive Tile IR machine: one program at a time, every element dense, integers as Python ints.

It shares no code with the interpreter under test. Memory is a byte copy of each storage, taken
when the reference is made; pointers are (parameter, byte address) pairs. Accesses outside the
tensor as passed are counted and left undone, those between its elements counted and done.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter

import numpy as np
import torch

FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
INTEGERS = {1: torch.uint8, 8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_CMPF = {
    "oeq": torch.eq,
    "olt": torch.lt,
    "ole": torch.le,
    "ogt": torch.gt,
    "oge": torch.ge,
    "une": torch.ne,
    "one": lambda a, b: (a < b) | (a > b),
    "ord": lambda a, b: ~(a.isnan() | b.isnan()),
    "uno": lambda a, b: a.isnan() | b.isnan(),
}
_FLOAT_BINARY = {
    "arith.addf": torch.add,
    "arith.subf": torch.sub,
    "arith.mulf": torch.mul,
    "arith.divf": torch.div,
    "tt.precise_divf": torch.div,
    "arith.maxnumf": torch.fmax,
    "arith.minnumf": torch.fmin,
    "arith.maximumf": torch.maximum,
    "arith.minimumf": torch.minimum,
}
_FLOAT_UNARY = {
    "arith.negf": torch.neg,
    "math.absf": torch.abs,
    "math.floor": torch.floor,
    "math.ceil": torch.ceil,
    "math.sqrt": torch.sqrt,
    "math.exp": torch.exp,
    "math.exp2": torch.exp2,
    "math.log": torch.log,
}


class Pointers:
    """Byte addresses and the parameter each came from (None: from an integer)."""

    def __init__(self, address, owner, size):
        self.address, self.owner, self.size = address, owner, size


class Descriptor:
    def __init__(self, base, shape, strides, padding):
        self.base, self.shape, self.strides, self.padding = base, shape, strides, padding


class Memory:
    """Copies of the storages behind the tensors, and which bytes start a legal element."""

    def __init__(self, tensors):
        self.blocks = {}
        self.legal = {}
        self.hull = {}
        for place, tensor in tensors.items():
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            if start not in self.blocks:
                data = torch.empty(0, dtype=torch.uint8).set_(storage).clone()
                self.blocks[start] = data.numpy().tobytes()
                self.blocks[start] = bytearray(self.blocks[start])
            offsets = np.zeros((), dtype=np.int64)
            for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
                offsets = np.add.outer(offsets, np.arange(extent) * stride)
            elements = {int(v) for v in np.unique(offsets)}
            size = tensor.element_size()
            if elements and 0 in [
                s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1
            ]:
                # An expanded tensor: all from its first element on.
                elements = set(range(storage.nbytes() // size - tensor.storage_offset()))
            self.legal[place] = (tensor.data_ptr(), size, elements)
            self.hull[place] = 1 + max(elements) if elements else 0
        self.starts = sorted(self.blocks)

    def find(self, address):
        """The storage that holds `address`, and the place in it."""
        place = bisect.bisect_right(self.starts, address) - 1
        start = self.starts[place]
        return self.blocks[start], address - start

    def check(self, owner, address, size):
        """'ok', 'between' or 'outside' for an access of `size` bytes."""
        owners = [owner] if owner is not None else list(self.legal)
        verdict = "outside"
        for place in owners:
            base, own_size, elements = self.legal[place]
            first, last = (address - base) // own_size, (address + size - 1 - base) // own_size
            if first in elements and last in elements:
                return "ok"
            if 0 <= first and last < self.hull[place]:
                verdict = "between"
        return verdict


class Reference:
    """Runs `module` on copies of `values` for every program of `grid`."""

    def __init__(self, module, values, grid, names):
        self.module, self.grid, self.names = module, grid, names
        tensors = {}
        for place, value in enumerate(values):
            tensor = getattr(value, "base", value)
            if isinstance(value, torch.Tensor):
                tensors[place] = value.detach()
            elif isinstance(tensor, torch.Tensor):
                tensors[place] = tensor.detach()
        self.memory = Memory(tensors)
        self.values = values
        self.faults = Counter()
        self.first = {}
        self.pid = (0, 0, 0)

    def run(self):
        x, y, z = self.grid
        block = self.module.function.regions[0].block
        for linear in range(x * y * z):
            self.pid = (linear % x, linear // x % y, linear // (x * y))
            environment = {}
            for place, (argument, value) in enumerate(
                zip(block.arguments, self.values, strict=True)
            ):
                environment[argument] = self.argument(argument.type, value, place)
            self.block(block, environment)

    def argument(self, type_, value, place):
        name = type(type_).__name__
        if name == "PointerType":
            return self.pointer_argument(value, place, max(1, type_.pointee.bits // 8))
        if name == "DescriptorType":
            rank = len(type_.block.shape)
            base = self.pointer_argument(value.base, place, type_.block.element.bits // 8)
            shape = [int(v) for v in self.values[place + 1 : place + 1 + rank]]
            strides = [int(v) for v in self.values[place + 1 + rank : place + 1 + 2 * rank]]
            return Descriptor(base, shape, strides, getattr(value, "padding", "zero"))
        if type_.is_integer:
            return objects(wrap(int(value), type_.bits))
        return torch.tensor(float(value), dtype=FLOATS[type_.name])

    def pointer_argument(self, value, place, size):
        address = 0 if value is None else value.data_ptr()
        return Pointers(objects(address), objects(place), size)

    def block(self, block, environment):
        for op in block.operations:
            operands = [environment[value] for value in op.operands]
            if op.name in ("scf.yield", "tt.reduce.return", "scf.condition", "tt.return"):
                return operands
            results = self.execute(op, operands, environment)
            for value, result in zip(op.results, results, strict=True):
                environment[value] = result
        return []

    def region(self, region, arguments, environment):
        inner = dict(environment)
        inner.update(zip(region.block.arguments, arguments, strict=True))
        return self.block(region.block, inner)

    # -- ops --------------------------------------------------------------------------------

    def execute(self, op, operands, environment):
        method = getattr(self, "op_" + op.name.replace(".", "_"), None)
        if method is not None:
            if op.regions:
                return method(op, operands, environment)
            return method(op, *operands)
        if op.name in _FLOAT_BINARY:
            return [_FLOAT_BINARY[op.name](*operands)]
        if op.name in _FLOAT_UNARY:
            return [_FLOAT_UNARY[op.name](*operands)]
        kind = op.name.removeprefix("arith.")
        if op.name.startswith("arith.") and kind in _INTEGER:
            bits = element(op.operands[0]).bits
            fn = np.frompyfunc(lambda a, b: wrap(_INTEGER[kind](a, b, bits), bits), 2, 1)
            return [array(fn(*operands))]
        raise NotImplementedError(op.name)

    def op_arith_constant(self, op):
        value, type_ = op.attributes["value"], element(op.result)
        if type_.is_integer:
            return [objects(wrap(int(value), type_.bits), shape(op.result))]
        return [torch.full(shape(op.result), value, dtype=FLOATS[type_.name])]

    def op_arith_cmpi(self, op, a, b):
        bits, predicate = element(op.operands[0]).bits, op.attributes["predicate"]

        def compare(x, y):
            if predicate[0] == "u":
                x, y = x & ((1 << bits) - 1), y & ((1 << bits) - 1)
            elif bits == 1:
                x, y = -x, -y
            name = predicate[1:] if predicate not in ("eq", "ne") else predicate
            return int(
                {
                    "eq": x == y,
                    "ne": x != y,
                    "lt": x < y,
                    "le": x <= y,
                    "gt": x > y,
                    "ge": x >= y,
                }[name]
            )

        return [array(np.frompyfunc(compare, 2, 1)(a, b))]

    def op_arith_cmpf(self, op, a, b):
        return [from_torch(_CMPF[op.attributes["predicate"]](a, b))]

    def op_arith_select(self, op, condition, a, b):
        if condition.ndim == 0:
            return [a if condition.item() else b]
        return [choose(condition, a, b)]

    def op_arith_extsi(self, op, value):
        if element(op.operands[0]).bits == 1:
            return [array(-value)]
        return [value]

    def op_arith_extui(self, op, value):
        return [array(value & ((1 << element(op.operands[0]).bits) - 1))]

    def op_arith_trunci(self, op, value):
        return [wrapped(value, element(op.result).bits)]

    def op_arith_sitofp(self, op, value):
        return [to_float(value, element(op.result).name)]

    def op_arith_uitofp(self, op, value):
        mask = (1 << element(op.operands[0]).bits) - 1
        return [to_float(array(value & mask), element(op.result).name)]

    def op_arith_fptosi(self, op, value):
        bits = max(16, element(op.result).bits)
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return [saturated(value, low, high, element(op.result).bits)]

    def op_arith_fptoui(self, op, value):
        bits = max(16, element(op.result).bits)
        return [saturated(value, 0, (1 << bits) - 1, element(op.result).bits)]

    def op_arith_extf(self, op, value):
        return [value.to(FLOATS[element(op.result).name])]

    op_arith_truncf = op_arith_extf

    def op_tt_fp_to_fp(self, op, value):
        source, target = element(op.operands[0]).name, element(op.result).name
        assert op.attributes.get("rounding", "rtne") == "rtne"
        limit = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}.get(target)
        wide = value.float() if source != "f64" else value
        return [(wide if limit is None else wide.clamp(-limit, limit)).to(FLOATS[target])]

    def op_tt_bitcast(self, op, value):
        if isinstance(value, Pointers):
            return [
                Pointers(value.address, value.owner, max(1, element(op.result).pointee.bits // 8))
            ]
        source, target = element(op.operands[0]), element(op.result)
        bits = (
            value
            if source.is_integer
            else from_torch(value.contiguous().view(INTEGERS[source.bits]))
        )
        if target.is_integer:
            return [bits]
        return [to_torch(bits, INTEGERS[target.bits]).view(FLOATS[target.name])]

    def op_math_absi(self, op, value):
        return [wrapped(np.abs(value), element(op.result).bits)]

    def op_tt_ptr_to_int(self, op, value):
        return [value.address]

    def op_tt_int_to_ptr(self, op, value):
        owner = np.full(value.shape, None, dtype=object)
        return [Pointers(value, owner, max(1, element(op.result).pointee.bits // 8))]

    def op_tt_get_program_id(self, op):
        return [objects(self.pid[op.attributes["axis"]])]

    def op_tt_get_num_programs(self, op):
        return [objects(self.grid[op.attributes["axis"]])]

    def op_tt_make_range(self, op):
        return [np.array(range(op.attributes["start"], op.attributes["end"]), dtype=object)]

    def op_tt_splat(self, op, value):
        return [
            each(
                value,
                lambda t: (
                    np.full(shape(op.result), t.item(), dtype=object)
                    if isinstance(t, np.ndarray)
                    else t.expand(shape(op.result))
                ),
            )
        ]

    def op_tt_expand_dims(self, op, value):
        axis = op.attributes["axis"]
        return [
            each(
                value,
                lambda t: (
                    np.expand_dims(t, axis) if isinstance(t, np.ndarray) else t.unsqueeze(axis)
                ),
            )
        ]

    def op_tt_broadcast(self, op, value):
        return [
            each(
                value,
                lambda t: (
                    np.broadcast_to(t, shape(op.result))
                    if isinstance(t, np.ndarray)
                    else t.expand(shape(op.result))
                ),
            )
        ]

    def op_tt_reshape(self, op, value):
        return [each(value, lambda t: t.reshape(shape(op.result)))]

    def op_tt_trans(self, op, value):
        order = op.attributes["order"]
        return [
            each(
                value,
                lambda t: np.transpose(t, order) if isinstance(t, np.ndarray) else t.permute(order),
            )
        ]

    def op_tt_join(self, op, a, b):
        if isinstance(a, torch.Tensor):
            return [torch.stack([a, b], -1)]
        return [np.stack([a, b], -1)]

    def op_tt_split(self, op, value):
        return [value[..., 0], value[..., 1]]

    def op_tt_cat(self, op, a, b):
        if isinstance(a, torch.Tensor):
            return [torch.cat([a, b])]
        return [np.concatenate([a, b])]

    def op_tt_unsplat(self, op, value):
        return [value.reshape(())]

    def op_tt_hint(self, op, value):
        return [value]

    def op_tt_assume(self, op, value):
        return []

    def op_tt_barrier(self, op):
        return []

    def op_tt_dot(self, op, a, b, acc):
        product = torch.matmul(as_double(a), as_double(b))
        if isinstance(acc, np.ndarray):
            total = product.to(torch.int64).numpy().astype(object) + acc
            return [wrapped(total, 32)]
        return [(product + acc.double()).to(acc.dtype)]

    # -- memory -----------------------------------------------------------------------------

    def op_tt_addptr(self, op, pointer, offset):
        return [
            Pointers(array(pointer.address + offset * pointer.size), pointer.owner, pointer.size)
        ]

    def report(self, op, kind, owner, lane, address):
        name = self.names[owner] if owner is not None else None
        self.faults[kind, op.id, name] += 1
        if (kind, op.id, name) not in self.first:
            index = address
            if owner is not None:
                base, size, _ = self.memory.legal[owner]
                index = (address - base) // size
            self.first[kind, op.id, name] = (self.pid, lane, index)

    def allowed(self, op, kind, pointer, lane, size):
        """Whether the access may be done; reports it when it is not legal."""
        owner, address = pointer.owner[lane], pointer.address[lane]
        verdict = self.memory.check(owner, address, size)
        if verdict == "ok":
            return True
        if verdict == "between":
            self.report(op, "between-elements", owner, lane, address)
            return True
        self.report(op, kind, owner, lane, address)
        return False

    def note_read(self, lane, address, extents):
        """Called for each load; subclasses look at it."""

    def note_write(self, lane, address, extents, value):
        """Called for each store; subclasses look at it."""

    def op_tt_load(self, op, pointer, mask=None, other=None):
        return [self.load(op, op.result, pointer, mask, other)]

    def load(self, op, result, pointer, mask, other):
        type_ = element(result)
        size = max(1, type_.bits // 8)
        extents = shape(result)
        is_pointer = type(type_).__name__ == "PointerType"
        torch_type = torch.int64 if is_pointer else dtype_of(type_)
        out = np.zeros(extents, dtype=object)
        fill = np.zeros(extents, dtype=object)
        if other is not None:
            raw = other.address if isinstance(other, Pointers) else other
            fill = bits_of(raw, type_) if not is_pointer else raw
        for lane in np.ndindex(*extents):
            on = mask is None or mask[lane]
            if on and self.allowed(op, "oob-load", pointer, lane, size):
                self.note_read(lane, pointer.address[lane], extents)
                block, at = self.memory.find(pointer.address[lane])
                out[lane] = int.from_bytes(block[at : at + size], "little", signed=True)
            else:
                out[lane] = fill[lane]
        if is_pointer:
            owner = np.full(extents, None, dtype=object)
            return Pointers(out, owner, max(1, type_.pointee.bits // 8))
        return from_bits(out, type_, torch_type)

    def op_tt_store(self, op, pointer, value, mask=None):
        self.store(op, pointer, value, element(op.operands[1]), mask)
        return []

    def store(self, op, pointer, value, type_, mask):
        size = max(1, type_.bits // 8)
        bits = bits_of(value, type_)
        for lane in np.ndindex(*bits.shape):
            if mask is None or mask[lane]:
                if self.allowed(op, "oob-store", pointer, lane, size):
                    self.note_write(lane, pointer.address[lane], bits.shape, bits[lane])
                    self.put(pointer.address[lane], bits[lane], size)

    def put(self, address, value, size):
        block, at = self.memory.find(address)
        block[at : at + size] = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")

    def op_tt_make_tensor_descriptor(self, op, base, *rest):
        rank = len(rest) // 2
        numbers = [int(v.item()) for v in rest]
        return [
            Descriptor(base, numbers[:rank], numbers[rank:], op.attributes.get("padding", "zero"))
        ]

    def described(self, descriptor, extents, offsets):
        starts = [int(v.item()) for v in offsets]
        address = np.zeros(extents, dtype=object)
        mask = np.zeros(extents, dtype=object)
        base = descriptor.base
        for lane in np.ndindex(*extents):
            place = [s + i for s, i in zip(starts, lane, strict=True)]
            mask[lane] = int(all(0 <= p < e for p, e in zip(place, descriptor.shape, strict=True)))
            offset = sum(p * s for p, s in zip(place, descriptor.strides, strict=True))
            address[lane] = base.address.item() + offset * base.size
        owner = np.full(extents, base.owner.item(), dtype=object)
        return Pointers(address, owner, base.size), mask

    def op_tt_descriptor_load(self, op, descriptor, *offsets):
        pointer, mask = self.described(descriptor, shape(op.result), offsets)
        other = None
        if descriptor.padding == "nan":
            other = torch.full(shape(op.result), math.nan, dtype=dtype_of(element(op.result)))
        return [self.load(op, op.result, pointer, mask, other)]

    def op_tt_descriptor_store(self, op, descriptor, value, *offsets):
        pointer, mask = self.described(descriptor, shape(op.operands[1]), offsets)
        self.store(op, pointer, value, element(op.operands[1]), mask)
        return []

    def op_tt_atomic_rmw(self, op, pointer, value, mask=None):
        kind, type_ = op.attributes["kind"], element(op.result)
        return [
            self.atomic(op, pointer, mask, lambda old, new: rmw(kind, type_, old, new), [value])
        ]

    def op_tt_atomic_cas(self, op, pointer, compare, value):
        def swap(old, expected, new):
            return new if old == expected else old

        return [self.atomic(op, pointer, None, swap, [compare, value])]

    def atomic(self, op, pointer, mask, update, operands):
        type_ = element(op.result)
        size = type_.bits // 8
        bits = [bits_of(value, type_) for value in operands]
        out = np.zeros(shape(op.result), dtype=object)
        for lane in np.ndindex(*out.shape):
            if mask is not None and not mask[lane]:
                continue
            if not self.allowed(op, "oob-atomic", pointer, lane, size):
                continue
            block, at = self.memory.find(pointer.address[lane])
            old = int.from_bytes(block[at : at + size], "little", signed=True)
            out[lane] = old
            self.put(pointer.address[lane], update(old, *(b[lane] for b in bits)), size)
        return from_bits(out, type_, dtype_of(type_))

    def op_tt_assert(self, op, condition, mask=None):
        for lane in np.ndindex(*condition.shape):
            if not condition[lane] and (mask is None or mask[lane]):
                self.faults["assert", op.id, None] += 1
                self.first.setdefault(("assert", op.id, None), (self.pid, lane, None))
        return []

    # -- regions ----------------------------------------------------------------------------

    def op_scf_if(self, op, operands, environment):
        return self.region(op.regions[0 if operands[0].item() else 1], (), environment)

    def op_scf_for(self, op, operands, environment):
        lower, upper, step, *carried = operands
        position = lower.item()
        while position < upper.item():
            carried = self.region(op.regions[0], [objects(position), *carried], environment)
            position += step.item()
        return carried

    def op_scf_while(self, op, operands, environment):
        carried = operands
        while True:
            condition, *forwarded = self.region(op.regions[0], carried, environment)
            if not condition.item():
                return forwarded
            carried = self.region(op.regions[1], forwarded, environment)

    def op_tt_reduce(self, op, operands, environment):
        axis = op.attributes["axis"]
        total = [take(v, axis, 0) for v in operands]
        for place in range(1, shape(op.operands[0])[axis]):
            part = [take(v, axis, place) for v in operands]
            total = self.region(op.regions[0], [*total, *part], environment)
        return total

    def op_tt_scan(self, op, operands, environment):
        axis, reverse = op.attributes["axis"], op.attributes.get("reverse", False)
        places = range(shape(op.operands[0])[axis])
        places = reversed(places) if reverse else places
        total, outs = None, []
        for place in places:
            part = [take(v, axis, place) for v in operands]
            total = (
                part if total is None else self.region(op.regions[0], [*total, *part], environment)
            )
            outs.append(total)
        if reverse:
            outs.reverse()
        results = []
        for column in zip(*outs, strict=True):
            if isinstance(column[0], torch.Tensor):
                results.append(torch.stack(column, axis))
            else:
                results.append(np.stack([np.asarray(c, dtype=object) for c in column], axis))
        return results


# -- elements -------------------------------------------------------------------------------


def element(value):
    type_ = value.type
    return getattr(type_, "element", type_)


def shape(value):
    return getattr(value.type, "shape", ())


def wrap(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def array(value):
    return value if isinstance(value, np.ndarray) else objects(value)


def objects(value, extents=()):
    out = np.empty(extents, dtype=object)
    out[...] = value
    return out


def wrapped(value, bits):
    return array(np.frompyfunc(lambda v: wrap(v, bits), 1, 1)(value))


def from_torch(value):
    out = np.empty(tuple(value.shape), dtype=object)
    flat = out.reshape(-1)
    for place, number in enumerate(value.reshape(-1).tolist()):
        flat[place] = int(number)
    return out


def to_torch(value, kind):
    return torch.tensor([int(v) for v in value.reshape(-1)], dtype=kind).reshape(value.shape)


def to_float(value, name):
    """Integers rounded once: by Python to double, or exactly for what a double cannot hold."""
    kind = FLOATS[name]
    out = torch.empty(value.size, dtype=kind)
    for place, number in enumerate(value.reshape(-1)):
        if name == "f64":
            out[place] = float(number)
        else:
            out[place] = odd_double(int(number))
    return out.reshape(value.shape)


def odd_double(number):
    """`number` rounded to odd at 53 bits, so that a second rounding to fewer is right."""
    magnitude, extra = abs(number), max(0, abs(number).bit_length() - 53)
    kept = magnitude >> extra
    if extra and magnitude & ((1 << extra) - 1):
        kept |= 1
    return math.copysign(float(kept << extra), number)


def saturated(value, low, high, bits):
    out = np.empty(tuple(value.shape), dtype=object)
    flat = out.reshape(-1)
    for place, number in enumerate(value.double().reshape(-1).tolist()):
        if math.isnan(number):
            wide = value.dtype is torch.float64 or bits == 64
            whole = 1 << (max(16, bits) - 1) if wide else 0
        elif math.isinf(number):
            whole = low if number < 0 else high
        else:
            whole = min(max(math.trunc(number), low), high)
        flat[place] = wrap(whole, bits)
    return out


def dtype_of(type_):
    return FLOATS[type_.name] if type_.name in FLOATS else INTEGERS[type_.bits]


def bits_of(value, type_):
    if isinstance(value, Pointers):
        return value.address
    if isinstance(value, np.ndarray):
        return value
    return from_torch(value.contiguous().view(INTEGERS[type_.bits]))


def from_bits(bits, type_, kind):
    if type_.is_integer:
        return bits if type_.bits > 1 else array(np.frompyfunc(lambda v: int(v != 0), 1, 1)(bits))
    return to_torch(bits, INTEGERS[type_.bits]).view(kind)


def as_double(value):
    return value.double() if isinstance(value, torch.Tensor) else to_torch(value, torch.float64)


def each(value, change):
    if isinstance(value, Pointers):
        return Pointers(change(value.address), change(value.owner), value.size)
    return change(value)


def choose(condition, a, b):
    if isinstance(a, Pointers):
        return Pointers(
            np.where(condition.astype(bool), a.address, b.address),
            np.where(condition.astype(bool), a.owner, b.owner),
            a.size,
        )
    if isinstance(a, torch.Tensor):
        return torch.where(to_torch(condition, torch.bool), a, b)
    return np.where(condition.astype(bool), a, b)


def take(value, axis, place):
    if isinstance(value, torch.Tensor):
        return value.select(axis, place)
    return np.asarray(np.take(value, place, axis), dtype=object)


def rmw(kind, type_, old, new):
    if kind in ("fadd", "fmax", "fmin"):
        a = to_torch(objects(old), INTEGERS[type_.bits]).view(FLOATS[type_.name])
        b = to_torch(objects(new), INTEGERS[type_.bits]).view(FLOATS[type_.name])
        fn = {"fadd": torch.add, "fmax": torch.fmax, "fmin": torch.fmin}[kind]
        return int(fn(a, b).view(INTEGERS[type_.bits]).item())
    mask = (1 << type_.bits) - 1
    return {
        "add": lambda: old + new,
        "max": lambda: max(old, new),
        "min": lambda: min(old, new),
        "umax": lambda: max(old & mask, new & mask),
        "umin": lambda: min(old & mask, new & mask),
        "and": lambda: old & new,
        "or": lambda: old | new,
        "xor": lambda: old ^ new,
        "xchg": lambda: new,
    }[kind]()


def _quotient(a, b):
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _u(value, bits):
    return value & ((1 << bits) - 1)


_INTEGER = {
    "addi": lambda a, b, n: a + b,
    "subi": lambda a, b, n: a - b,
    "muli": lambda a, b, n: a * b,
    "divsi": lambda a, b, n: _quotient(a, b),
    "remsi": lambda a, b, n: a - _quotient(a, b) * b,
    "divui": lambda a, b, n: _quotient(_u(a, n), _u(b, n)),
    "remui": lambda a, b, n: _u(a, n) - _quotient(_u(a, n), _u(b, n)) * _u(b, n),
    "andi": lambda a, b, n: a & b,
    "ori": lambda a, b, n: a | b,
    "xori": lambda a, b, n: a ^ b,
    "shli": lambda a, b, n: a << b if 0 <= b < n else 0,
    "shrsi": lambda a, b, n: a >> (b if 0 <= b < n else n - 1),
    "shrui": lambda a, b, n: _u(a, n) >> b if 0 <= b < n else 0,
    "minsi": lambda a, b, n: min(a, b),
    "maxsi": lambda a, b, n: max(a, b),
    "minui": lambda a, b, n: min(_u(a, n), _u(b, n)),
    "maxui": lambda a, b, n: max(_u(a, n), _u(b, n)),
    "mulhiui": lambda a, b, n: (_u(a, n) * _u(b, n)) >> n,
}
