"""Matrix products of microscaled formats.

Source of the formats: OCP Microscaling Formats (MX) Specification 1.0: e2m1, e4m3 and e5m2
elements in groups of 32 along K that share an e8m0 scale, a power of 2 biased by 127.
"""

from __future__ import annotations

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.arguments import tile_argument
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

_DTYPES = {"e4m3": dt.float8e4nv, "e5m2": dt.float8e5, "bf16": dt.bfloat16, "fp16": dt.float16}
_CARRIERS = {"e4m3": dt.uint8, "e5m2": dt.uint8, "bf16": dt.uint16, "fp16": dt.uint16}


def _format(value: object, side: str) -> str:
    if value not in tt.SCALED_FORMATS:
        raise SemanticError(
            f"dot_scaled: {side}_format must be one of {tt.SCALED_FORMATS}, got {value!r}"
        )
    return str(value)


def _operand(emit: Emitter, value: object, name: str, packed: bool, side: str) -> tensor:
    tile = tile_argument(value, f"dot_scaled: {side}")
    if len(tile.shape) not in (2, 3):
        raise SemanticError(f"dot_scaled: {side} must have 2 or 3 axes, got {list(tile.shape)}")
    if not packed and name != "e2m1":
        raise SemanticError(
            f"dot_scaled: {side}_k_pack=False is for e2m1, which packs two elements a byte; "
            f"got {name}"
        )
    if name == "e2m1":
        if tile.dtype != dt.uint8:
            raise SemanticError(
                f"dot_scaled: e2m1 must be packed as uint8, two a byte; {side} is {tile.dtype}"
            )
        return tile
    if tile.dtype == _DTYPES[name]:
        return tile
    if tile.dtype != _CARRIERS[name]:
        raise SemanticError(
            f"dot_scaled: {side} of format {name} must be {_DTYPES[name]} or {_CARRIERS[name]}, "
            f"got {tile.dtype}"
        )
    return conversion.cast(emit, tile, _DTYPES[name], bitcast=True)


def _scale(value: object, rows: int, k: int, side: str) -> tensor | None:
    if value is None:
        return None
    tile = tile_argument(value, f"dot_scaled: {side}_scale")
    element = scalar_dtype(tile)
    if element not in (dt.uint8, dt.int8, dt.float8e4nv):
        raise SemanticError(f"dot_scaled: {side}_scale must be uint8 (e8m0), got {element}")
    expected = (rows, k // (16 if element == dt.float8e4nv else 32))
    if tile.shape[-2:] != expected:
        raise SemanticError(
            f"dot_scaled: {side}_scale must be a tile of shape {list(expected)}, "
            f"got {list(tile.shape)}"
        )
    return tile


def _emit_dot_scaled(
    emit: Emitter,
    lhs: object,
    lhs_scale: object,
    lhs_format: object,
    rhs: object,
    rhs_scale: object,
    rhs_format: object,
    acc: object = None,
    fast_math: object = False,
    lhs_k_pack: object = True,
    rhs_k_pack: object = True,
    out_dtype: object = dt.float32,
) -> tensor:
    """Matrix product of tiles in microscaling formats, fp32.

    Args:
        emit: where to emit.
        lhs: tile (M, K); e2m1 has two elements a uint8, the first in the low bits; fp8 may come
            as uint8.
        lhs_scale: uint8 tile (M, K // 32) of e8m0 scales, or None.
        lhs_format: "e2m1", "e4m3", "e5m2", "bf16" or "fp16".
        rhs: tile (K, N).
        rhs_scale: uint8 tile (N, K // 32), not transposed, or None.
        rhs_format: as lhs_format.
        acc: fp32 tile (M, N) added to the product.
        fast_math: whether a scale of 255 (NaN) may be taken for a number.
        lhs_k_pack: whether e2m1 is packed along K; along M otherwise.
        rhs_k_pack: whether e2m1 is packed along K; along N otherwise.
        out_dtype: fp32.
    """
    if out_dtype != dt.float32:
        raise SemanticError(f"dot_scaled: out_dtype must be fp32, got {out_dtype}")
    a_packed, b_packed = bool(lhs_k_pack), bool(rhs_k_pack)
    a_format, b_format = _format(lhs_format, "lhs"), _format(rhs_format, "rhs")
    a = _operand(emit, lhs, a_format, a_packed, "lhs")
    b = _operand(emit, rhs, b_format, b_packed, "rhs")
    a_step = 2 if a_format == "e2m1" else 1
    b_step = 2 if b_format == "e2m1" else 1
    m, k = a.shape[-2] * (1 if a_packed else a_step), a.shape[-1] * (a_step if a_packed else 1)
    other_k = b.shape[-2] * (b_step if b_packed else 1)
    n = b.shape[-1] * (1 if b_packed else b_step)
    if k != other_k or a.shape[:-2] != b.shape[:-2]:
        raise SemanticError(
            f"dot_scaled: lhs {list(a.shape)} and rhs {list(b.shape)} do not fit: "
            f"K is {k} against {other_k}"
        )
    scales = (_scale(lhs_scale, m, k, "lhs"), _scale(rhs_scale, n, k, "rhs"))
    shape = (*a.shape[:-2], m, n)
    total = acc
    if total is None:
        total = conversion.splat(emit, conversion.constant(emit, 0.0, dt.float32), shape)
    elif not isinstance(total, tensor) or total.type != block_type(dt.float32, shape):
        raise SemanticError(
            f"dot_scaled: acc must be an fp32 tile of shape {list(shape)}, got {as_given(total)}"
        )
    return emit.value(
        tt.DotScaled,
        [a, b, total, *(scale for scale in scales if scale is not None)],
        total.type,
        lhs_format=a_format,
        rhs_format=b_format,
        lhs_k_pack=a_packed,
        rhs_k_pack=b_packed,
        lhs_scaled=scales[0] is not None,
        rhs_scaled=scales[1] is not None,
        fast_math=bool(fast_math),
    )


_BUILTINS: tuple[Builtin, ...] = (Builtin("dot_scaled", _emit_dot_scaled),)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
