"""torch.compile without a GPU: Inductor's kernels are interpreted, and agree with eager runs."""

import ast
import json
from pathlib import Path

import pytest
import torch
from warm_python import ENVIRONMENT, run_module, run_python

from tkdebug import compat
from tkdebug.compat.cuda_standin import compiling, cuda_usable
from tkdebug.instrument.analyses.compiled_models import uncompiled_data
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session

HERE = Path(__file__).resolve().parent
MODELS, PROGRAMS = HERE / "compiled_models.py", HERE / "compiled_programs.py"
QUICK = ("exported", "pointwise", "mlp_backward", "kernel_of_the_user", "autocast")
INTERPRETED = (
    *("exported", "linear_of_odd_sizes", "recurrent_network", "adam", "tuned_kernel"),
    *("kernels_of_an_autograd_function", "numbers_out_of_tensors", "broken_graphs"),
    *("copies_between_devices", "version_of_triton"),
)
NATIVE_TOO = ("mlp_backward", "kernel_of_the_user", "autocast")


def cases_of(script):
    """Return the names of a script's cases, in order."""
    return [
        node.name
        for node in ast.parse(script.read_text("utf-8")).body
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


def environment(tmp_path):
    """Return variables with an empty cache of Inductor's: what is in one hides failures."""
    cache = str(tmp_path / "inductor")
    return {**ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": cache}


def run(tmp_path, *arguments):
    words = ("run", "--no-tui", "--report", "run.json", *arguments)
    variables = environment(tmp_path)
    return run_module("tkdebug", *words, env=variables, cwd=tmp_path, timeout=900)


def report_of(tmp_path):
    return json.loads((tmp_path / "run.json").read_text("utf-8"))


def reasons(tmp_path):
    """Return why graphs of the run were not compiled."""
    return [graph["reason"] for graph in report_of(tmp_path)["uncompiled_graphs"]]


def test_quick_models_agree(tmp_path):
    done = run(tmp_path, str(PROGRAMS), *INTERPRETED, "--native", *NATIVE_TOO)
    assert done.stdout.split() == [*INTERPRETED, *NATIVE_TOO], done.stderr
    assert reasons(tmp_path) == []
    assert "no faults" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(cuda_usable(), reason="a real CUDA device is here")
def test_a_graph_that_is_not_compiled_runs_and_is_reported(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from torch._inductor.graph import GraphLowering\n"
        "def fail(self, *inputs):\n"
        "    raise NotImplementedError('no lowering')\n"
        "GraphLowering.run = fail\n"
        "@torch.compile\n"
        "def model(x):\n"
        "    return x.sin() + 1\n"
        "x = torch.ones(4, device='cuda')\n"
        "assert torch.equal(model(x), x.sin() + 1)\n",
        "utf-8",
    )
    done = run(tmp_path, str(script))
    assert done.returncode == 0, done.stderr
    (graph,) = report_of(tmp_path)["uncompiled_graphs"]
    assert "no lowering" in graph["reason"]
    assert (Path(graph["file"]).name, graph["line"]) == ("script.py", 8)
    place = f"{graph['file']}:{graph['line']}"
    assert f"a graph that begins at {place} runs without being compiled" in done.stderr
    assert "no faults, 1 graph ran uncompiled" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(cuda_usable(), reason="a real CUDA device is here")
def test_measured_models_are_interpreted_without_a_gpu(tmp_path):
    bench = HERE.parents[1] / "bench" / "compiled_models.py"
    words = (bench, "reduce_overhead", "kernel_of_the_user")
    done = run_python(*words, env=environment(tmp_path), timeout=600)
    assert done.returncode == 0, done.stderr
    names = [line.split()[:2] for line in done.stdout.splitlines()]
    assert names == [["reduce_overhead", "equal"], ["kernel_of_the_user", "equal"], ["2", "of"]]


@pytest.mark.slow
def test_all_models_agree(tmp_path):
    names = [*cases_of(PROGRAMS), *cases_of(MODELS)]
    done = run(tmp_path, str(PROGRAMS), "--native")
    assert done.stdout.split() == names, done.stderr[-3000:]
    assert len(names) >= 80
    assert reasons(tmp_path) == []
    assert "no faults" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(cuda_usable(), reason="a real CUDA device is here")
def test_functions_run_uncompiled_with_an_unknown_compiler(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(compiling, "_prepare", lambda *arguments: "no module named odd")
    recorder = Recorder(tmp_path / "run.tkd", script="k.py", output=False).start()
    with compat.install(mode="interpret"):
        layer = torch.nn.Linear(8, 8)
        for compile in (torch.compile, torch.compile()):
            assert compile(cases_of) is cases_of
        assert torch.compile(layer) is layer
        assert torch.compile(torch.sin) is torch.sin
    recorder.stop(0)
    with Session.open(tmp_path / "run.tkd") as session:
        graphs = list(uncompiled_data(session))
    line = cases_of.__code__.co_firstlineno
    forward = (torch.nn.modules.linear.__file__, "forward")
    assert [(g["file"], g["line"], g["function"]) for g in graphs[:2]] == [
        (__file__, line, "cases_of")
    ] * 2
    assert (graphs[2]["file"], graphs[2]["function"]) == forward
    assert graphs[3]["file"] is None
    (reason,) = {graph["reason"] for graph in graphs}
    assert reason.endswith("is not known to tkdebug (no module named odd)")
    assert capfd.readouterr().err.count(f"runs its functions eagerly: {reason}") == 1


@pytest.mark.gpu
def test_quick_models_agree_on_a_gpu(tmp_path):
    names = [*QUICK, *INTERPRETED[1:]]
    done = run(tmp_path, "--mode", "native", str(PROGRAMS), *names)
    assert done.stdout.split() == names, done.stderr
    assert reasons(tmp_path) == []
    assert "no faults" in done.stderr.splitlines()[-1]


@pytest.mark.gpu
def test_access_outside_of_a_tensor_is_at_the_models_line_on_a_gpu(tmp_path):
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    options = ("--mode", "native", "--check-launches", "all")
    done = run(tmp_path, *options, str(script))
    assert done.returncode == 3, done.stderr
    outside, *_ = report_of(tmp_path)["faults"]
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
    done = run(tmp_path, str(script))
    assert done.returncode == 3, done.stderr
    report = report_of(tmp_path)
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
    done = run_python("again.py", env=environment(tmp_path), cwd=tmp_path)
    assert done.stdout.split() == ["True", "True", "True", "True", "2.0"] * 2, done.stderr
    assert "without being compiled" not in done.stderr
