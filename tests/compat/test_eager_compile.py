"""torch.compile natively: inductor's functions run eagerly, other backends as ever."""

import subprocess
import sys
import textwrap

import pytest
import torch

from tkdebug import compat
from tkdebug.compat import eager_compile


@pytest.fixture(autouse=True)
def unsaid():
    eager_compile._say_once.cache_clear()


def test_what_inductor_would_compile_runs_eagerly(capfd):
    before = torch.compile
    model = torch.nn.Linear(2, 2)

    def double(x):
        return x * 2

    with compat.install("native"):
        assert torch.compile(double) is double
        assert torch.compile(double, backend="inductor", mode="max-autotune") is double
        assert torch.compile(fullgraph=True)(double) is double
        assert torch.compile(model) is model
        model.compile()
        assert model(torch.ones(1, 2)).shape == (1, 2)
    assert torch.compile is before
    assert capfd.readouterr().err.count("torch.compile runs its functions eagerly") == 1


def test_other_backends_compile(capfd):
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    with compat.install("native"):
        assert torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1)).item() == 2
    assert len(seen) == 1
    assert "eagerly" not in capfd.readouterr().err


def test_child_processes_compile_eagerly_too(tmp_path):
    child = "import torch; f = lambda x: x; print(torch.compile(f) is f)"
    parent = f"""
        import subprocess, sys
        from tkdebug import compat
        compat.install("native")
        import torch
        f = lambda x: x
        print(torch.compile(f) is f, flush=True)
        subprocess.run([sys.executable, "-c", {child!r}], check=True)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(parent)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert run.stdout.split() == ["True", "True"]
