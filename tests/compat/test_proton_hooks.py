"""The hooks of Triton's own Proton, files and C++ library as they are, over tkdebug's launches."""

import json
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from warm_python import run_module


def upstream():
    """The folder of an installed Triton."""
    try:
        folder = distribution("triton").locate_file("triton")
    except PackageNotFoundError:
        pytest.skip("upstream Triton is not installed")
    if not (folder / "_C" / "libproton.so").exists():
        pytest.skip("this Triton has no Proton")
    return folder


# `profiler/hooks/__init__` also imports what instruments upstream's own IR; the modules beside it
# are imported by themselves.
SCRIPT = """\
import importlib, importlib.machinery, importlib.util, sys, types
from pathlib import Path
import torch, triton, triton._C, triton.language as tl

upstream, profile = Path(sys.argv[1]), sys.argv[2]
loader = importlib.machinery.ExtensionFileLoader("libproton", str(upstream / "_C/libproton.so"))
library = importlib.util.module_from_spec(importlib.util.spec_from_loader("libproton", loader))
loader.exec_module(library)
triton._C.libproton = sys.modules["triton._C.libproton"] = library
for name, folder in (("proton_as_it_is", "profiler"), ("proton_as_it_is.hooks", "profiler/hooks")):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [str(upstream / folder)]
HookManager = importlib.import_module("proton_as_it_is.hooks.hook").HookManager
LaunchHook = importlib.import_module("proton_as_it_is.hooks.launch").LaunchHook
scope = importlib.import_module("proton_as_it_is.scope").scope
importlib.import_module("proton_as_it_is.flags").flags.profiling_on = True

def facts(grid, metadata, args):
    return {"name": f"add_{args['n']}", "flops32": args["n"], "bytes": 8 * args["n"]}

@triton.jit(launch_metadata=facts)
def add(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

session = library.proton.start(profile, "shadow", "tree", "instrumentation", "cuda")
HookManager.register(LaunchHook(), session)
x = torch.zeros(1000, device="cuda")
with scope("layer"):
    for _ in range(2):
        add[(8,)](x, 1000, B=128)
add[(1,)](x, 100, B=128)
HookManager.unregister(session)
add[(1,)](x, 7, B=128)
library.proton.finalize(session, "hatchet")
"""


def test_launch_hook_writes_proton_s_profile(tmp_path):
    folder = upstream()
    script = tmp_path / "s.py"
    script.write_text(SCRIPT)
    run = ("tkdebug", "run", "--no-tui", "--mode", "interpret", script)
    done = run_module(*run, folder, tmp_path / "profile", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    root = json.loads((tmp_path / "profile.hatchet").read_text())[0]
    children = {child["frame"]["name"]: child for child in root["children"]}
    assert set(children) == {"layer", "add_100"}
    assert children["add_100"]["metrics"] == {"bytes": 800, "flops32": 100}
    (inner,) = children["layer"]["children"]
    assert inner["frame"]["name"] == "add_1000"
    assert inner["metrics"] == {"bytes": 16000, "flops32": 2000}
