"""`cause`: why the last comparison failed, at the script's lines and while a kernel is stopped."""

import pytest

SCRIPT = """\
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, o_ptr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, x * 3.0)

x, out = torch.ones(8), torch.empty(8)
double[(1,)](x, out)
want = x * 2
want[7] = 3
try:
    torch.testing.assert_close(out, want)
except AssertionError:
    pass
print("after")
double[(1,)](x, out)
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(SCRIPT)
    return file


def test_cause_says_what_run_reports(run, script):
    typed = "b 19\nc\ncause\ncause o_ptr[7]\ncause o_ptr[99]\ncause nonsense\nq\n"
    _, out, _ = run(script, typed=typed)
    assert "mismatch in double" in out
    assert "o_ptr[0] is 3, expected 2" in out
    assert "[7] is as it should be" in out
    assert "the tensor that was compared has the shape [8]" in out
    assert "expected an element, such as out[3, 17], got nonsense" in out


def test_cause_of_another_element_while_a_kernel_is_stopped(run, script):
    _, out, _ = run(script, typed="b 19\nc\nb 9\nc\ncause o_ptr[3]\nq\n")
    assert "o_ptr[3] is 3, expected 2" in out


def test_before_a_comparison_there_is_no_cause(run, script):
    _, out, _ = run(script, typed="b 9\nc\ncause\nq\n")
    assert "no comparison of what a launch wrote has failed yet" in out
