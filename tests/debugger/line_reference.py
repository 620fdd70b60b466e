"""A kernel as plain Python, one program at a time: what its locals are at each line.

Nothing is compiled: the function's own bytecode runs, traced by Python, with a `tl` that computes
with torch. It shares no code with the front end, the interpreter or the debugger.
"""

import sys
from types import FunctionType, SimpleNamespace

import torch


class Scalar(int):
    """A program id or an integer that has tensor methods."""

    def to(self, dtype):
        return self


class Pointer:
    """Elements of a storage, by their offsets from a tensor's first element."""

    def __init__(self, tensor, offsets=0):
        self.tensor = tensor
        self.offsets = torch.as_tensor(offsets, dtype=torch.int64)
        self.dtype = SimpleNamespace(element_ty=tensor.dtype)

    def __add__(self, other):
        return Pointer(self.tensor, self.offsets + other)

    def flat(self):
        storage = self.tensor.untyped_storage()
        flat = torch.empty(0, dtype=self.tensor.dtype)
        count = storage.nbytes() // self.tensor.element_size()
        return flat.set_(storage, 0, (count,), (1,)), self.tensor.storage_offset()


class Language:
    """The part of `tl` that the examples use."""

    float32, float16, int64 = torch.float32, torch.float16, torch.int64
    constexpr = int
    maximum, minimum, where = None, None, None

    def __init__(self, program, grid):
        self.program, self.grid = program, grid
        self.math = SimpleNamespace(exp2=torch.exp2)

    def program_id(self, axis):
        return Scalar(self.program[axis])

    def num_programs(self, axis):
        return self.grid[axis]

    range = staticmethod(range)
    exp, sqrt, abs = torch.exp, torch.sqrt, torch.abs

    @staticmethod
    def cdiv(a, b):
        return -(-a // b)

    @staticmethod
    def arange(low, high):
        return torch.arange(low, high)

    @staticmethod
    def zeros(shape, dtype):
        return torch.zeros(shape, dtype=dtype)

    @staticmethod
    def full(shape, value, dtype):
        return torch.full(shape, value, dtype=dtype)

    @staticmethod
    def sum(x, axis):
        return x.sum(axis)

    @staticmethod
    def max(x, axis):
        return x.amax(axis)

    @staticmethod
    def dot(a, b, acc=0):
        return a.float() @ b.float() + acc

    @staticmethod
    def load(pointer, mask=None, other=0.0):
        flat, first = pointer.flat()
        offsets = pointer.offsets
        if mask is None:
            return flat[offsets + first]
        keep = torch.as_tensor(mask).expand_as(offsets)
        values = flat[torch.where(keep, offsets, 0) + first]
        return torch.where(keep, values, torch.tensor(other, dtype=values.dtype))

    @staticmethod
    def store(pointer, value, mask=None):
        flat, first = pointer.flat()
        offsets = pointer.offsets
        keep = torch.ones_like(offsets, dtype=torch.bool)
        if mask is not None:
            keep = torch.as_tensor(mask).expand_as(offsets)
        value = torch.as_tensor(value).to(flat.dtype).expand_as(offsets)
        flat[offsets[keep] + first] = value[keep]


def _where(test, a, b):
    test = torch.as_tensor(test)
    if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
        return torch.where(test, float(a), float(b))
    like = a if isinstance(a, torch.Tensor) else b
    a, b = (torch.as_tensor(x, dtype=like.dtype) for x in (a, b))
    return torch.where(test, a, b)


def _extremum(function, python):
    def call(a, b):
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            return function(torch.as_tensor(a), torch.as_tensor(b))
        return Scalar(python(a, b))

    return staticmethod(call)


Language.where = staticmethod(_where)
Language.maximum = _extremum(torch.maximum, max)
Language.minimum = _extremum(torch.minimum, min)


def bare(function):
    """The Python function inside of decorators."""
    while not isinstance(function, FunctionType):
        function = function.fn
    return function


def lines_of(kernel, arguments, program, grid):
    """Run one program; gives (function, line, locals) at each line, in order.

    Args:
        kernel: the jit function, or what is around it.
        arguments: by name; tensors stand for pointers to them, and are written.
    """
    function = bare(kernel)
    codes, names = {}, {}

    def plain(python):
        if python.__code__ not in codes:
            codes[python.__code__] = python.__name__
            for name in python.__code__.co_names:
                value = python.__globals__.get(name)
                if hasattr(value, "kernel_source") or hasattr(value, "fn"):
                    names[name] = plain(bare(value))
        return FunctionType(python.__code__, names, python.__name__, python.__defaults__)

    names.update(function.__globals__)
    names["tl"] = Language(program, grid)
    run = plain(function)
    events = []

    def trace(frame, event, _):
        if frame.f_code not in codes:
            return None
        if event == "line":
            held = {
                name: Pointer(value.tensor, value.offsets.clone())
                if isinstance(value, Pointer)
                else value.clone()
                if isinstance(value, torch.Tensor)
                else value
                for name, value in frame.f_locals.items()
            }
            events.append((codes[frame.f_code], frame.f_lineno, held))
        return trace

    given = {
        name: Pointer(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    sys.settrace(trace)
    try:
        run(**given)
    finally:
        sys.settrace(None)
    return events


def is_close(want, got):
    """Whether a local and a variable of the debugger's are the same, up to rounding."""
    if isinstance(want, Pointer):
        offsets = got.offsets[0]
        return torch.equal(want.offsets.expand_as(offsets), offsets)
    got = torch.as_tensor(got).double()
    want = torch.as_tensor(want).double().expand_as(got)
    return torch.allclose(want, got, rtol=2e-3, atol=2e-3, equal_nan=True)
