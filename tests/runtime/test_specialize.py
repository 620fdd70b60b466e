import enum
import inspect
import math
from collections import namedtuple

import pytest
import torch

import tkdebug
from tkdebug.compiler import dtypes
from tkdebug.compiler.frontend.arguments import Constant, flatten_types
from tkdebug.compiler.tensor import constexpr
from tkdebug.runtime.arguments.binder import make_binder
from tkdebug.runtime.arguments.specialize import (
    alignment_key,
    arg_divisibility,
    argument_spec,
    constant_key,
    launch_key,
    runtime_values,
    upstream_name,
)
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor, reinterpret
from tkdebug.runtime.errors import ArgumentOverflowError, ArgumentTypeError
from tkdebug.runtime.jit.parameters import canonical_annotation, kernel_parameters

Pair = namedtuple("Pair", "a b")


class Color(enum.IntEnum):
    ONE = 1
    RED = 7


@tkdebug.jit
def helper(x):
    return x


def spec(value, annotation=inspect.Parameter.empty, **options):
    def kernel(x):
        pass

    kernel.__annotations__ = {} if annotation is inspect.Parameter.empty else {"x": annotation}
    (parameter,) = kernel_parameters(inspect.signature(kernel), **options)
    return argument_spec(parameter, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, dtypes.int32),
        (2, dtypes.int32),
        (-1, dtypes.int32),
        (2**31 - 1, dtypes.int32),
        (2**31, dtypes.int64),
        (-(2**31), dtypes.int32),
        (-(2**31) - 1, dtypes.int64),
        (2**63 - 1, dtypes.int64),
        (2**63, dtypes.uint64),
        (2**64 - 1, dtypes.uint64),
        (1, Constant(1)),
        (Color.ONE, Constant(1)),
        (Color.RED, dtypes.int32),
        (True, dtypes.int1),
        (False, dtypes.int1),
        (1.0, dtypes.float32),
        (math.inf, dtypes.float32),
        (None, Constant(None)),
        (helper, Constant(helper)),
        (torch.float16, Constant(dtypes.float16)),
        (dtypes.int8, Constant(dtypes.int8)),
        (constexpr(5), Constant(5)),
        ((), ()),
        ((1, 2, (2.0, None)), (Constant(1), dtypes.int32, (dtypes.float32, Constant(None)))),
        (Pair(2, 1), Pair(dtypes.int32, Constant(1))),
    ],
)
def test_spec_by_value(value, expected):
    got = spec(value)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("torch_dtype", "name"),
    [
        (torch.bool, "int1"),
        (torch.uint8, "uint8"),
        (torch.int64, "int64"),
        (torch.bfloat16, "bf16"),
        (torch.float8_e4m3fn, "fp8e4nv"),
        (torch.float8_e5m2, "fp8e5"),
    ],
)
def test_spec_of_tensor(torch_dtype, name):
    assert spec(torch.zeros(4).to(torch_dtype)) == dtypes.pointer_type(dtypes.dtype(name))


def test_spec_of_parameter_and_mock_tensor():
    assert spec(torch.nn.Parameter(torch.zeros(2))) == dtypes.pointer_type(dtypes.float32)
    assert spec(MockTensor(torch.int8)) == dtypes.pointer_type(dtypes.int8)


def test_spec_of_complex_tensor_names_the_dtype():
    with pytest.raises(ArgumentTypeError, match="complex64"):
        spec(torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize("value", ["text", [1, 2], object(), {1: 2}])
def test_spec_refuses_what_no_kernel_takes(value):
    with pytest.raises(ArgumentTypeError, match=type(value).__name__):
        spec(value)


def test_spec_refuses_integers_over_64_bits():
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(ArgumentOverflowError, match="64 bits"):
            spec(value)


def test_do_not_specialize_keeps_one_a_run_time_value():
    assert spec(1, do_not_specialize=["x"]) == dtypes.int32
    assert spec(1, do_not_specialize=[0]) == dtypes.int32
    assert spec(None, do_not_specialize=["x"]) == Constant(None)


@pytest.mark.parametrize("annotation", [dtypes.int64, "tl.int64", "i64", "int64"])
def test_annotation_decides_the_integer_type(annotation):
    assert spec(1, annotation) == dtypes.int64
    assert spec(7, annotation) == dtypes.int64
    assert spec(None, annotation) == Constant(None)


def test_constexpr_annotation_makes_anything_a_constant():
    for annotation in (constexpr, "tl.constexpr", "constexpr"):
        assert spec([1, 2], annotation) == Constant([1, 2])
        assert spec("sum", annotation) == Constant("sum")
        assert spec(constexpr(3), annotation) == Constant(3)
        assert spec(torch.float16, annotation) == Constant(dtypes.float16)


def test_const_annotation_makes_pointers_read_only():
    assert spec(torch.zeros(2), "tl.const").is_const()
    assert not spec(torch.zeros(2)).is_const()


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("tl.constexpr", "constexpr"),
        (int, "i32"),
        (float, "fp32"),
        (bool, "u1"),
        ("*fp32", "*fp32"),
        ("fp16*", "*fp16"),
        ("const *fp32", "*kfp32"),
        (dtypes.pointer_type(dtypes.int8), "*i8"),
        ("int32_t", "i32"),
        (dtypes.uint16, "u16"),
        ("tl.const", "const"),
        ("SomethingElse", "SomethingElse"),
    ],
)
def test_canonical_annotation(written, canonical):
    assert canonical_annotation(written) == canonical


