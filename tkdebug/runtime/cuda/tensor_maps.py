"""Tensor maps: a host's `TensorDescriptor` as the 128 bytes by which bulk copies know a tensor.

The driver encodes them, once for each address, shape and strides; launches copy the bytes.

Source: CUDA driver API, "Tensor Map Object Management" (cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tkdebug.runtime.cuda import driver_api

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.tensor_maps import TensorMap
    from tkdebug.runtime.tensor_descriptor import TensorDescriptor

SIZE_BYTES = 128
# Of kernel parameters that hold one (cuda.h, CUtensorMap).
ALIGNMENT_BYTES = 64
_CACHED = 1024
# CUtensorMapDataType by the IR's names; integers by width, as copies do not look at signs.
_DATA_TYPES = {
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
_INTEGERS = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "UINT64"}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


def tensor_map_of(map_: TensorMap) -> Callable[[TensorDescriptor], bytes]:
    """What makes the tensor map of a descriptor that a kernel takes as `map_`."""
    import torch

    # Not through the class, on which the interpreter may have put a method that takes notes.
    plain, address_of = torch.Tensor, torch._C.TensorBase.data_ptr  # noqa: SLF001

    @lru_cache(_CACHED)
    def encoded(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
        return encode(map_, address, shape, strides)

    def of(descriptor: TensorDescriptor) -> bytes:
        base = descriptor.base
        address = address_of(base) if base.__class__ is plain else base.data_ptr()
        return encoded(address, tuple(descriptor.shape), tuple(descriptor.strides))

    return of


def encode(
    map_: TensorMap, address: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> bytes:
    """A tensor map of the tensor at `address`.

    Args:
        map_: element type, box, swizzle and padding.
        address: of the tensor's first element.
        shape: in elements, the contiguous axis last.
        strides: in elements.

    Raises:
        CudaError: the driver refuses.
    """
    bindings = driver_api.driver()
    item_bytes = _item_bytes(map_)
    fill = "NAN_REQUEST_ZERO_FMA" if map_.padding == "nan" else "NONE"
    made = driver_api.call(
        "cuTensorMapEncodeTiled",
        _member(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_data_type(map_)}"),
        len(shape),
        address,
        [bindings.cuuint64_t(size) for size in reversed(shape)],
        [bindings.cuuint64_t(stride * item_bytes) for stride in reversed(strides[:-1])],
        [bindings.cuuint32_t(size) for size in reversed(map_.box)],
        [bindings.cuuint32_t(1)] * len(shape),
        bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _member(
            bindings.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[map_.swizzle_bytes]}"
        ),
        bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        _member(bindings.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}"),
    )
    return ctypes.string_at(int(made.getPtr()), SIZE_BYTES)


def _item_bytes(map_: TensorMap) -> int:
    from tkdebug.compiler.ir.types import SCALARS

    return SCALARS[map_.element].bits // 8


def _data_type(map_: TensorMap) -> str:
    return _DATA_TYPES.get(map_.element) or _INTEGERS[_item_bytes(map_)]


def _member(enumeration: Any, name: str) -> Any:
    return getattr(enumeration, name)
