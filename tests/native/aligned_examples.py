"""The examples on sizes whose rows are multiples of 16 bytes, as their kernels are meant to run.

A script for `corpus.py`: `aligned_examples.py NAME`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    return [torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes]


def attention(example: dict) -> None:
    q, k, v = tensors(*[(1, 2, 256, 64)] * 3)
    for causal in (False, True):
        example["attention"](q, k, v, causal)


def layer_norm(example: dict) -> None:
    x, weight, bias = tensors((32, 2048), (2048,), (2048,))
    example["layer_norm"](x, weight, bias)


def matmul(example: dict) -> None:
    a, b = tensors((256, 256), (256, 512))
    example["matmul"](a, b)
    example["matmul"](a, b, activation="leaky_relu")


def softmax(example: dict) -> None:
    example["softmax"](*tensors((64, 1024), dtype=torch.float32))


def vector_add(example: dict) -> None:
    example["add"](*tensors((4096,), (4096,), dtype=torch.float32))


if __name__ == "__main__":
    name = sys.argv[1]
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    globals()[name](runpy.run_path(str(path)))
