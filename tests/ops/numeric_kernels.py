"""Kernels that apply one operation to whole tensors."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def binary(x_ptr, y_ptr, out_ptr, n, OP: tl.constexpr, EXPECTED: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x, y = tl.load(x_ptr + offs, mask=mask), tl.load(y_ptr + offs, mask=mask, other=1)
    if OP == "add":
        r = x + y
    elif OP == "sub":
        r = x - y
    elif OP == "mul":
        r = x * y
    elif OP == "truediv":
        r = x / y
    elif OP == "floordiv":
        r = x // y
    elif OP == "mod":
        r = x % y
    elif OP == "and":
        r = x & y
    elif OP == "or":
        r = x | y
    elif OP == "xor":
        r = x ^ y
    elif OP == "shl":
        r = x << y
    elif OP == "shr":
        r = x >> y
    elif OP == "lt":
        r = x < y
    elif OP == "ge":
        r = x >= y
    elif OP == "eq":
        r = x == y
    elif OP == "maximum":
        r = tl.maximum(x, y)
    elif OP == "minimum":
        r = tl.minimum(x, y)
    tl.static_assert(r.dtype == EXPECTED)
    tl.store(out_ptr + offs, r, mask=mask)


@tkdebug.jit
def with_number(
    x_ptr,
    out_ptr,
    n,
    OP: tl.constexpr,
    NUMBER: tl.constexpr,
    EXPECTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    if OP == "add":
        r = x + NUMBER
    elif OP == "rsub":
        r = NUMBER - x
    elif OP == "mul":
        r = x * NUMBER
    elif OP == "truediv":
        r = x / NUMBER
    elif OP == "where":
        r = tl.where(offs < 2, x, NUMBER)
    tl.static_assert(r.dtype == EXPECTED)
    tl.store(out_ptr + offs, r, mask=offs < n)


@tkdebug.jit
def convert(x_ptr, out_ptr, n, TO: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x.to(TO, fp_downcast_rounding=ROUNDING), mask=offs < n)


@tkdebug.jit
def reinterpret(x_ptr, out_ptr, n, TO: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x.to(TO, bitcast=True), mask=offs < n)


@tkdebug.jit
def matrix_product(
    a_ptr,
    b_ptr,
    c_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
    WITH_ACC: tl.constexpr,
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    if WITH_ACC:
        acc = tl.full((M, N), 1, OUT)
        c = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=OUT)
    else:
        c = tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
    tl.static_assert(c.dtype == OUT)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


@tkdebug.jit
def reduction(
    x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr, OP: tl.constexpr, EXPECTED: tl.constexpr
):
    offs = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + offs)
    if OP == "sum":
        r = tl.sum(x, 1)
    elif OP == "max":
        r = tl.max(x, 1)
    elif OP == "min":
        r = tl.min(x, 1)
    elif OP == "argmax":
        r = tl.argmax(x, 1)
    elif OP == "argmin":
        r = tl.argmin(x, 1)
    elif OP == "xor_sum":
        r = tl.xor_sum(x, 1)
    tl.static_assert(r.dtype == EXPECTED)
    tl.store(out_ptr + tl.arange(0, R), r)


@tkdebug.jit
def scan(
    x_ptr,
    out_ptr,
    R: tl.constexpr,
    C: tl.constexpr,
    AXIS: tl.constexpr,
    REVERSE: tl.constexpr,
    PRODUCT: tl.constexpr,
    EXPECTED: tl.constexpr,
):
    offs = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + offs)
    if PRODUCT:
        r = tl.cumprod(x, AXIS, reverse=REVERSE)
    else:
        r = tl.cumsum(x, AXIS, reverse=REVERSE)
    tl.static_assert(r.dtype == EXPECTED)
    tl.store(out_ptr + offs, r)


@tkdebug.jit
def unary(x_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    if OP == "exp":
        r = tl.exp(x)
    elif OP == "exp2":
        r = tl.exp2(x)
    elif OP == "log":
        r = tl.log(x)
    elif OP == "log2":
        r = tl.log2(x)
    elif OP == "sqrt":
        r = tl.sqrt(x)
    elif OP == "rsqrt":
        r = tl.rsqrt(x)
    elif OP == "sin":
        r = tl.sin(x)
    elif OP == "cos":
        r = tl.cos(x)
    elif OP == "erf":
        r = tl.erf(x)
    elif OP == "floor":
        r = tl.floor(x)
    elif OP == "ceil":
        r = tl.ceil(x)
    elif OP == "abs":
        r = tl.abs(x)
    elif OP == "neg":
        r = -x
    elif OP == "sigmoid":
        r = tl.sigmoid(x)
    tl.store(out_ptr + offs, r, mask=offs < n)


@tkdebug.jit
def random_numbers(uniform_ptr, int_ptr, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(uniform_ptr + offs, tl.rand(seed, offs))
    a, b, c, d = tl.randint4x(seed, offs)
    tl.store(int_ptr + offs * 4, a)
    tl.store(int_ptr + offs * 4 + 1, b)
    tl.store(int_ptr + offs * 4 + 2, c)
    tl.store(int_ptr + offs * 4 + 3, d)


@tkdebug.jit
def normal_numbers(out_ptr, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.randn(seed, offs))


@tkdebug.jit
def high_product(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x, y = tl.load(x_ptr + offs, mask=mask), tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.umulhi(x, y), mask=mask)
