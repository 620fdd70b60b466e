"""A function of the language that is added: one class in its dialect, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
# Added to `tkdebug/compiler/dialects/math.py`, which is otherwise as it is.
SINH = '''

class Sinh(FloatFunction):
    """Hyperbolic sine, fp32 or fp64."""

    name = "math.sinh"
    function = torch = libdevice = "sinh"
'''
LOADER = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader

class Adding(SourceFileLoader):
    def get_code(self, name):
        path = self.get_filename(name)
        return self.source_to_code(self.get_data(path) + ADDED.encode(), path)

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        if name == "tkdebug.compiler.dialects.math":
            spec.loader = Adding(name, spec.origin)
            return spec

sys.meta_path.insert(0, Finder)
"""
PROGRAM = """
import json
import torch
import tkdebug
import tkdebug.language as tl
from differential import launch
from op_kernels import Kernel
from tkdebug.compiler.ops import reference
from tkdebug.knobs import scope

@tkdebug.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, tl.sinh(x) * (tl.math.sinh(x) / x.sinh()))

@tkdebug.jit
def difference(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    high = tl.sinh(tl.load(x_ptr + offsets))
    tl.store(y_ptr + offsets, high - tl.sinh(high))

def native(type_):
    kernel = Kernel(None)
    kernel.apply("math.sinh", [type_], [type_])
    return kernel.llvm()

x, y = torch.linspace(-3.0, 3.0, 16), torch.empty(16)
seen = launch(kernel, (1,), x, y, BLOCK=16)
with scope(checks=("inf", "nan")):
    faults = launch(difference, (1,), x.clone().fill_(89.0), torch.empty(16), BLOCK=16).faults
print(json.dumps({
    "error": float((y - torch.sinh(x)).abs().max()),
    "ops": [op.name for op in seen.module.walk() if op.name.startswith("math.")],
    "faults": [fault.message for fault in faults],
    "page": "".join(reference.pages().values()),
    "native": [native(type_) for type_ in ("f16", "f32", "f64")],
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a process with the class knows of `tl.sinh`."""
    script = tmp_path_factory.mktemp("sinh") / "program.py"
    script.write_text(f"ADDED = {SINH!r}\n{LOADER}\n{PROGRAM}")
    folders = [TESTS.parent, TESTS / "interpreter", TESTS / "lowering"]
    path = os.pathsep.join(map(str, folders))
    process = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": path, "TKDEBUG_MODE": "interpret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    found: dict[str, Any] = json.loads(process.stdout)
    return found


def test_added_function_is_computed_by_the_interpreter(seen: dict[str, Any]) -> None:
    assert seen["error"] < 1e-5


def test_added_function_is_pure_so_that_equal_calls_merge(seen: dict[str, Any]) -> None:
    assert seen["ops"] == ["math.sinh"]


def test_added_function_is_lowered_for_every_float(seen: dict[str, Any]) -> None:
    calls = [re.findall(r"call \w+ @(\w+)\(", text) for text in seen["native"]]
    assert calls == [["__nv_sinhf"], ["__nv_sinhf"], ["__nv_sinh"]]


def test_added_function_is_on_the_reference_page(seen: dict[str, Any]) -> None:
    page = seen["page"]
    assert "## `tl.sinh(x)` *method*\n\nHyperbolic sine, fp32 or fp64." in page
    assert "| `math.sinh` | source | Hyperbolic sine, fp32 or fp64. | none |" in page


def test_added_function_is_named_where_it_makes_an_infinity(seen: dict[str, Any]) -> None:
    assert any("sinh(89)" in message for message in seen["faults"]), seen["faults"]
