"""Tensor maps: the 128 bytes by which bulk copies know a tensor.

They are made of a host's `TensorDescriptor`, or of the values of which a kernel would make a
descriptor. The driver encodes them, once for each address, shape and strides; launches copy the
bytes.

Source: CUDA driver API, "Tensor Map Object Management" (cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from tkdebug.runtime.arguments.tensor_descriptor import ALIGNMENT_BYTES as STARTS_BYTES
from tkdebug.runtime.arguments.tensor_descriptor import is_mappable
from tkdebug.runtime.cuda import driver_api

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap
    from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

SIZE_BYTES = 128
# For kernel parameters that hold one (cuda.h, CUtensorMap).
ALIGNMENT_BYTES = 64
_CACHED = 1024
# Kernels count in 32 bits.
_MAX_INDEX = (1 << 31) - 1
# CUtensorMapDataType by the IR's names; integers by width, as copies do not look at signs.
_DATA_TYPES = {
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
_INTEGERS = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "UINT64"}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class UnmappableError(Exception):
    """Arguments do not fit the tensor maps of their kernel; a kernel without can run them."""


def tensor_map_of(map_: TensorMap) -> Callable[[TensorDescriptor], bytes]:
    """Return the function that makes the tensor map of a descriptor that is passed as `map_`."""
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


def made_map_of(made: MadeMap) -> Callable[..., bytes]:
    """Return the function that makes a tensor map of a launch's arguments, as the kernel would.

    It is called with the address, the shape, the strides, and the numbers that must not be
    negative, and raises `UnmappableError` if there is no such map.
    """
    item_bytes = made.map.element_bytes

    @lru_cache(_CACHED)
    def encoded(
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        non_negative: tuple[int, ...],
    ) -> bytes:
        if address % STARTS_BYTES or not fits(shape, strides, non_negative):
            raise UnmappableError
        return encode(made.map, address, shape, strides)

    @lru_cache(_CACHED)
    def fits(
        shape: tuple[int, ...], strides: tuple[int, ...], non_negative: tuple[int, ...]
    ) -> bool:
        if min(shape) <= 0 or max(shape) > _MAX_INDEX or min(non_negative, default=0) < 0:
            return False
        return is_mappable(shape, strides, item_bytes)

    return encoded


def wrapped(number: int, bits: int) -> int:
    """Return `number` as a signed number of so many bits."""
    half = 1 << (bits - 1)
    return ((number + half) & (2 * half - 1)) - half


def encode(
    map_: TensorMap, address: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> bytes:
    """A tensor map of the tensor at `address`.

    Args:
        map_: element type, box, swizzle and padding.
        address: the address of the tensor's first element.
        shape: in elements, the contiguous axis last.
        strides: in elements.

    Raises:
        CudaError: the driver refuses.
    """
    memory = ctypes.create_string_buffer(SIZE_BYTES + ALIGNMENT_BYTES)
    start = -ctypes.addressof(memory) % ALIGNMENT_BYTES
    status = _encode_function()(
        ctypes.addressof(memory) + start,
        _data_type(map_),
        len(shape),
        address,
        *_arrays(map_, shape, strides),
        *_modes(map_),
    )
    if status != driver_api.SUCCESS:
        raise driver_api.cuda_error(status, "cuTensorMapEncodeTiled")
    return memory.raw[start : start + SIZE_BYTES]


@lru_cache(_CACHED)
def _arrays(
    map_: TensorMap, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return extents, strides in bytes, box, and element steps, the contiguous axis first."""
    rank, item_bytes = len(shape), map_.element_bytes
    return (
        struct.pack(f"={rank}Q", *reversed(shape)),
        struct.pack(f"={rank - 1}Q", *[step * item_bytes for step in reversed(strides[:-1])]),
        struct.pack(f"={rank}I", *reversed(map_.box)),
        struct.pack(f"={rank}I", *[1] * rank),
    )


@cache
def _encode_function() -> Callable[..., int]:
    """cuTensorMapEncodeTiled, called without the bindings, which take ten times as long."""
    number, array = ctypes.c_int, ctypes.c_char_p
    place = ctypes.c_void_p
    described = (place, number, ctypes.c_uint, place, array, array, array, array, *[number] * 4)
    return driver_api.raw_function("cuTensorMapEncodeTiled", *described)


@cache
def _modes(map_: TensorMap) -> tuple[int, ...]:
    """Return interleaving, swizzle, promotion to L2, and the fill outside the tensor."""
    bindings = driver_api.driver()
    fill = "NAN_REQUEST_ZERO_FMA" if map_.padding == "nan" else "NONE"
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[map_.swizzle_bytes]}"
    return (
        int(bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(_member(bindings.CUtensorMapSwizzle, swizzle)),
        int(bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
        int(_member(bindings.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}")),
    )


@cache
def _data_type(map_: TensorMap) -> int:
    name = _DATA_TYPES.get(map_.element) or _INTEGERS[map_.element_bytes]
    types = driver_api.driver().CUtensorMapDataType
    return int(_member(types, f"CU_TENSOR_MAP_DATA_TYPE_{name}"))


def _member(enumeration: Any, name: str) -> Any:
    return getattr(enumeration, name)
