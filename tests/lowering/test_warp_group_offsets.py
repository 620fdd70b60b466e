"""Addresses of the steps of `wgmma` in shared memory: the offsets of matrix descriptors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tkdebug.compiler.layouts import OFFSET, nvmma_shared
from tkdebug.compiler.targets.nvptx.lowering.dots.wgmma import _Matrix, _offset

SHAPE = (64, 64)


@given(st.integers(0, SHAPE[0] - 1), st.integers(0, SHAPE[1] - 1), st.sampled_from([32, 64, 128]))
def test_an_offset_is_that_of_the_buffer_s_layout(row: int, column: int, swizzle: int) -> None:
    layout = nvmma_shared(SHAPE, swizzle, 16)
    matrix = _Matrix(0, layout.pseudo_inverse(), False, 2)
    offset = _offset(matrix, {"dim0": row, "dim1": column})
    assert layout.apply({OFFSET: offset}) == {"dim0": row, "dim1": column}
