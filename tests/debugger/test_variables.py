"""Each variable at each line equals what Python has there, by a reference that is plain Python."""

import pytest
import torch
from fronts import Repeated, debugging
from line_reference import Pointer, bare, is_close, lines_of

from tkdebug.compiler.frontend.variables import MarkKind
from tkdebug.debugger.goals import Step, StepKind
from tkdebug.debugger.programs import Selection
from tkdebug.debugger.values import Constant, Pointers, Unavailable


def _softmax(module):
    x = torch.randn(7, 19)
    return (
        module.softmax_kernel,
        (3, 1, 1),
        dict(x_stride=19, out_stride=19, n_rows=7, n_cols=19, BLOCK=32),
        (x, torch.zeros(7, 19)),
    )


def _layer_norm(module):
    x = torch.randn(3, 70).half()
    tensors = (
        x,
        torch.zeros_like(x),
        torch.rand(70),
        torch.rand(70),
        torch.zeros(3),
        torch.zeros(3),
    )
    return (
        module.layer_norm_kernel,
        (3, 1, 1),
        dict(row_stride=70, n_cols=70, eps=1e-5, BLOCK=32),
        tensors,
    )


def _vector_add(module):
    n = 50
    return (
        module.add_kernel,
        (4, 1, 1),
        dict(n=n, BLOCK=16),
        (torch.rand(n), torch.rand(n), torch.zeros(n)),
    )


def _matmul(module):
    a, b, c = torch.randn(40, 33).half(), torch.randn(33, 50).half(), torch.zeros(40, 50).half()
    named = dict(
        M=40, N=50, K=33, stride_am=33, stride_ak=1, stride_bk=50, stride_bn=1, stride_cm=50,
        stride_cn=1, ACTIVATION="leaky_relu", BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2,
    )  # fmt: skip
    return module.matmul_kernel, (12, 1, 1), named, (a, b, c)


def _attention(module):
    tensors = tuple(torch.randn(2, 40, 16).half() for _ in range(3))
    named = dict(
        scale_log2=0.36, stride_head=640, stride_row=16, n_tokens=40, CAUSAL=True, HEAD_DIM=16,
        BLOCK_Q=16, BLOCK_K=16,
    )  # fmt: skip
    return module.attention_kernel, (3, 2, 1), named, (*tensors, torch.zeros(2, 40, 16).half())


CASES = {
    "softmax": (_softmax, (1,)),
    "layer_norm": (_layer_norm, (2,)),
    "vector_add": (_vector_add, (3,)),
    "matmul": (_matmul, (5,)),
    "attention": (_attention, (2, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_variables_at_each_line_are_python_s(name, example):
    torch.manual_seed(0)
    make, program = CASES[name]
    kernel, grid, named, tensors = make(example(name))
    pointers = [n for n in bare(kernel).__code__.co_varnames if n.endswith("_ptr")][: len(tensors)]
    given = {**dict(zip(pointers, tensors, strict=True)), **named}
    copies = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    want = lines_of(kernel, copies, (*program, 0, 0)[:3], grid)
    seen = []

    def look(debugger, stop):
        inspection = debugger.at_stop
        if not seen:
            debugger.select(Selection.of([program], grid))
            if not inspection.programs:
                return
        if stop.is_return or not stop.frames:
            return
        here = inspection.here
        assert here.mark.kind is MarkKind.LINE
        seen.append((here.mark.activation.function, stop.place.line, inspection.variables()))

    jit = kernel
    while not hasattr(jit, "kernel_source"):
        jit = jit.fn
    with debugging(Repeated(look, Step(StepKind.INTO))) as debugger:
        debugger.stop_at_next_launch()
        jit[grid](*given.values())
    assert [event[:2] for event in seen] == [event[:2] for event in want]
    compared = _compare(want, seen)
    assert compared > 3 * len(want)


def _compare(want, seen):
    """Every local of Python's has its value; how many there are."""
    compared = 0
    for (function, line, expected), (_, _, found) in zip(want, seen, strict=True):
        for name, value in expected.items():
            got = found[name]
            assert not isinstance(got, Unavailable), (function, line, name, got)
            if isinstance(got, Constant):
                same = got.value == value
            elif isinstance(value, Pointer):
                assert isinstance(got, Pointers)
                same = is_close(value, got)
            else:
                same = is_close(value, got.data[0])
            assert same, (function, line, name, value, got)
            compared += 1
    return compared
