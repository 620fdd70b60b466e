"""Examples and upstream's tutorials compile to cubins that LLVM and ptxas accept, without a GPU.

Tutorials are taken from a checkout of upstream 3.6 named by TKDEBUG_UPSTREAM; skipped without one.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from corpus import Corpus, Row, failure_table, run_script

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WITH_DOTS = ("attention", "matmul")
ALIGNED = (*WITH_DOTS, "layer_norm", "softmax", "vector_add")
# In this order an example has the same place in each list: its tests run one after the other.
OTHERS = {path.stem for path in (ROOT / "examples").glob("*.py")} - {*ALIGNED}
EXAMPLES = (*ALIGNED, *sorted(OTHERS))
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


def compiled(script: Path, *arguments: str) -> list[Row]:
    corpus = Corpus(("sm_80", "sm_90a"), check_gpu_ir=True)
    run_script(corpus, str(script), *arguments, has_benchmarks=False)
    assert corpus.rows
    return corpus.rows


@cache
def example(name: str) -> list[Row]:
    return compiled(ROOT / "examples" / f"{name}.py")


def check(rows: list[Row]) -> None:
    assert not [row for row in rows if row.cause], "\n" + failure_table(rows)


@cache
def aligned(name: str) -> list[Row]:
    rows = compiled(HERE / "aligned_examples.py", name)
    check(rows)
    return rows


@pytest.mark.parametrize("name", EXAMPLES, scope="module")
def test_example_compiles(name: str) -> None:
    check(example(name))


@pytest.mark.parametrize("name", EXAMPLES, scope="module")
def test_example_keeps_everything_in_registers(name: str) -> None:
    rows = example(name) + (aligned(name) if name in ALIGNED else [])
    for row in rows:
        assert (row.spill_bytes, row.local_accesses) == (0, 0), row
        assert not row.notes, row


@pytest.mark.parametrize("name", ALIGNED, scope="module")
def test_aligned_example_moves_16_bytes_at_a_time(name: str) -> None:
    for row in aligned(name):
        # A scalar or two may be left.
        assert row.wide_loads, row
        assert row.wide_stores, row
        assert row.loads - row.wide_loads <= 2, row
        assert row.stores - row.wide_stores <= 2, row


@pytest.mark.parametrize("name", WITH_DOTS, scope="module")
def test_aligned_example_multiplies_on_tensor_cores(name: str) -> None:
    for row in aligned(name):
        assert row.wgmma if row.target == "sm_90a" else row.mma, row


@pytest.mark.skipif(not UPSTREAM, reason="TKDEBUG_UPSTREAM names no checkout")
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_compiles(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TKDEBUG_TRITON", "3.6")
    path = str(Path(UPSTREAM or "") / "python" / "tutorials" / name)
    if not name.startswith("06"):
        check(compiled(Path(path)))
        return
    driver = tmp_path / "driver.py"
    driver.write_text(ATTENTION)
    check(compiled(driver, path))
