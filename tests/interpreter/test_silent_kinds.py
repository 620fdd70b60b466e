"""Bugs that give wrong numbers and nothing else: each is reported at its line, until it is fixed.

All checks look at both forms of each kernel.
"""

from functools import partial

import pytest
import silent_kernels as kernels
import torch
from marked_lines import line_of

from tkdebug.checks import CHECK_NAMES
from tkdebug.compat.around_torch.unwritten_memory import mark_empties, watch_gaps
from tkdebug.instrument import add_hook
from tkdebug.knobs import scope
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

line = partial(line_of, kernels)
randn, rand, zeros = torch.randn, torch.rand, torch.zeros


@pytest.fixture(autouse=True)
def reported():
    torch.manual_seed(0)
    faults = []
    with scope(checks=CHECK_NAMES), add_hook(fault=faults.append):
        undo = mark_empties(), watch_gaps()
        yield faults
        for stop in reversed(undo):
            stop()


def launch(kernel, grid, *arguments, **options):
    kernel.interpret[grid](*arguments, **options)


def amax_scale(right):
    x, out = -rand(3, 21) - 1, zeros(3)
    launch(kernels.amax_scale, (3,), x, out, 21, RIGHT=right, BLOCK=16)
    return out, x.amax(1)


def nearest(right):
    points, query, out = rand(11) + 5, rand(4), zeros(4)
    launch(kernels.nearest, (4,), points, query, out, 11, RIGHT=right, BLOCK=16)
    return out, (points - query[:, None]).abs().amin(1)


def l1_loss(right):
    x, target, out = randn(40), randn(40), zeros(3)
    launch(kernels.l1_loss, (3,), x, target, out, 40, 2.5, RIGHT=right, BLOCK=16)
    return out.sum(), (x + 2.5 - target).abs().sum()


def greedy_token(right):
    logits, out = -rand(4, 13), zeros(4, dtype=torch.int64)
    launch(kernels.greedy_token, (4,), logits, out, 13, RIGHT=right, BLOCK=16)
    return out, logits.argmax(1)


def log_sum_exp(right):
    x, out = randn(3, 21) - 4, zeros(3)
    launch(kernels.log_sum_exp, (3,), x, out, 21, RIGHT=right, BLOCK=16)
    return out, torch.logsumexp(x, 1)


def rms_norm(right):
    x, w, out = randn(3, 12), randn(12), zeros(3, 12)
    launch(kernels.rms_norm, (3,), x, w, out, 12, 1e-5, RIGHT=right, BLOCK=16)
    return out, torch.nn.functional.rms_norm(x, (12,), w, 1e-5)


def layer_norm(right):
    x, w, b, out = randn(3, 12) + 2, randn(12), randn(12), zeros(3, 12)
    launch(kernels.layer_norm, (3,), x, w, b, out, 12, 1e-5, RIGHT=right, BLOCK=16)
    return out, torch.nn.functional.layer_norm(x, (12,), w, b, 1e-5)


def rewards_to_go(right):
    rewards, out = rand(2, 11), zeros(2, 11)
    launch(kernels.rewards_to_go, (2,), rewards, out, 11, RIGHT=right, BLOCK=16)
    return out, (rewards - 0.5).flip(1).cumsum(1).flip(1)


def linear_attention_state(right):
    k, v, out = randn(2, 20, 16), randn(2, 20, 16), zeros(2, 16, 16)
    launch(kernels.linear_attention_state, (2,), k, v, out, 20, RIGHT=right, D=16, BLOCK=16)
    phi = torch.nn.functional.elu(k) + 1
    return out, phi.transpose(1, 2) @ torch.sigmoid(v)


def squared_norm(right):
    x, out = rand(100), zeros(1)
    launch(kernels.squared_norm, (7 if right else 6,), x, out, 100, BLOCK=16)
    return out[0], (x * x).sum()


def matmul(right):
    a, b, out = randn(20, 40), randn(40, 16), zeros(20, 16)
    launch(kernels.matmul, (2, 1), a, b, out, 20, 16, 40, RIGHT=right, B=16, BLOCK_K=16)
    return out, a @ b


def split(part, overlap=0):
    def split_dot(right):
        a, b, out = rand(100), rand(100), zeros(1)
        size, more = (part, overlap) if not right else (25, 0)
        launch(kernels.split_dot, (4,), a, b, out, 100, size, more, BLOCK=8)
        return out[0], a @ b

    return split_dot


def scale_rows(right):
    x, out = randn(64, 32), zeros(64, 32)
    descriptor = TensorDescriptor.from_tensor(x, [16, 16])
    launch(kernels.scale_rows, (4, 2), descriptor, out, 64, 32, RIGHT=right, BM=16, BN=16)
    return out, 2 * x


