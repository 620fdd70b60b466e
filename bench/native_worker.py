"""One of the native benchmark's two processes: runs the kernels on a GPU, compiled one way.

Started by `bench/native.py`: reads requests from stdin, one JSON object a line, and writes answers
to the file descriptor it is given.

    native_worker.py --with tkdebug|triton --answers FD
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

WITH = sys.argv[sys.argv.index("--with") + 1] if "--with" in sys.argv else "triton"
if WITH == "tkdebug":
    from tkdebug.compat import install

    install("native")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from kernels_native import (  # noqa: E402
    add_kernel,
    attention_kernel,
    descriptor_matmul_kernel,
    empty_kernel,
    layer_norm_kernel,
    matmul_kernel,
    softmax_kernel,
)
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

# Larger than any L2: zeroed between timed calls, so that none finds its data there.
L2_EVICTION_BYTES = 256 << 20
LAUNCHES_PER_BATCH, LAUNCH_BATCHES = 100, 60
LOG2_E = math.log2(math.e)


@dataclass
class Work:
    """Work of one row.

    Attributes:
        ours: runs the kernel; the result is compared with `eager`'s.
        eager: the same in torch.
        amount: bytes moved, or operations done.
        unit: GB/s or TFLOP/s.
        tolerance: largest difference relative to the largest element.
    """

    ours: Callable[[], torch.Tensor]
    eager: Callable[[], torch.Tensor]
    amount: float
    unit: str
    tolerance: float


def vector_add(n: int) -> Work:
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out, eager_out = torch.empty_like(x), torch.empty_like(x)

    def ours() -> torch.Tensor:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
        return out

    return Work(ours, lambda: torch.add(x, y, out=eager_out), 12.0 * n, "GB/s", 0)


def softmax(rows: int, cols: int) -> Work:
    x = torch.randn(rows, cols, device="cuda")
    out = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    warps = 4 if block <= 2048 else 8

    def ours() -> torch.Tensor:
        softmax_kernel[(rows,)](
            x, out, x.stride(0), out.stride(0), cols, BLOCK=block, num_warps=warps
        )
        return out

    return Work(ours, lambda: torch.softmax(x, -1), 8.0 * rows * cols, "GB/s", 1e-5)


def layer_norm(rows: int, cols: int) -> Work:
    x = torch.randn(rows, cols, device="cuda", dtype=torch.float16)
    weight, bias = (torch.randn(cols, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(x)
    block = triton.next_power_of_2(cols)

    def ours() -> torch.Tensor:
        layer_norm_kernel[(rows,)](
            x, out, weight, bias, x.stride(0), cols, 1e-5, BLOCK=block, num_warps=8
        )
        return out

    def eager() -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (cols,), weight, bias, 1e-5)

    return Work(ours, eager, 4.0 * rows * cols, "GB/s", 1e-2)


def matmul(n: int, dtype: str) -> Work:
    element = getattr(torch, dtype)
    is_int = element == torch.int8
    if is_int:
        a, b = (torch.randint(-8, 8, (n, n), device="cuda", dtype=element) for _ in range(2))
    else:
        a, b = (torch.randn(n, n, device="cuda").to(element) for _ in range(2))
    if element.itemsize == 1:
        # The tensor cores take 8-bit operands along k only.
        b = b.T.contiguous().T
    out_dtype = torch.int32 if is_int else torch.float16 if element.itemsize == 1 else element
    c = torch.empty(n, n, device="cuda", dtype=out_dtype)
    accumulator = tl.int32 if is_int else tl.float32
    one = torch.ones((), device="cuda")

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(n, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    def ours() -> torch.Tensor:
        matmul_kernel[grid](a, b, c, n, n, n, *a.stride(), *b.stride(), *c.stride(), accumulator)
        return c

    def eager() -> torch.Tensor:
        if is_int:
            return torch._int_mm(a, b)  # noqa: SLF001
        if element.itemsize == 1:
            return torch._scaled_mm(a, b, one, one, out_dtype=out_dtype)  # noqa: SLF001
        return torch.matmul(a, b)

    return Work(ours, eager, 2.0 * n**3, "TFLOP/s", 0 if is_int else 2e-2)


def descriptor_matmul(n: int) -> Work:
    a, b = (torch.randn(n, n, device="cuda").half() for _ in range(2))
    c = torch.empty_like(a)
    # The tuner sets the blocks.
    described = [TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in (a, b, c)]

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(n, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    def ours() -> torch.Tensor:
        descriptor_matmul_kernel[grid](*described, n, n, n)
        return c

    return Work(ours, lambda: torch.matmul(a, b), 2.0 * n**3, "TFLOP/s", 2e-2)


def attention(head_dim: int, causal: bool) -> Work:
    batch, heads, tokens = 4, 32, 4096
    shape = (batch, heads, tokens, head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    scale = head_dim**-0.5

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return triton.cdiv(tokens, meta["BLOCK_M"]), batch * heads

    def ours() -> torch.Tensor:
        attention_kernel[grid](
            q, k, v, out, scale * LOG2_E, q.stride(1), q.stride(2), tokens, head_dim, causal
        )
        return out

    def eager() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    amount = 4.0 * batch * heads * tokens * tokens * head_dim * (0.5 if causal else 1)
    return Work(ours, eager, amount, "TFLOP/s", 2e-2)


def tutorial_attention(file: str, head_dim: int, causal: bool, backward: bool) -> Work:
    """Attention by the file of upstream's tutorial 06, at its sizes."""
    batch, heads, tokens = 4, 32, 4096
    spec = importlib.util.spec_from_file_location("tutorial", file)
    assert spec is not None
    assert spec.loader is not None
    tutorial = importlib.util.module_from_spec(spec)
    sys.modules["tutorial"] = tutorial
    spec.loader.exec_module(tutorial)
    shape = (batch, heads, tokens, head_dim)
    q, k, v = (
        torch.randn(shape, device="cuda", dtype=torch.float16, requires_grad=backward)
        for _ in range(3)
    )
    scale = head_dim**-0.5

    def ours() -> torch.Tensor:
        return tutorial.attention(q, k, v, causal, scale, False)

    def eager() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale
        )

    forward = 4.0 * batch * heads * tokens * tokens * head_dim * (0.5 if causal else 1)
    if not backward:
        return Work(ours, eager, forward, "TFLOP/s", 2e-2)
    gradient = torch.randn(shape, device="cuda", dtype=torch.float16)

    def backward_of(attend: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        out = attend()
        return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)[0]

    # Five products for forward's two.
    return Work(backward_of(ours), backward_of(eager), 2.5 * forward, "TFLOP/s", 2e-2)


