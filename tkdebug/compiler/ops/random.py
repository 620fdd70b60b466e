"""Random numbers: counter-based, by Philox 4x32 or 4x64 with 10 rounds, built from integer ops.

The counters' width, 32 or 64 bits, decides which; callers may ask for another number of rounds.

Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011), table 2 and its
constants.
"""

from __future__ import annotations

from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import arith
from tkdebug.compiler.dialects import math as math_ops
from tkdebug.compiler.ops import conversion, math, operators, shape
from tkdebug.compiler.ops.arguments import int_argument
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

DEFAULT_ROUNDS = 10
# Each round is ops of its own, so their number bounds the kernel's size.
MAX_ROUNDS = 1024
_KEY_A, _KEY_B = 0x9E3779B9, 0xBB67AE85
_ROUND_A, _ROUND_B = 0xD2511F53, 0xCD9E8D57
_KEY_A64, _KEY_B64 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_ROUND_A64, _ROUND_B64 = 0xD2E7470EE14C6C93, 0xCA5A826395121157


def _rounds(
    emit: Emitter, c: list[tensor], k: list[tensor], n_rounds: object
) -> tuple[tensor, ...]:
    count = int_argument(n_rounds, "n_rounds", most=MAX_ROUNDS)
    wide = scalar_dtype(c[0]).primitive_bitwidth == 64
    a, b = (_ROUND_A64, _ROUND_B64) if wide else (_ROUND_A, _ROUND_B)
    key_a, key_b = (_KEY_A64, _KEY_B64) if wide else (_KEY_A, _KEY_B)
    c0, c1, c2, c3 = c
    k0, k1 = k

    def high(x: tensor, constant: int) -> tensor:
        y = conversion.constant(emit, constant, scalar_dtype(x))
        return emit.value(arith.MulHiUI, [x, conversion.splat(emit, y, x.shape)], x.type)

    for _ in range(count):
        mixed0 = operators.binary(emit, "xor", operators.binary(emit, "xor", high(c2, b), c1), k0)
        mixed2 = operators.binary(emit, "xor", operators.binary(emit, "xor", high(c0, a), c3), k1)
        c1 = operators.binary(emit, "mul", c2, b)
        c3 = operators.binary(emit, "mul", c0, a)
        c0, c2 = mixed0, mixed2
        k0 = operators.binary(emit, "add", k0, key_a)
        k1 = operators.binary(emit, "add", k1, key_b)
    return c0, c1, c2, c3


def _emit_philox_impl(
    emit: Emitter,
    c0: Any,
    c1: Any,
    c2: Any,
    c3: Any,
    k0: Any,
    k1: Any,
    n_rounds: object = DEFAULT_ROUNDS,
) -> tuple[tensor, ...]:
    """`n_rounds` of Philox on counters c0..c3 and keys k0, k1, all uint32 or all uint64."""
    counters = list(
        conversion.broadcast_all(emit, *(conversion.to_tensor(emit, c) for c in (c0, c1, c2, c3)))
    )
    keys = [conversion.to_tensor(emit, k) for k in (k0, k1)]
    return _rounds(emit, counters, keys, n_rounds)


def _emit_philox(
    emit: Emitter,
    seed: Any,
    c0: Any,
    c1: Any,
    c2: Any,
    c3: Any,
    n_rounds: object = DEFAULT_ROUNDS,
) -> tuple[tensor, ...]:
    """Philox of a 64-bit seed and four counters: four uint32, or uint64 for 64-bit counters."""
    counters = [conversion.to_tensor(emit, c) for c in (c0, c1, c2, c3)]
    first = scalar_dtype(counters[0])
    if not first.is_int() or first.primitive_bitwidth not in (32, 64):
        raise SemanticError(f"philox: counters must be 32- or 64-bit integers, got {first}")
    word = dt.uint64 if first.primitive_bitwidth == 64 else dt.uint32
    counters = [conversion.cast(emit, c, word) for c in counters]
    seed64 = conversion.cast(emit, _seed(emit, seed), dt.uint64)
    if word == dt.uint64:
        low = seed64
        high = conversion.constant(emit, 0, dt.uint64)
    else:
        low = conversion.cast(emit, seed64, dt.uint32)
        high = conversion.cast(emit, operators.binary(emit, "rshift", seed64, 32), dt.uint32)
    counters = list(conversion.broadcast_all(emit, *counters))
    return _rounds(emit, counters, [low, high], n_rounds)


def _seed(emit: Emitter, seed: Any) -> tensor:
    if isinstance(seed, int):
        return conversion.constant(emit, seed & ((1 << 64) - 1), dt.uint64)
    value = conversion.to_tensor(emit, seed)
    if not scalar_dtype(value).is_int():
        raise SemanticError(f"a seed must be an integer, got {value.dtype}")
    return value


