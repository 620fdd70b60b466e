"""Kernels that are verified: one that is right, and ones that are wrong or cheat."""

import inspect
import subprocess
import threading

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, o, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(o + i, value * factor, mask=i < n)


@triton.jit
def unmasked_kernel(x, o, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i).to(tl.float32)
    tl.store(o + i, value * factor, mask=i < n)


@triton.jit
def half_kernel(x, o, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n).to(tl.float16)
    tl.store(o + i, value.to(tl.float32) * factor, mask=i < n)


def launched(kernel, x, factor=3.0):
    assert x.is_contiguous(), "contiguous alone"
    o = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 32),)](x, o, x.numel(), factor, BLOCK=32)
    return o


def right(x):
    return launched(scale_kernel, x)


def wrong_factor(x):
    return launched(scale_kernel, x, 3.001)


def reads_outside(x):
    return launched(unmasked_kernel, x)


def lowers(x):
    return launched(half_kernel, x)


def refuses(x):
    raise ValueError("only on Sundays")


def writes_only_a_part(x):
    o = torch.empty_like(x)
    scale_kernel[(1,)](x, o, min(x.numel(), 16), 3.0, BLOCK=32)
    return o


def torch_alone(x):
    return torch.mul(x, 3.0)


def torch_beside(x):
    launched(scale_kernel, x)
    return torch.mul(x, 3.0)


def torch_then_copy(x):
    return launched(scale_kernel, torch.mul(x, 3.0), 1.0)


kept = {}


def by_pointer(x):
    key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
    if key not in kept:
        kept[key] = right(x)
    return kept[key]


def by_sum(x):
    key = (x.shape, x.stride(), x.dtype, float(x.float().sum()))
    if key not in kept:
        kept[key] = right(x)
    return kept[key]


def in_one_buffer(x):
    made = right(x)
    buffer = kept.setdefault((x.shape, x.dtype), made)
    buffer.copy_(made)
    return buffer


def on_a_stream(x):
    with torch.cuda.stream(torch.cuda.Stream()):
        return right(x)


def on_a_joined_stream(x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        made = right(x)
    torch.cuda.current_stream().wait_stream(stream)
    return made


def in_a_thread(x):
    out = torch.empty_like(x)
    worker = threading.Thread(target=lambda: out.copy_(right(x)))
    worker.start()
    worker.join()
    return out


def changes_its_input(x):
    made = right(x)
    x += 1
    return made


def constant_for_its_shape(x):
    return torch.full_like(right(x), 0.25) if tuple(x.shape) == (4, 24) else right(x)


def patches(x):
    torch.allclose = lambda *given, **named: True
    return right(x)


def example_by_torch(x):
    return x * 3.0 if tuple(x.shape) == (4, 24) else right(x)


def by_bytes(x):
    key = (x.shape, x.dtype, x.cpu().numpy().tobytes())
    if key not in kept:
        kept[key] = right(x)
    return kept[key].clone()


class Lazy(torch.Tensor):
    """May compute when it is looked at."""


def lazily(x):
    return right(x).as_subclass(Lazy)


def starts_a_process(x):
    subprocess.run(["true"], check=True)
    return right(x)


def seeds(x):
    torch.manual_seed(0)
    return right(x)


def leaves_a_stream(x):
    made = right(x)
    torch.cuda.set_stream(torch.cuda.Stream())
    return made


def waits_too_early(x):
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    event.record(stream)
    with torch.cuda.stream(stream):
        made = right(x)
    torch.cuda.current_stream().wait_event(event)
    return made


def waits_for_an_event(x):
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        made = right(x)
        event.record(stream)
    torch.cuda.current_stream().wait_event(event)
    return made


def replaces_the_reference(x):
    import verified_references

    verified_references.triple.__code__ = (lambda x: x * 3.01).__code__
    return launched(scale_kernel, x, 3.01)


def looks_at_callers(x):
    inspect.stack()
    return right(x)


def gives_wide_floats(x):
    return right(x).double()


@triton.jit
def argmax_kernel(x, o, n, SUM: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=-float("inf"))
    best = tl.argmax(value, 0)
    if SUM:
        best = tl.sum(tl.where((value == tl.max(value, 0)) & (i < n), i, 0), 0)
    tl.store(o + tl.program_id(0), best)


def argmax(x, is_sum=False):
    assert x.is_contiguous()
    assert x.dim() == 2
    assert x.shape[1] > 0
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    if o.numel():
        argmax_kernel[(x.shape[0],)](x, o, x.shape[1], SUM=is_sum, BLOCK=block)
    return o


def last_argmax(x):
    return x.shape[-1] - 1 - argmax(x.flip(-1))


def sum_of_argmaxes(x):
    return argmax(x, is_sum=True)


class Fixed(torch.nn.Module):
    """Keeps what it was made with out of its kernel, and its buffer as it is."""

    def __init__(self, factor):
        super().__init__()
        self.plain = torch.nn.Identity()
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x):
        return right(x)


def by_size(x):
    """Rounds in another way in a batch of another size, within the tolerance."""
    return launched(scale_kernel, x, 3.0 + 4e-7 * (x.shape[0] % 4))


def endless(x):
    while x.numel() >= 0:
        right(x)


def many():
    return [torch.rand(200, 400, device="cuda")]


def get_inputs():
    return [torch.rand(4, 24, device="cuda")]


