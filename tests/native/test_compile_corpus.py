"""Examples and upstream's tutorials compile to cubins that LLVM and ptxas accept, without a GPU.

Tutorials are taken from a checkout of upstream 3.6 named by TKDEBUG_UPSTREAM; skipped without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from corpus import Row, failure_table, read_rows

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
UPSTREAM = os.environ.get("TKDEBUG_UPSTREAM")
TUTORIALS = (
    "01-vector-add.py",
    "02-fused-softmax.py",
    "03-matrix-multiplication.py",
    "04-low-memory-dropout.py",
    "05-layer-norm.py",
    "06-fused-attention.py",
    "07-extern-functions.py",
    "08-grouped-gemm.py",
)
# The tutorial itself benchmarks long sequences only.
ATTENTION = """
import importlib.util, sys

spec = importlib.util.spec_from_file_location("attention", sys.argv[1])
attention = sys.modules["attention"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(attention)
attention.test_op(1, 2, 256, 64, True, False, "bwd", "triton-fp16")
attention.test_op(1, 2, 128, 128, True, False, "bwd", "triton-fp16")
attention.test_op(1, 2, 256, 64, False, False, "fwd", "triton-fp8")
attention.test_op(1, 2, 256, 64, True, False, "fwd", "triton-fp8")
"""


def compiled(report: Path, *command: str) -> list[Row]:
    report.touch()
    done = subprocess.run(
        [
            *(sys.executable, str(HERE / "corpus.py"), "--targets", "sm_80,sm_90a"),
            *("--check-gpu-ir", "--no-benchmarks", "--report", str(report), *command),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    rows = read_rows(report)
    assert rows, done.stderr[-3000:]
    return rows


@cache
def example(name: str, folder: Path) -> list[Row]:
    return compiled(folder / f"{name}.jsonl", str(ROOT / "examples" / f"{name}.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("corpus")


def check(rows: list[Row]) -> None:
    assert not [row for row in rows if row.cause], "\n" + failure_table(rows)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_compiles(name: str, folder: Path) -> None:
    check(example(name, folder))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_keeps_everything_in_registers(name: str, folder: Path) -> None:
    rows = example(name, folder) + (aligned(name, folder) if name in ALIGNED else [])
    for row in rows:
        assert (row.spill_bytes, row.local_accesses) == (0, 0), row
        assert not row.notes, row


ALIGNED = ("attention", "layer_norm", "matmul", "softmax", "vector_add")


@cache
def aligned(name: str, folder: Path) -> list[Row]:
    script = str(HERE / "aligned_examples.py")
    rows = compiled(folder / f"{name}-aligned.jsonl", script, name)
    check(rows)
    return rows


@pytest.mark.parametrize("name", ALIGNED)
def test_aligned_example_moves_16_bytes_at_a_time(name: str, folder: Path) -> None:
    for row in aligned(name, folder):
        # A scalar or two may be left.
        assert row.wide_loads, row
        assert row.wide_stores, row
        assert row.loads - row.wide_loads <= 2, row
        assert row.stores - row.wide_stores <= 2, row


@pytest.mark.parametrize("name", ["attention", "matmul"])
def test_aligned_example_multiplies_on_tensor_cores(name: str, folder: Path) -> None:
    for row in aligned(name, folder):
        assert row.wgmma if row.target == "sm_90a" else row.mma, row


@pytest.mark.skipif(not UPSTREAM, reason="TKDEBUG_UPSTREAM names no checkout")
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_compiles(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TKDEBUG_TRITON", "3.6")
    path = str(Path(UPSTREAM or "") / "python" / "tutorials" / name)
    command = [path]
    if name.startswith("06"):
        driver = tmp_path / "driver.py"
        driver.write_text(ATTENTION)
        command = [str(driver), path]
    check(compiled(tmp_path / "rows.jsonl", *command))
