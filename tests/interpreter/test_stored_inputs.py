"""Arguments that are only stored to although they are inputs by their names."""

import pytest
import torch
from differential import load_kernel, run
from marked_lines import only

from tkdebug.interpreter.checks.stored_inputs import role_of
from tkdebug.knobs import scope

N = 16
# Arguments, and what the kernel does with tiles of them.
BUGS = {
    "swapped": ("x_ptr, out_ptr", "store(x_ptr, load(out_ptr) * 2)"),
    "wrong pointer": ("x_ptr, y_ptr, out_ptr", "store(x_ptr, load(y_ptr) + load(y_ptr))"),
    "source and destination": ("src, dst", "store(src, load(dst))"),
    "numbered": ("in_ptr0, in_ptr1, out_ptr0", "store(in_ptr1, load(in_ptr0))"),
    "weights": ("a_ptr, weight_ptr, output_ptr", "store(weight_ptr, load(a_ptr))"),
    "second of two": ("x, y, out0, out1", "store(out0, load(y)); store(x, load(y))"),
    "capitals": ("Input, Output", "store(Input, load(Output))"),
    "camel case": ("srcPtr, dstPtr", "store(srcPtr, load(dstPtr) + 1)"),
    "residual": ("h, residual_ptr, out_ptr", "store(residual_ptr, load(h) + load(out_ptr))"),
    "query": ("q_ptr, k_ptr, result_ptr", "store(q_ptr, load(k_ptr) * load(k_ptr))"),
}
MEANT = {
    "as named": ("x_ptr, out_ptr", "store(out_ptr, load(x_ptr))"),
    "in place": ("x_ptr, out_ptr", "store(x_ptr, load(x_ptr) + load(out_ptr))"),
    "filled": ("x_ptr, n", "store(x_ptr, i * 1.0)"),
    "gradient of an input": ("grad_input, output", "store(grad_input, load(output))"),
    "dx": ("dx_ptr, out_ptr", "store(dx_ptr, load(out_ptr))"),
    "both stored": ("x_ptr, out_ptr, y", "store(x_ptr, load(y)); store(out_ptr, load(y))"),
    "no output named": ("x_ptr, y_ptr", "store(x_ptr, load(y_ptr))"),
    "new values": ("new_x_ptr, out_ptr", "store(new_x_ptr, load(out_ptr))"),
    "of other kernels": ("down_inp, gating_output", "store(down_inp, load(gating_output))"),
    "updated by atomics": ("x_ptr, out_ptr", "tl.atomic_add(x_ptr + i, load(out_ptr))"),
}


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("stored-input",)):
        yield


def launched(tmp_path, arguments, body):
    body = body.replace("; ", "\n    ")
    for word in ("load(", "store("):
        parts = body.split(word)
        body = parts[0] + "".join(
            f"tl.{word}" + part.replace(")", " + i)", 1)
            if word == "load("
            else f"tl.{word}" + part.replace(",", " + i,", 1)
            for part in parts[1:]
        )
    source = (
        "import tkdebug\nimport tkdebug.language as tl\n\n\n@tkdebug.jit\n"
        f"def kernel({arguments}):\n    i = tl.arange(0, {N})\n    {body}\n"
    )
    values = [N if name == "n" else torch.ones(N) for name in arguments.split(", ")]
    return run(load_kernel(tmp_path, source), (1,), *values)


@pytest.mark.parametrize(("arguments", "body"), BUGS.values(), ids=list(BUGS))
def test_an_input_that_is_only_stored_to_beside_an_output_that_is_not(tmp_path, arguments, body):
    fault = only(launched(tmp_path, arguments, body))
    assert (fault.kind, fault.severity) == ("stored-input", "warning")
    assert role_of(fault.tensor) == "input"
    assert "is only stored to" in fault.message


@pytest.mark.parametrize(("arguments", "body"), MEANT.values(), ids=list(MEANT))
def test_what_may_be_stored_to_is_silent(tmp_path, arguments, body):
    assert not launched(tmp_path, arguments, body)
