"""The exact text of compile errors, compared with tests/golden/frontend_errors.txt.

Run with UPDATE_GOLDEN=1 to write the file again.
"""

from __future__ import annotations

import os
from pathlib import Path

import malformed_kernels
from frontend_support import FP32_PTR, error_of, message_of

import tkdebug.language as tl
from tkdebug.compiler.dtypes import int32
from tkdebug.runtime.jit.function import JITFunction, jit

GOLDEN = Path(__file__).parent.parent / "golden" / "frontend_errors.txt"
HELPERS = {"inner_helper", "outer_helper", "endless", "return_types"}


def _kernels() -> dict[str, JITFunction]:
    members = vars(malformed_kernels).items()
    return {
        name: value
        for name, value in members
        if isinstance(value, JITFunction) and name not in HELPERS
    }


def _specs(kernel: JITFunction) -> dict[str, object]:
    types = {"p": FP32_PTR, "n": int32, "BLOCK": 8}
    return {name: types[name] for name in kernel.arg_names}


def test_messages_of_malformed_kernels():
    folder = str(Path(__file__).parent)
    texts = []
    for name, kernel in _kernels().items():
        text = str(error_of(kernel, **_specs(kernel))).replace(folder + os.sep, "")
        texts.append(f"== {name}\n{text}\n")
    found = "\n".join(texts)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_error_knows_kernel_frames_and_column():
    kernel = malformed_kernels.in_device_function
    error = error_of(kernel, p=FP32_PTR)
    assert error.kernel == "in_device_function"
    functions = [frame.function for frame in error.frames]
    assert functions == ["in_device_function", "outer_helper", "inner_helper"]
    assert error.source_line[error.column - 1 :] == "y[n]"


@jit
def pointer_with_a_comma(p):
    q = (p + tl.arange(0, 8),)
    tl.load(q)


def test_tuple_in_place_of_a_pointer_is_reported_from_its_comma():
    message = message_of(pointer_with_a_comma, p=FP32_PTR)
    assert "load needs a pointer, got a tuple of 1 value; is there a comma too many" in message
