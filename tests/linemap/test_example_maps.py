"""Line tables of the examples and of upstream's tutorials, compiled without a GPU.

Tutorials are taken from a checkout of upstream 3.6 named by TKDEBUG_UPSTREAM; skipped without one.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from map_checks import differences_from_nvdisasm, problems
from native_support import needs_codegen, needs_libdevice, needs_nvdisasm

from tkdebug.cli import main
from tkdebug.knobs import KNOBS
from tkdebug.linemap.line_table import LineTable
from tkdebug.linemap.line_table_data import from_data

ROOT = Path(__file__).resolve().parents[2]
UPSTREAM = os.environ.get("TKDEBUG_UPSTREAM")
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
TUTORIALS = (
    "01-vector-add",
    "02-fused-softmax",
    "03-matrix-multiplication",
    "04-low-memory-dropout",
    "05-layer-norm",
    "06-fused-attention",
    "07-extern-functions",
    "08-grouped-gemm",
)
# The same one has the same place in each list: its tests run one after the other.
ON_SM90 = [("sm_90a", name) for name in EXAMPLES]
CASES = [*ON_SM90, ("sm_80", "matmul"), ("sm_80", "attention")]
# The tutorial itself benchmarks long sequences only.
ATTENTION = """
import importlib.util, sys

spec = importlib.util.spec_from_file_location("attention", sys.argv[1])
attention = sys.modules["attention"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(attention)
attention.test_op(1, 2, 256, 64, True, False, "bwd", "triton-fp16")
attention.test_op(1, 2, 256, 64, False, False, "fwd", "triton-fp8")
attention.test_op(1, 2, 256, 64, True, False, "fwd", "triton-fp8")
"""
pytestmark = [needs_codegen, needs_libdevice, needs_nvdisasm]


class Mapped(NamedTuple):
    table: LineTable
    cubin: bytes


def lines_of(folder: Path, target: str, *command: str) -> list[Mapped]:
    dump, out = folder / "dump", folder / "lines.json"
    words = ["lines", "--target", target, "--format", "json", "-o", str(out), *command]
    with KNOBS.scope(dump_dir=dump):
        assert main(words) == 0
    kernels = json.loads(out.read_text())["kernels"]
    assert kernels
    return [
        Mapped(
            from_data(kernel["table"]),
            (dump / f"{kernel['name']}-{kernel['hash'][:16]}" / "kernel.cubin").read_bytes(),
        )
        for kernel in kernels
    ]


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    @cache
    def compile_example(target: str, name: str) -> list[Mapped]:
        folder = tmp_path_factory.mktemp(name)
        return lines_of(folder, target, str(ROOT / "examples" / f"{name}.py"))

    return compile_example


def check(kernels: list[Mapped]) -> None:
    for table, _ in kernels:
        print(f"{table.kernel} {table.target}: {table.mapped_percent:.1f} % mapped")
    found = [line for table, _ in kernels for line in problems(table)]
    assert not found, "\n".join(found)


def check_against_nvdisasm(kernels: list[Mapped]) -> None:
    found = [line for table, cubin in kernels for line in differences_from_nvdisasm(table, cubin)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("case", CASES, ids="-".join, scope="module")
def test_instructions_are_on_lines_with_such_ops(example, case) -> None:
    check(example(*case))


@pytest.mark.parametrize("case", CASES, ids="-".join, scope="module")
def test_lines_are_those_of_nvdisasm(example, case) -> None:
    check_against_nvdisasm(example(*case))


@pytest.mark.parametrize("case", ON_SM90, ids="-".join, scope="module")
def test_registers_in_use_are_within_the_kernels(example, case) -> None:
    for table, _ in example(*case):
        most = max(i.live_registers or 0 for i in table.instructions)
        assert 0 < most <= table.resources.registers


@pytest.mark.skipif(not UPSTREAM, reason="TKDEBUG_UPSTREAM names no checkout")
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial(name: str, tmp_path: Path) -> None:
    command = [str(Path(UPSTREAM or "") / "python" / "tutorials" / f"{name}.py")]
    if name.startswith("06"):
        driver = tmp_path / "driver.py"
        driver.write_text(ATTENTION)
        command = [str(driver), "--", *command]
    kernels = lines_of(tmp_path, "sm_90a", "--triton", "3.6", *command)
    check(kernels)
    check_against_nvdisasm(kernels)
