"""Device asserts in native kernels: only where debugging is asked for."""

from __future__ import annotations

import pytest

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import NativeOptions, compile_module

KERNEL = """
tt.func @k(%p: !tt.ptr<i32>, %n: i32) attributes {arg_names = ["p", "n"]} {
  %zero = arith.constant 0 : i32
  %ok = arith.cmpi %n, %zero {predicate = "sgt"} : (i32, i32) -> i1
  tt.assert %ok {message = "n is not positive"} : i1
  tt.store %p, %n : !tt.ptr<i32>, i32
  tt.return
}
"""


@pytest.mark.parametrize("debug", [False, True])
def test_assert_is_compiled_in_for_debugging_only(debug: bool) -> None:
    options = NativeOptions(num_warps=1, debug=debug)
    compiled = compile_module(parse_module(KERNEL), options, TARGETS["sm_90a"])
    assert ("__assertfail" in compiled.code.ptx) is debug
    assert "st.global" in compiled.code.ptx
