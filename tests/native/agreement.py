"""One kernel, run interpreted on the CPU and native on the GPU, with the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

import tkdebug
from tkdebug import TensorDescriptor

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def tile(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Random numbers; floats lie on a coarse grid, so that ties occur."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        whole = torch.randint(-64, 65, tuple(shape), generator=generator)
        return (whole / 16).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator).bool()
    low, high = (0, 256) if dtype == torch.uint8 else (-100, 101)
    return torch.randint(low, high, tuple(shape), generator=generator).to(dtype)


def run_both(
    kernel: Any,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    num_warps: int = 4,
    **constants: Any,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the outputs of `kernel[(1,)](*inputs, *outputs, …)`: (native, interpreted)."""
    found = []
    for mode, device in (("native", "cuda"), ("interpret", "cpu")):
        given = [x.to(device) for x in inputs]
        made = [torch.zeros_like(x, device=device) for x in outputs]
        with tkdebug.mode(mode):
            kernel[(1,)](*given, *made, num_warps=num_warps, **constants)
        found.append([x.cpu() for x in made])
    return list(zip(*found, strict=True))


def expect_agreement(
    kernel: Any,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    num_warps: int = 4,
    relative: float = 0.0,
    **constants: Any,
) -> None:
    """Both modes give the same, to the bit unless a relative difference is allowed.

    Sums of `tile`'s numbers are exact in any order, but those of bf16: no tolerance is needed.
    """
    for native, interpreted in run_both(kernel, inputs, outputs, num_warps, **constants):
        torch.testing.assert_close(native, interpreted, rtol=relative, atol=0.0, equal_nan=True)


def launch_both(
    kernel: Any, grid: tuple[int, ...], *arguments: Any
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return each tensor, or descriptor's tensor, after a launch: (native, interpreted)."""
    found = []
    for mode, device in (("native", "cuda"), ("interpret", "cpu")):
        moved = [_moved(argument, device) for argument in arguments]
        with tkdebug.mode(mode):
            kernel[grid](*moved)
        tensors = [t.base if isinstance(t, TensorDescriptor) else t for t in moved]
        found.append([t.cpu() for t in tensors if isinstance(t, torch.Tensor)])
    return zip(*found, strict=True)


def _moved(argument: Any, device: str) -> Any:
    if isinstance(argument, TensorDescriptor):
        base = argument.base.to(device)
        return TensorDescriptor(
            base, argument.shape, argument.strides, argument.block_shape, argument.padding
        )
    # A copy, so that neither mode sees what the other has written.
    return argument.clone().to(device) if isinstance(argument, torch.Tensor) else argument


def expect_same_bits(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> None:
    """Both modes leave the same bits in every tensor."""
    for native, interpreted in launch_both(kernel, grid, *arguments):
        assert torch.equal(native.view(torch.uint8), interpreted.view(torch.uint8))
