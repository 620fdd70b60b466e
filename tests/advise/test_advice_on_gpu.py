"""Advice where tensors are on a GPU: what it goes by comes from there."""

import json
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add_up(x, index, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + i * 64, mask=i < n)  # strided
        tl.atomic_add(out + tl.load(index + i, mask=i < n, other=0), value, mask=i < n)

    n = 1 << 16
    x, index = torch.randn(n * 64, device="cuda"), torch.randint(0, 8, (n,), device="cuda")
    add_up[(n // 1024,)](x, index, torch.zeros(8, device="cuda"), n, BLOCK=1024)
"""


@pytest.mark.gpu
def test_accesses_of_tensors_on_the_gpu_are_judged(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "tkdebug", "advise", "--format", "json", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "no advice" not in ended.stderr
    remarks = json.loads(ended.stdout)["remarks"]
    assert {(remark["kernel"], remark["line"]) for remark in remarks} >= {("add_up", 10)}