MAKERS: dict[str, Callable[..., Work]] = {
    "vector-add": vector_add,
    "softmax": softmax,
    "layer-norm": layer_norm,
    "matmul": matmul,
    "descriptor-matmul": descriptor_matmul,
    "attention": attention,
    "tutorial-attention": tutorial_attention,
}


def device_ms(call: Callable[[], object], rep_ms: float) -> float:
    """Median device time of `call`, its data not in L2."""
    cache = torch.empty(L2_EVICTION_BYTES // 4, dtype=torch.int, device="cuda")
    for _ in range(3):
        cache.zero_()
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(5):
        cache.zero_()
        call()
    end.record()
    torch.cuda.synchronize()
    calls = min(1000, max(5, int(rep_ms / (start.elapsed_time(end) / 5))))
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    for before, after in pairs:
        cache.zero_()
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) for before, after in pairs)


_prepared: dict[str, Work] = {}


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    """Make a row's tensors, compile and tune its kernel, check its result."""
    _prepared.clear()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    work = MAKERS[request["work"]](*request["arguments"])
    _prepared["work"] = work
    got, expected = work.ours().double(), work.eager().double()
    error = float((got - expected).abs().max() / expected.abs().max().clamp_min(1e-30))
    # A NaN compares as false.
    if not error <= work.tolerance:
        raise ValueError(
            f"wrong result: error {error:.2g} of the largest, expected {work.tolerance:g} at most"
        )
    return {"amount": work.amount, "unit": work.unit}


def time_ours(request: dict[str, Any]) -> dict[str, Any]:
    return {"ms": device_ms(_prepared["work"].ours, request["rep_ms"])}


def time_eager(request: dict[str, Any]) -> dict[str, Any]:
    return {"ms": device_ms(_prepared["work"].eager, request["rep_ms"])}


def no_op_hook(metadata: Any) -> None:
    pass


def launch(request: dict[str, Any]) -> dict[str, Any]:
    """Host time of a launch of an empty kernel, in us: median of batches that fit the queue."""
    a, b, c = (torch.empty(64, device="cuda") for _ in range(3))
    chains = (triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook)
    for chain in chains if request["hooked"] else ():
        chain.add(no_op_hook)
    try:
        empty_kernel[(1,)](a, b, c, 64, 65, BLOCK=64)
        times_us = []
        for _ in range(LAUNCH_BATCHES):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(LAUNCHES_PER_BATCH):
                empty_kernel[(1,)](a, b, c, 64, 65, BLOCK=64)
            times_us.append((time.perf_counter() - started) / LAUNCHES_PER_BATCH * 1e6)
    finally:
        for chain in chains if request["hooked"] else ():
            chain.remove(no_op_hook)
    torch.cuda.synchronize()
    return {"us": statistics.median(times_us)}


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Have a CUDA context."""
    torch.empty(1, device="cuda")
    return {}


def compile_cold(request: dict[str, Any]) -> dict[str, Any]:
    """Time of a first compile in a process that has compiled nothing, in ms."""
    f32, f16 = torch.float32, torch.float16
    started = time.perf_counter()
    if request["work"] == "vector-add":
        add_kernel.warmup(f32, f32, f32, 1 << 20, BLOCK=1024, grid=(1,))
    elif request["work"] == "softmax":
        softmax_kernel.warmup(f32, f32, 4096, 4096, 4096, BLOCK=4096, num_warps=8, grid=(1,))
    else:
        sizes = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}
        n = 4096
        matmul_kernel.fn.warmup(
            f16, f16, f16, n, n, n, n, 1, n, 1, n, 1, tl.float32, **sizes, num_warps=8,
            num_stages=3, grid=(1,),
        )  # fmt: skip
    return {"ms": (time.perf_counter() - started) * 1e3}


REQUESTS = {
    "prepare": prepare,
    "ours": time_ours,
    "eager": time_eager,
    "launch": launch,
    "start": start,
    "compile": compile_cold,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--with", dest="compiler", choices=("tkdebug", "triton"), required=True)
    parser.add_argument("--answers", type=int, required=True)
    arguments = parser.parse_args()
    with os.fdopen(arguments.answers, "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = REQUESTS[request["what"]](request)
            except Exception as error:
                words = str(error).strip().splitlines() or [""]
                answer = {"error": f"{type(error).__name__}: {words[0][:300]}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
