"""Arguments of a launch, and the facts of them that a kernel is compiled for.

Two views of the same decision. `launch_key` and `constant_key` are cheap and hashable: two launches
with equal keys may share a compiled kernel. `argument_spec` gives the types and constants to
compile for, and is asked only when the key is new. Invariant: equal keys imply equal specs.

The rules are upstream's: an int equal to 1 is a constant unless the parameter opts out, other ints
are i32, i64 or u64 by value, a float is fp32, a bool int1, None and functions are constants. Native
kernels may also assume multiples of 16, and descriptors that have tensor maps (`alignment_key`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from tkdebug.compiler import dtypes
from tkdebug.compiler.aggregates import constant_places
from tkdebug.compiler.describe import shown_int
from tkdebug.compiler.dtypes import LanguageType, dtype, pointer_type
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant, remake
from tkdebug.compiler.frontend.limits import MAX_INT_BITS
from tkdebug.compiler.tensor import constexpr, is_jit_function, unwrap
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor, is_mappable
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper
from tkdebug.runtime.errors import ArgumentOverflowError, ArgumentTypeError
from tkdebug.runtime.jit.parameters import KernelParam

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UINT64_MAX = (1 << 64) - 1
# The property of pointers and ints that upstream notes: it decides how wide loads can be.
ALIGNMENT = 16
MAPPABLE = "mappable"
# torch's names of element types -> ours.
TORCH_DTYPES: Mapping[str, dtype] = {
    "bool": dtypes.int1,
    "int8": dtypes.int8,
    "int16": dtypes.int16,
    "int32": dtypes.int32,
    "int64": dtypes.int64,
    "uint8": dtypes.uint8,
    "uint16": dtypes.uint16,
    "uint32": dtypes.uint32,
    "uint64": dtypes.uint64,
    "float16": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float32": dtypes.float32,
    "float64": dtypes.float64,
    "float8_e4m3fn": dtypes.float8e4nv,
    "float8_e5m2": dtypes.float8e5,
    "float8_e4m3fnuz": dtypes.float8e4b8,
    "float8_e5m2fnuz": dtypes.float8e5b16,
}
_INT_TYPES = {
    "i32": dtypes.int32,
    "i64": dtypes.int64,
    "u64": dtypes.uint64,
}
# Launches ask for the same few again and again.
_KEPT_EXTENTS = 1024


@cache
def language_dtype(element: Any) -> dtype:
    """The language dtype of a tensor's `dtype`: torch's, or a language dtype already.

    Raises:
        ArgumentTypeError: kernels have no such element type.
    """
    if isinstance(element, dtype):
        return element
    name = str(element).rpartition(".")[2]
    if name not in TORCH_DTYPES:
        raise ArgumentTypeError(
            f"tensor of dtype {element}: kernels have no such element type; "
            f"expected one of {', '.join(TORCH_DTYPES)}"
        )
    return TORCH_DTYPES[name]


def is_tensor_like(value: object) -> bool:
    """Whether `value` is passed as a pointer: it has an address and an element type."""
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def constant_key(value: Any) -> Hashable:
    """A key of a compile-time constant; the keys of 1, 1.0 and True differ, and of 0.0 and -0.0."""
    kind = value.__class__
    if kind is int or value is None:
        return value  # type: ignore[no-any-return]
    if kind is str or kind is bool:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if isinstance(value, constexpr):
        return constant_key(value.value)
    if isinstance(value, tuple | list):
        return kind, tuple([constant_key(item) for item in value])
    if isinstance(value, dict):
        return kind, tuple([(key, constant_key(item)) for key, item in value.items()])
    try:
        hash(value)
    except TypeError:
        return kind, repr(value)
    if is_jit_function(value):
        # Its source can be replaced.
        return kind, value, value.source_edits
    return kind, value


def launch_key(value: Any, specialize: bool = True) -> Hashable:
    """A key of the type that a run-time argument is compiled for.

    Args:
        value: the argument.
        specialize: whether an int equal to 1 becomes a constant.

    Raises:
        ArgumentTypeError: no kernel can take such a value.
    """
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return 1 if specialize and value == 1 else _int_name(value)
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, TensorDescriptor):
        block: Hashable = tuple(value.block_shape)
        kind = value.round_f32_to_tf32
        return "descriptor", value.base.dtype, block, value.padding, kind
    if is_tensor_like(value):
        element: Hashable = value.dtype
        return element
    if isinstance(value, tuple):
        fixed = constant_places(value)
        return value.__class__, tuple(
            [
                ("constant", constant_key(item)) if place in fixed else launch_key(item)
                for place, item in enumerate(value)
            ]
        )
    return "constant", constant_key(_constant(value))


def _int_name(value: int) -> str:
    if INT32_MIN <= value <= INT32_MAX:
        return "i32"
    if INT64_MIN <= value <= INT64_MAX:
        return "i64"
    if 0 <= value <= UINT64_MAX:
        return "u64"
    raise ArgumentOverflowError(
        f"integer argument {shown_int(value)} needs more than 64 bits; "
        "kernels have i32, i64 and u64"
    )


def _constant(value: Any) -> Any:
    """Return the constant that `value` always is; raise ArgumentTypeError if it is none."""
    if value is None or isinstance(value, constexpr | LanguageType) or is_jit_function(value):
        return unwrap(value)
    if getattr(value, "is_constexpr_function", False):
        return value
    kind = type(value)
    if kind.__name__ == "dtype" and kind.__module__ == "torch":
        return language_dtype(value)
    raise ArgumentTypeError(
        f"cannot pass a {kind.__module__}.{kind.__qualname__} to a kernel; expected a tensor, "
        "int, float, bool, None, dtype, jit function or tuple of such, "
        "or annotate the parameter tl.constexpr"
    )


def argument_spec(parameter: KernelParam, value: Any) -> ArgSpec:
    """Return the type or constant that `parameter` is compiled for when it gets `value`."""
    if parameter.is_constexpr:
        return Constant(_constexpr_value(value))
    declared = parameter.declared_type
    if declared is not None and accepts_declared(declared, value):
        return declared
    return _spec(value, not parameter.do_not_specialize, parameter.is_const)


def _constexpr_value(value: Any) -> Any:
    value = unwrap(value)
    _refuse_large_ints(value)
    kind = type(value)
    if kind.__name__ == "dtype" and kind.__module__ == "torch":
        return language_dtype(value)
    return value


def _refuse_large_ints(value: Any) -> None:
    if isinstance(value, tuple | list):
        for item in value:
            _refuse_large_ints(unwrap(item))
    elif isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise ArgumentOverflowError(
            f"an int of {value.bit_length()} bits; a constant of a kernel may have at most "
            f"{MAX_INT_BITS}"
        )


def accepts_declared(declared: LanguageType, value: object) -> bool:
    """Whether the type written in an annotation decides the type of `value`."""
    if declared.is_ptr():
        return is_tensor_like(value) and not isinstance(value, TensorDescriptor)
    return isinstance(value, bool | int | float)


def _spec(value: Any, specialize: bool, is_const: bool) -> ArgSpec:
    if isinstance(value, bool):
        return dtypes.int1
    if isinstance(value, int):
        name = _int_name(value)
        return Constant(int(value)) if specialize and value == 1 else _INT_TYPES[name]
    if isinstance(value, float):
        return dtypes.float32
    if isinstance(value, TensorDescriptor):
        block = dtypes.block_type(language_dtype(value.base.dtype), tuple(value.block_shape))
        return dtypes.tensor_descriptor_type(block, value.padding, value.round_f32_to_tf32)
    if is_tensor_like(value):
        return pointer_type(language_dtype(value.dtype), const=is_const)
    if isinstance(value, tuple):
        fixed = constant_places(value)
        specs = [
            Constant(unwrap(item)) if place in fixed else _spec(item, True, False)
            for place, item in enumerate(value)
        ]
        return remake(value, specs)
    return Constant(_constant(value))


def runtime_values(
    specs: Sequence[ArgSpec], values: Sequence[Any], *, are_bare: bool = True
) -> list[Any]:
    """The values that are passed at run time, in the order of the kernel's IR arguments.

    Constants are left out and tuples opened; a tensor descriptor is followed by its shape and
    strides (the order of `frontend.arguments.flatten_types`).

    Args:
        specs: one for each parameter.
        values: one for each parameter.
        are_bare: whether wrapped tensors become torch views; else they stay as they are.
    """
    flat: list[Any] = []
    for spec, value in zip(specs, values, strict=True):
        if spec.__class__ is pointer_type or spec.__class__ is dtypes.dtype:
            # The usual ones without a call: checked launches ask.
            is_plain = value.__class__ is not TensorWrapper or not are_bare
            flat.append(value if is_plain else bare_tensor(value))
        else:
            _append(flat, spec, value, are_bare)
    return flat


def _append(flat: list[Any], spec: ArgSpec, value: Any, are_bare: bool) -> None:
    if isinstance(spec, Constant):
        return
    if isinstance(spec, tuple):
        for inner, item in zip(spec, value, strict=True):
            _append(flat, inner, item, are_bare)
        return
    flat.append(bare_tensor(value) if are_bare else value)
    if isinstance(value, TensorDescriptor):
        flat.extend(value.shape)
        flat.extend(value.strides)


def bare_tensor(value: Any) -> Any:
    """Return a wrapped tensor as a torch view of the element type, if torch has that."""
    if not isinstance(value, TensorWrapper):
        return value
    import torch

    wanted = language_dtype(value.dtype)
    for name, ours in TORCH_DTYPES.items():
        if ours == wanted and hasattr(torch, name):
            return value.base.view(getattr(torch, name))
    return value.base


def upstream_name(spec: ArgSpec) -> Any:
    """A spec as upstream writes it in signatures, such as `*fp16`, `i32`, `constexpr`."""
    if isinstance(spec, Constant):
        return "constexpr"
    if isinstance(spec, tuple):
        return tuple(upstream_name(item) for item in spec)
    if isinstance(spec, pointer_type):
        return ("*k" if spec.const else "*") + upstream_name(spec.element_ty)
    if isinstance(spec, dtypes.tensor_descriptor_type):
        padding = ",nan" if spec.padding == "nan" else ""
        block = f"{upstream_name(spec.block.element_ty)}{list(spec.block.shape)}"
        return f"tensordesc<{block}{padding}>"
    name = str(spec)
    if name == "int1":
        return "u1"
    return name.replace("uint", "u").replace("int", "i")


def alignment_key(parameters: Sequence[KernelParam], values: Sequence[Any]) -> tuple[Hashable, ...]:
    """Return whether each argument is a multiple of 16; part of the key of native kernels alone.

    None if the parameter is constexpr or opts out of specialisation, False if it opts out of this
    part.
    """
    return tuple(
        None
        if parameter.is_constexpr or parameter.do_not_specialize
        else parameter.notes_alignment and aligned(value)
        for parameter, value in zip(parameters, values, strict=True)
    )


def aligned(value: Any) -> Hashable:
    """Return whether a value is a multiple of 16, a tuple for a tuple; see `aligned_descriptor`."""
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
    """Return the alignment of a descriptor, whose base and strides are multiples of 16.

    Returns:
        True if its last extent, which masks accesses, is one too; `MAPPABLE` if it is not; False if
            no tensor map could describe the tensor.
    """
    return _extents_key(tuple(value.shape), tuple(value.strides), value.base.dtype.itemsize)


@lru_cache(_KEPT_EXTENTS)
def _extents_key(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> Hashable:
    if not is_mappable(shape, strides, item_bytes):
        return False
    return int(shape[-1]) % ALIGNMENT == 0 or MAPPABLE


def arg_divisibility(specs: Sequence[ArgSpec], alignment: Sequence[Hashable]) -> tuple[int, ...]:
    """Return known divisors of the IR arguments: of addresses, ints, and parts of descriptors.

    Args:
        specs: the type or constant that each parameter is compiled for.
        alignment: `alignment_key` of the same parameters.

    Returns:
        One number for each of the kernel's IR arguments, in their order; 1 if nothing is known.
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
    """Return the run-time arguments that are descriptors which tensor maps could describe."""
    found: list[str] = []
    for name, spec, aligned in zip(names, specs, alignment, strict=True):
        if isinstance(spec, tuple) and isinstance(aligned, tuple):
            inner = [f"{name}.{index}" for index in range(len(spec))]
            found += mappable_names(inner, spec, aligned)
        elif isinstance(spec, dtypes.tensor_descriptor_type) and aligned in (True, MAPPABLE):
            found.append(name)
    return tuple(found)