def test_constant_keys_tell_equal_values_of_other_kinds_apart():
    values = [1, 1.0, True, "1", None, 0.0, -0.0, (1,), [1], Color.ONE, dtypes.int32, helper]
    keys = {constant_key(value) for value in values}
    assert len(keys) == len(values)


def test_constant_key_of_nan_is_stable():
    assert constant_key(float("nan")) == constant_key(float("nan"))


def test_launch_key_tells_dtype_argument_from_tensor_of_it():
    wrapped = reinterpret(torch.zeros(2, dtype=torch.uint8), dtypes.float8e5)
    assert launch_key(dtypes.float8e5) != launch_key(wrapped)


KEYED = [
    0, 1, 2, -5, 16, 2**31, 2**63, True, False, 1.0, 0.0, None, helper, dtypes.int8,
    torch.float16, (1, 2), (2, 2), Pair(2, 2), Color.ONE, Color.RED,
    torch.zeros(3), torch.zeros(3, dtype=torch.int32), torch.nn.Parameter(torch.zeros(3)),
    reinterpret(torch.zeros(3, dtype=torch.uint8), dtypes.float8e5),
]  # fmt: skip


@pytest.mark.parametrize("annotation", [inspect.Parameter.empty, dtypes.int64, constexpr, "*fp16"])
@pytest.mark.parametrize("do_not_specialize", [(), (0,)])
def test_equal_keys_imply_equal_specs(annotation, do_not_specialize):
    def kernel(x):
        pass

    kernel.__annotations__ = {} if annotation is inspect.Parameter.empty else {"x": annotation}
    signature = inspect.signature(kernel)
    parameters = kernel_parameters(signature, do_not_specialize)
    binder = make_binder("kernel", signature, parameters)
    by_key = {}
    for value in KEYED:
        _, (key,), _ = binder((value,), {})
        got = argument_spec(parameters[0], value)
        assert by_key.setdefault(key, got) == got


def test_alignment_key():
    def kernel(a, b, c, d, e, f: constexpr):
        pass

    parameters = kernel_parameters(inspect.signature(kernel), ["d"], ["e"])
    x = torch.zeros(8)
    assert alignment_key(parameters, (x, x[1:], 32, 16, 16, 16)) == (
        True, False, True, None, False, None,
    )  # fmt: skip


def test_arg_divisibility_follows_flattened_types():
    def kernel(x, n, pair, desc, f, plain, mode: constexpr):
        pass

    parameters = kernel_parameters(inspect.signature(kernel), (), ["plain"])
    x = torch.zeros(8, 16)
    values = (x, 32, (48, None, (x[0, 1:], x)), TensorDescriptor.from_tensor(x, [2, 4]), 2.0, x, 16)
    specs = tuple(
        argument_spec(parameter, v) for parameter, v in zip(parameters, values, strict=True)
    )
    assert arg_divisibility(specs, alignment_key(parameters, values)) == (
        16, 16, 16, 1, 16, 16, 1, 16, 4, 1, 1, 1,
    )  # fmt: skip


def test_declared_types_decide_what_a_divisor_means():
    def kernel(f: dtypes.float32, n: dtypes.int32, b: dtypes.int1):
        pass

    parameters = kernel_parameters(inspect.signature(kernel))
    values = (16, 16, 16)
    specs = tuple(
        argument_spec(parameter, v) for parameter, v in zip(parameters, values, strict=True)
    )
    assert arg_divisibility(specs, alignment_key(parameters, values)) == (1, 16, 1)


def test_runtime_values_follow_flattened_types():
    x = torch.zeros(8, 16)
    values = (x, 1, (4, None, (2.0, x)), TensorDescriptor.from_tensor(x, [2, 4]), "mode")
    specs = (*[spec(value) for value in values[:-1]], Constant("mode"))
    flat = runtime_values(specs, values)
    assert len(flat) == len([type_ for one in specs for type_ in flatten_types(one)])
    assert flat[0] is x
    assert flat[1:3] == [4, 2.0]
    assert flat[3] is x
    assert flat[5:] == [8, 16, 16, 1]


def test_runtime_values_open_reinterpreted_tensors():
    x = torch.zeros(4, dtype=torch.uint8)
    wrapped = reinterpret(x, dtypes.float8e5)
    (flat,) = runtime_values((spec(wrapped),), (wrapped,))
    assert flat.dtype == torch.float8_e5m2
    assert flat.data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.zeros(1), "*fp32"),
        (2, "i32"),
        (2**63, "u64"),
        (True, "u1"),
        (1, "constexpr"),
        ((2, 1.0), ("i32", "fp32")),
    ],
)
def test_upstream_name(value, name):
    assert upstream_name(spec(value)) == name
