"""Tiles that fit no device are refused before code is generated for them."""

from __future__ import annotations

import pytest

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.targets.backend import NativeOptions, Observers
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import compile_module

KERNEL = """
tt.func @k(%p: !tt.ptr<f32>) attributes {arg_names = ["p"]} {
  %x = arith.constant 0.0 : f32
  tt.store %p, %x : !tt.ptr<f32>, f32
  tt.return
}
"""


class Refused(Exception):
    """Raised by the callback."""


def test_threads_and_shared_memory_are_known_before_code_is_generated() -> None:
    stages: list[str] = []

    def refuse(threads: int, shared_bytes: int) -> None:
        assert (threads, shared_bytes) == (64, 0)
        raise Refused

    def stage(name: str, text: str) -> None:
        stages.append(name)

    with pytest.raises(Refused):
        compile_module(
            parse_module(KERNEL),
            NativeOptions(num_warps=2),
            TARGETS["sm_80"],
            Observers(on_stage=stage, on_resources=refuse),
        )
    assert stages == []