def quantise(right):
    x, scale, out = 3 * randn(3, 12), torch.tensor([0.02]), zeros(3, 12, dtype=torch.int8)
    launch(kernels.quantise, (3,), x, scale, out, 12, RIGHT=right, BLOCK=16)
    return out, torch.floor(x / 0.02 + 0.5).clamp(-128, 127).to(torch.int8)


def first_match(right):
    x = torch.zeros(40_000, dtype=torch.int32)
    x[39_000] = 7
    out = zeros(1, dtype=torch.int32)
    launch(kernels.first_match, (1,), x, out, 40_000, 7, RIGHT=right, BLOCK=65536)
    return out[0], torch.tensor(39_000, dtype=torch.int32)


def unscale_gradient(right):
    dy, out = 100 * randn(40, dtype=torch.float16), zeros(40, dtype=torch.float16)
    launch(kernels.unscale_gradient, (3,), dy, out, 40, 1024.0, RIGHT=right, BLOCK=16)
    return out, (dy.float() * 1024).clamp(-65504, 65504).half()


def sum_by_last(right):
    x, out, arrived = rand(8, 16), zeros(1), zeros(1, dtype=torch.int32)
    launch(kernels.sum_by_last, (8,), x, zeros(8), arrived, out, RIGHT=right, GRID=8, BLOCK=16)
    return out[0], x.sum()


def router_weights(right):
    x, out = 60 + 50 * rand(3, 12), zeros(3, 12)
    launch(kernels.router_weights, (3,), x, out, 12, RIGHT=right, BLOCK=16)
    e = torch.exp(x - x.amax(1, keepdim=True))
    return out, e / (1 + e.sum(1, keepdim=True))


def row_statistics(right):
    x, mean = rand(10, 12), torch.empty(10)
    launch(kernels.row_statistics, (3 if right else 2,), x, mean, 10, 12, ROWS=4, BLOCK=16)
    return mean, x.mean(1)


def gelu_rows(right):
    x, out = randn(40, 10), zeros(40, 10)
    launch(kernels.gelu_rows, (3, 1), x, out, 40, 10, *x.stride(), RIGHT=right, BM=16, BN=16)
    return out, x * torch.sigmoid(1.702 * x)


def row_l2(right):
    x, out = rand(4, 12), zeros(4)
    launch(kernels.row_l2, (4,), x, out, 4, 12, RIGHT=right, BLOCK=16)
    return out, x.square().sum(1).sqrt()


KINDS = {
    "max": (amax_scale, "padding", ["max"]),
    "min": (nearest, "padding", ["min"]),
    "sum": (l1_loss, "padding", ["sum"]),
    "argmax": (greedy_token, "padding", ["argmax"]),
    "logsumexp": (log_sum_exp, "padding", ["logsumexp"]),
    "mean": (rms_norm, "padding", ["mean"]),
    "variance": (layer_norm, "padding", ["variance"]),
    "scan": (rewards_to_go, "padding", ["scan"]),
    "dot": (linear_attention_state, "padding", ["dot"]),
    "elements that nobody reads": (squared_norm, "coverage", ["never read"]),
    "rest of a loop": (matmul, "coverage", ["tail", "other tail"]),
    "parts that overlap": (split(25, 8), "coverage", ["split of a", "split of b"]),
    "rest of a split": (split(24), "coverage", ["split of a", "split of b"]),
    "block outside of its descriptor": (scale_rows, "coverage", ["descriptor"]),
    "float to integer": (quantise, "narrowing", ["float to int"]),
    "integer to integer": (first_match, "narrowing", ["int to int"]),
    "cast to fp16": (unscale_gradient, "narrowing", ["fp16"]),
    "counter before its partial sum": (sum_by_last, "race", ["race"]),
    "exp without the maximum": (router_weights, "inf", ["inf"]),
    "rows that no program stores": (row_statistics, "unwritten-output", ["unwritten"]),
    "swapped strides": (gelu_rows, "row-overrun", ["strides"]),
    "next row": (row_l2, "row-overrun", ["next row"]),
}
ALL = pytest.mark.parametrize(("work", "kind", "lines"), KINDS.values(), ids=list(KINDS))


@ALL
def test_silent_bug_is_reported_at_its_line(reported, work, kind, lines):
    got, wanted = work(False)
    if kind != "race":  # which may go well
        assert not torch.allclose(got.float(), wanted.float())
    assert sorted({fault.line for fault in reported if fault.kind == kind}) == sorted(
        line(f"BAD {name}") for name in lines
    )


@ALL
def test_mended_kernel_is_silent(reported, work, kind, lines):
    got, wanted = work(True)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert not reported


# What is not written is known of the allocation that a script made, which is not the GPU's here.
@pytest.mark.parametrize("case", [name for name in KINDS if "no program stores" not in name])
def test_silent_bug_is_reported_on_a_gpu(reported, on_a_gpu, case):
    work, kind, lines = KINDS[case]
    work(False)
    found = {fault.line for fault in reported if fault.kind == kind}
    assert found == {line(f"BAD {name}") for name in lines}
