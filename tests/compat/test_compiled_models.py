"""torch.compile without a GPU: Inductor's kernels are interpreted, and agree with eager runs."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MODELS = HERE / "compiled_models.py"
QUICK = ("exported", "pointwise", "mlp_backward", "kernel_of_the_user", "autocast")
ALL = [
    node.name
    for node in ast.parse(MODELS.read_text("utf-8")).body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(item, ast.Name) and item.id == "case" for item in node.decorator_list)
]
FAULTY = """
import torch
import triton
import triton.language as tl


@triton.jit
def shift(X, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i + 1), mask=i < n)


def model(x):
    y = torch.relu(x) + 1
    z = torch.empty_like(y)
    shift[(1,)](y, z, y.numel(), 64)
    return z * 2


def other(x):
    y = x - 2
    return torch.log(y).sum(-1)


x = torch.rand(64, device="cuda")
torch.compile(model)(x)
torch.compile(other)(x.view(8, 8))
"""


def run(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "tkdebug", "run", "--no-tui", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_quick_models_agree(tmp_path):
    done = run(tmp_path, str(MODELS), "--native", *QUICK)
    assert done.stdout.split() == list(QUICK), done.stderr
    reasons = [line for line in done.stderr.splitlines() if "without being compiled" in line]
    assert len(reasons) == 1
    assert reasons[0].endswith("torch.autocast in compiled functions takes a GPU")
    assert "no faults" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_all_models_agree(tmp_path):
    done = run(tmp_path, str(MODELS), "--native")
    assert done.stdout.split() == ALL, done.stderr[-3000:]
    assert len(ALL) >= 40
    assert "no faults" in done.stderr.splitlines()[-1]


@pytest.mark.gpu
def test_quick_models_agree_on_a_gpu(tmp_path):
    done = run(tmp_path, "--mode", "native", str(MODELS), *QUICK)
    assert done.stdout.split() == list(QUICK), done.stderr
    assert "without being compiled" not in done.stderr
    assert "no faults" in done.stderr.splitlines()[-1]


@pytest.mark.gpu
def test_access_outside_of_a_tensor_is_at_the_models_line_on_a_gpu(tmp_path):
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    options = ("--mode", "native", "--check-launches", "all", "--report", "faults.json")
    done = run(tmp_path, *options, str(script))
    assert done.returncode == 3, done.stderr
    outside, *_ = json.loads((tmp_path / "faults.json").read_text())["faults"]
    assert outside["kind"] == "oob-load"
    assert [(Path(f["file"]).name, f["line"]) for f in outside["call_chain"]] == [
        ("faulty.py", line_of("shift[(1,)]")),
        ("faulty.py", line_of("tl.load")),
    ]


def line_of(text):
    return next(i for i, line in enumerate(FAULTY.splitlines(), 1) if text in line)


def test_faults_are_at_the_models_lines(tmp_path):
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    done = run(tmp_path, "--report", "faults.json", str(script))
    assert done.returncode == 3, done.stderr
    report = json.loads((tmp_path / "faults.json").read_text())
    outside, born = report["faults"]
    timed = {(each["line"], each["op"]) for k in report["model_lines"] for each in k["lines"]}
    assert {(line_of("torch.relu"), "aten.relu"), (line_of("torch.log"), "aten.log")} <= timed
    assert outside["kind"] == "oob-load"
    assert [(Path(f["file"]).name, f["line"]) for f in outside["call_chain"]] == [
        ("faulty.py", line_of("shift[(1,)]")),
        ("faulty.py", line_of("tl.load")),
    ]
    assert born["kind"] == "nan"
    assert [(f["file"], f["line"]) for f in born["call_chain"][:-1]] == [
        (str(script), line_of("torch.log"))
    ]
    assert "aten.log" in born["hint"]
    generated = Path(born["call_chain"][-1]["file"]).read_text().splitlines()
    assert "log(" in generated[born["call_chain"][-1]["line"] - 1]


AGAIN = """
import torch
from tkdebug import compat

before = torch.compile, torch.export.export
for _ in range(2):
    with compat.install("interpret"):
        x = torch.rand(8, device="cuda")
        print(torch.allclose(torch.compile(lambda x: x.sin() + 1)(x), x.sin() + 1))
    print((torch.compile, torch.export.export) == before)
    try:
        torch.ops.aten.empty.memory_format([2], device=torch.device("cuda:0"))
    except NotImplementedError as error:
        print("CUDA" in str(error))
    torch._dynamo.reset()
    print(torch._inductor.config.fx_graph_cache)
    print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""


@pytest.mark.slow
def test_all_is_put_back_and_can_be_installed_again(tmp_path):
    (tmp_path / "again.py").write_text(AGAIN)
    done = subprocess.run(
        [sys.executable, "again.py"],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["True", "True", "True", "True", "2.0"] * 2, done.stderr
    assert "without being compiled" not in done.stderr