def _emit_randint4x(
    emit: Emitter, seed: Any, offset: Any, n_rounds: object = DEFAULT_ROUNDS
) -> tuple[tensor, ...]:
    """Four uint32 tiles of random bits for each counter in `offset`."""
    counter = conversion.to_tensor(emit, offset)
    zero = conversion.constant(emit, 0, dt.uint32)
    word = scalar_dtype(counter)
    if word.primitive_bitwidth > 32:
        low = conversion.cast(emit, counter, dt.uint32)
        shifted = operators.binary(emit, "rshift", conversion.cast(emit, counter, dt.uint64), 32)
        high = conversion.cast(emit, shifted, dt.uint32)
        return _emit_philox(emit, seed, low, high, zero, zero, n_rounds)
    counter = conversion.cast(emit, counter, dt.uint32)
    return _emit_philox(emit, seed, counter, zero, zero, zero, n_rounds)


def _emit_randint(
    emit: Emitter, seed: Any, offset: Any, n_rounds: object = DEFAULT_ROUNDS
) -> tensor:
    """A uint32 tile of random bits for each counter in `offset`."""
    return _emit_randint4x(emit, seed, offset, n_rounds)[0]


def _emit_uint_to_uniform_float(emit: Emitter, x: tensor) -> tensor:
    """32 (or 64) random bits as an fp32 number in [0, 1)."""
    element = scalar_dtype(x)
    wide = element.primitive_bitwidth == 64
    signed_type = dt.int64 if wide else dt.int32
    target = dt.float32
    scale = 1.0842020432385337e-19 if wide else 4.6566127342e-10
    value = conversion.cast(emit, x, signed_type, bitcast=True)
    negative = operators.compare(emit, "lt", value, 0)
    flipped = operators.binary(emit, "sub", operators.unary(emit, "neg", value), 1)
    positive = shape.LANGUAGE["where"].emit(emit, negative, flipped, value)
    return operators.binary(emit, "mul", conversion.cast(emit, positive, target), scale)


def _emit_rand(emit: Emitter, seed: Any, offset: Any, n_rounds: object = DEFAULT_ROUNDS) -> tensor:
    """A tile of fp32 uniform in [0, 1) for each counter in `offset`."""
    return _emit_uint_to_uniform_float(emit, _emit_randint(emit, seed, offset, n_rounds))


def _emit_rand4x(
    emit: Emitter, seed: Any, offset: Any, n_rounds: object = DEFAULT_ROUNDS
) -> tuple[tensor, ...]:
    """Four tiles of fp32 uniform in [0, 1) for each counter in `offset`."""
    bits = _emit_randint4x(emit, seed, offset, n_rounds)
    return tuple(_emit_uint_to_uniform_float(emit, x) for x in bits)


def _emit_pair_uniform_to_normal(emit: Emitter, u1: tensor, u2: tensor) -> tuple[tensor, tensor]:
    """Two standard normal tiles of fp32 from two uniform ones, by the Box-Muller transform."""
    u1 = math.extremum(emit, "max", shape.full(emit, (), 1.0e-7, dt.float32), u1, None)
    angle = operators.binary(emit, "mul", u2, 6.283185307179586)
    log = math.float_math(emit, math_ops.Log, u1, "pair_uniform_to_normal")
    scaled = operators.binary(emit, "mul", log, -2.0)
    radius = math.float_math(emit, math_ops.Sqrt, scaled, "pair_uniform_to_normal")
    cosine = math.float_math(emit, math_ops.Cos, angle, "pair_uniform_to_normal")
    sine = math.float_math(emit, math_ops.Sin, angle, "pair_uniform_to_normal")
    return (
        operators.binary(emit, "mul", radius, cosine),
        operators.binary(emit, "mul", radius, sine),
    )


def _emit_randn(emit: Emitter, seed: Any, offset: Any, n_rounds: object = DEFAULT_ROUNDS) -> tensor:
    """A tile of standard normal fp32 for each counter in `offset`."""
    bits = _emit_randint4x(emit, seed, offset, n_rounds)
    u1 = _emit_uint_to_uniform_float(emit, bits[0])
    u2 = _emit_uint_to_uniform_float(emit, bits[1])
    return _emit_pair_uniform_to_normal(emit, u1, u2)[0]


def _emit_randn4x(
    emit: Emitter, seed: Any, offset: Any, n_rounds: object = DEFAULT_ROUNDS
) -> tuple[tensor, ...]:
    """Four tiles of standard normal fp32 for each counter in `offset`."""
    u = [
        _emit_uint_to_uniform_float(emit, x) for x in _emit_randint4x(emit, seed, offset, n_rounds)
    ]
    n1, n2 = _emit_pair_uniform_to_normal(emit, u[0], u[1])
    n3, n4 = _emit_pair_uniform_to_normal(emit, u[2], u[3])
    return n1, n2, n3, n4


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("philox", _emit_philox),
    Builtin("philox_impl", _emit_philox_impl),
    Builtin("randint4x", _emit_randint4x),
    Builtin("randint", _emit_randint),
    Builtin("uint_to_uniform_float", _emit_uint_to_uniform_float),
    Builtin("rand", _emit_rand),
    Builtin("rand4x", _emit_rand4x),
    Builtin("pair_uniform_to_normal", _emit_pair_uniform_to_normal),
    Builtin("randn", _emit_randn),
    Builtin("randn4x", _emit_randn4x),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