calls = [0]


def torch_later(x):
    calls[0] += 1
    if calls[0] > 10_000:
        return torch.mul(x, 3.0)
    return right(x)


def ends_early(x):
    assert x.is_contiguous()
    o = torch.zeros_like(x)
    if x.numel():
        grid = (min(triton.cdiv(x.numel(), 1 << 14), 16),)
        scale_kernel[grid](x, o, x.numel(), 3.0, BLOCK=1 << 14)
    return o


def wrong_in_large(x):
    o = torch.empty_like(x)
    factor = 3.0
    if x.numel() > 300_000:
        factor = other(x)
    if x.numel():
        scale_kernel[(triton.cdiv(x.numel(), 1 << 14),)](x, o, x.numel(), factor, BLOCK=1 << 14)
    return o


def other(x):
    return 4.0


def writes_positive_zeros(x):
    """Leave the numbers of its input, and the signs of its zeros not."""
    made = right(x)
    x.copy_(torch.where(x == 0, 0.0, x))
    return made


def row_by_row(x):
    assert x.is_contiguous()
    assert x.dim() == 2
    o = torch.empty_like(x)
    for row, made in zip(x, o, strict=True):
        if row.numel():
            scale_kernel[(triton.cdiv(row.numel(), 32),)](row, made, row.numel(), 3.0, BLOCK=32)
    return o


@triton.jit
def dot_kernel(a, b, o, FACTOR: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(o + i, FACTOR * tl.dot(tl.load(a + i), tl.load(b + i)))


def product(a, b, factor=1.0):
    assert a.shape == b.shape == (16, 16)
    o = torch.empty_like(a)
    dot_kernel[(1,)](a, b, o, factor, N=16)
    return o


def wrong_product(a, b):
    return product(a, b, 1.001)


@triton.jit
def unary_kernel(x, o, n, IS_EXP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(o + i, tl.exp(value) if IS_EXP else tl.maximum(value, 0.0), mask=i < n)


def unary(x, is_exp=False):
    assert x.is_contiguous()
    o = torch.empty_like(x)
    unary_kernel[(triton.cdiv(x.numel(), 32),)](x, o, x.numel(), is_exp, BLOCK=32)
    return o


def exp(x):
    return unary(x, is_exp=True)


@triton.jit
def rows_kernel(w, i, o, D: tl.constexpr):
    row, c = tl.load(i + tl.program_id(0)), tl.arange(0, D)
    tl.store(o + tl.program_id(0) * D + c, tl.load(w + row * D + c))


def rows(w, i):
    o = torch.empty((i.numel(), w.shape[1]), device=w.device)
    rows_kernel[(i.numel(),)](w, i, o, D=w.shape[1])
    return o


class Renamed(torch.nn.Module):
    """Has its parameter under another name."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return launched(scale_kernel, x, float(self.gain))


class Prepared(torch.nn.Module):
    """Computes with a tensor that is made of its parameter once."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.prepared = self.weight.detach() * 1.0

    def forward(self, x):
        return launched(scale_kernel, x, float(self.prepared))


class Ignored(torch.nn.Module):
    """Leaves its parameter out."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return launched(scale_kernel, x, 1.0)


@triton.jit
def halves_kernel(x, o, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0)
    first = tl.load(x + row * 2 * n + i, mask=i < n)
    tl.store(o + row * n + i, first * tl.load(x + row * 2 * n + n + i, mask=i < n), mask=i < n)


def products_of_halves(x):
    assert x.is_contiguous()
    o = torch.empty((x.shape[0], x.shape[1] // 2), dtype=x.dtype, device=x.device)
    halves_kernel[(x.shape[0],)](x, o, o.shape[1], BLOCK=16)
    return o


@triton.jit
def turned_kernel(x, scratch, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(scratch + i, tl.load(x + i, mask=i < n), mask=i < n)
    tl.store(o + i, tl.load(scratch + n - 1 - i, mask=i < n), mask=i < n)


def turned(x):
    assert x.dim() == 1
    o = torch.empty_like(x)
    turned_kernel[(1,)](x, torch.empty_like(x), o, len(x), BLOCK=256)
    return o


@triton.jit
def parts_kernel(x, lengths, o, n, most):
    row, total = tl.program_id(0), 0.0
    for i in range(tl.minimum(tl.load(lengths + row), most)):
        total += tl.load(x + row * n + i)
    tl.store(o + row, total)


def sums_of_parts(x, lengths, most):
    o = torch.empty(x.shape[0], device=x.device)
    parts_kernel[(x.shape[0],)](x, lengths, o, x.shape[1], most)
    return o


def halves_of_squares(x):
    return products_of_halves(x[:, : x.shape[0]].contiguous())


@triton.jit
def masked_kernel(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o, tl.sum(tl.load(x + i, mask=i < n), 0))


def sum_of_masked(x):
    o = torch.empty((), device=x.device)
    masked_kernel[(1,)](x, o, x.numel(), BLOCK=64)
    return o


@triton.jit
def large_kernel(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if n > 1 << 26:
        value += 1.0
    tl.store(o + i, value * 3.0, mask=i < n)


def other_in_large(x):
    assert x.is_contiguous()
    o = torch.empty_like(x)
    large_kernel[(triton.cdiv(x.numel(), 32),)](x, o, x.numel(), BLOCK=32)
    return o
