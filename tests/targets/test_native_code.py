from __future__ import annotations

import pytest

from tkdebug.compiler.targets.nvptx.native_code import native_code

PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
ptxas         .     8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 9 registers, used 0 barriers
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     256 bytes stack frame, 252 bytes spill stores, 248 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 1024 bytes smem, 360 bytes cmem[0]
"""
LINKER = """\
info    : 0 bytes gmem
info    : Function properties for 'k':
info    : used 64 registers, used 1 barriers, 256 stack, 2048 bytes smem, 360 bytes cmem[0], 0 lmem
"""


def test_ptxas_block_of_the_kernel_is_read() -> None:
    code = native_code("", b"", "k", PTXAS + LINKER, ())
    assert (code.registers, code.stack_bytes, code.shared_bytes) == (64, 256, 1024)
    assert (code.spill_store_bytes, code.spill_load_bytes) == (252, 248)


def test_linker_block_stands_in_for_a_missing_one() -> None:
    code = native_code("", b"", "k", LINKER, ())
    assert (code.registers, code.stack_bytes) == (64, 256)


def test_log_without_the_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="no entry missing"):
        native_code("", b"", "missing", PTXAS, ())


def test_wgmma_notes_are_kept_with_code_and_line() -> None:
    note = (
        "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to x in the function 'k' in line 168\n"
    )
    (found,) = native_code("", b"", "k", note + PTXAS, ()).warnings
    assert (found.code, found.ptx_line) == ("C7511", 168)
