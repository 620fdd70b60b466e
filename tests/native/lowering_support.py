"""Kernels run twice: as Tile IR, and as it stands after lowering passes; memory must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

import tkdebug.interpreter.launch
from tkdebug.compiler.ir import DescriptorType, Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import TILE_PIPELINE, Pass, PassManager

_run = tkdebug.interpreter.launch.run_module


def lowered(module: Module, passes: Sequence[Pass]) -> Module:
    """A copy of `module` after `passes` and another round of the Tile IR passes, all verified."""
    copy = parse_module(print_module(module, locations=True))
    PassManager([*passes, *TILE_PIPELINE], verify_each=True, print_after=()).run(copy)
    return copy


def spread_values(module: Module, values: Sequence[Any]) -> list[Any]:
    """The values of a launch as a kernel with lowered descriptors takes them."""
    spread: list[Any] = []
    for argument, value in zip(module.function.regions[0].block.arguments, values, strict=True):
        if isinstance(argument.type, DescriptorType):
            spread += [value.base, *value.shape, *value.strides]
        else:
            spread.append(value)
    return spread


@contextmanager
def run_lowered_too(
    passes: Sequence[Pass], compare: Callable[[torch.Tensor, torch.Tensor], None]
) -> Iterator[list[Module]]:
    """Every launch inside the `with` also runs lowered, from the same memory; gives the modules."""
    seen: list[Module] = []

    def run(module: Module, values: Sequence[Any], grid: Any, *rest: Any, **keywords: Any) -> Any:
        spread = spread_values(module, values)
        tensors = [value for value in spread if isinstance(value, torch.Tensor)]
        before = [_memory(tensor).clone() for tensor in tensors]
        faults = _run(module, values, grid, *rest, **keywords)
        after = [_memory(tensor).clone() for tensor in tensors]
        for tensor, old in zip(tensors, before, strict=True):
            _memory(tensor).copy_(old)
        copy = lowered(module, passes)
        seen.append(copy)
        again = _run(copy, spread, grid, *rest, **keywords)
        assert [fault.kind for fault in again] == [fault.kind for fault in faults]
        for tensor, wanted in zip(tensors, after, strict=True):
            compare(_memory(tensor).view(tensor.dtype), wanted.view(tensor.dtype))
        return faults

    with mock.patch.object(tkdebug.interpreter.launch, "run_module", run):
        yield seen


def same_bits(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Every byte agrees."""
    assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8))


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the whole allocation."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
