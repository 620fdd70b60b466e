"""What kernels may assume of arguments: multiples of 16, and descriptors that have tensor maps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

from tkdebug.compiler import dtypes
from tkdebug.compiler.dtypes import dtype
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.runtime.arguments.specialize import ALIGNMENT, MAPPABLE, is_tensor_like
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor, is_mappable
from tkdebug.runtime.jit.parameters import KernelParam

# Launches ask for the same few again and again.
_KEPT_EXTENTS = 1024


def alignment_key(parameters: Sequence[KernelParam], values: Sequence[Any]) -> tuple[Hashable, ...]:
    """Which arguments are multiples of 16; part of the key of native kernels alone.

    None where the parameter opts out of specialisation, False where it opts out of this part.
    """
    return tuple(
        None
        if parameter.is_constexpr or parameter.do_not_specialize
        else parameter.notes_alignment and aligned(value)
        for parameter, value in zip(parameters, values, strict=True)
    )


def aligned(value: Any) -> Hashable:
    """Whether an argument is a multiple of 16; tuples of such; see `aligned_descriptor`."""
    if isinstance(value, bool | float):
        return False
    if isinstance(value, int):
        return value % ALIGNMENT == 0
    if isinstance(value, TensorDescriptor):
        return aligned_descriptor(value)
    if is_tensor_like(value):
        return int(value.data_ptr()) % ALIGNMENT == 0
    if isinstance(value, tuple):
        return tuple(aligned(item) for item in value)
    return False


def aligned_descriptor(value: TensorDescriptor) -> Hashable:
    """What is noted about a descriptor: its base and strides are multiples of 16 in any case.

    Returns:
        True where its last extent, which masks accesses, is one too; `MAPPABLE` where it is not;
        False where no tensor map could describe the tensor.
    """
    return _extents_key(tuple(value.shape), tuple(value.strides), value.base.dtype.itemsize)


@lru_cache(_KEPT_EXTENTS)
def _extents_key(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> Hashable:
    if not is_mappable(shape, strides, item_bytes):
        return False
    return int(shape[-1]) % ALIGNMENT == 0 or MAPPABLE


def arg_divisibility(specs: Sequence[ArgSpec], alignment: Sequence[Hashable]) -> tuple[int, ...]:
    """A known divisor of each run-time parameter: bytes of a pointer, the value of an int.

    Args:
        specs: what each parameter is compiled for.
        alignment: `alignment_key` of the same parameters.

    Returns:
        One number for each of the kernel's IR arguments, in their order; 1 where nothing is known.
    """
    divisors: list[int] = []
    for spec, aligned in zip(specs, alignment, strict=True):
        _append_divisors(divisors, spec, aligned)
    return tuple(divisors)


def _append_divisors(divisors: list[int], spec: ArgSpec, aligned: Hashable) -> None:
    if isinstance(spec, Constant):
        return
    if isinstance(spec, tuple):
        parts = aligned if isinstance(aligned, tuple) else (False,) * len(spec)
        for inner, part in zip(spec, parts, strict=True):
            _append_divisors(divisors, inner, part)
        return
    if isinstance(spec, dtypes.tensor_descriptor_type):
        # `TensorDescriptor` itself refuses other bases and strides.
        element = spec.block.element_ty
        assert isinstance(element, dtype)
        stride = ALIGNMENT // element.itemsize
        last = ALIGNMENT if aligned is True else 1
        divisors += [ALIGNMENT, *[1] * (spec.rank - 1), last, *[stride] * (spec.rank - 1), 1]
        return
    can_be = spec.is_ptr() or (isinstance(spec, dtype) and spec.is_int() and spec != dtypes.int1)
    divisors.append(ALIGNMENT if can_be and aligned is True else 1)


def mappable_names(
    names: Sequence[str], specs: Sequence[ArgSpec], alignment: Sequence[Hashable]
) -> tuple[str, ...]:
    """The run-time arguments that are descriptors of tensors that tensor maps could describe."""
    found: list[str] = []
    for name, spec, aligned in zip(names, specs, alignment, strict=True):
        if isinstance(spec, tuple) and isinstance(aligned, tuple):
            inner = [f"{name}.{index}" for index in range(len(spec))]
            found += mappable_names(inner, spec, aligned)
        elif isinstance(spec, dtypes.tensor_descriptor_type) and aligned in (True, MAPPABLE):
            found.append(name)
    return tuple(found)
