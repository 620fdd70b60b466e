"""tritonparse, as it is: what it logs of compiles and launches, and what it makes of its logs."""

import gzip
import json
from importlib.util import find_spec

import pytest
from native_support import needs_codegen
from warm_python import ENVIRONMENT, run_module

if find_spec("tritonparse") is None:
    pytest.skip("needs tritonparse", allow_module_level=True)

SCRIPT = """\
import sys
import torch, triton, triton.language as tl
import tritonparse.structured_logging as logs
from triton.backends.compiler import GPUTarget

@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@triton.jit
def tuned(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

logs.init(sys.argv[1], enable_trace_launch=True)
x = torch.zeros(1000, device="cuda")
for _ in range(2):
    add[(8,)](x, x, 1000, B=128)
tuned[lambda meta: (triton.cdiv(1000, meta["B"]),)](x, 1000)
if sys.argv[2] == "native":
    source = triton.compiler.ASTSource(add, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"B": 128})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
logs.clear_logging_config()
add[(8,)](x, x, 1000, B=64)
"""
STORE_LINE = (
    SCRIPT.splitlines().index("    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)") + 1
)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """The events of its log once it has parsed it; both under `tkdebug run`."""
    folder = tmp_path_factory.mktemp("tritonparse")
    script = folder / "s.py"
    script.write_text(SCRIPT)
    mode = "interpret" if needs_codegen.args[0] else "native"
    environment = {**ENVIRONMENT, "TKDEBUG_CACHE_DIR": str(folder / "cache")}
    run = ("tkdebug", "run", "--no-tui", "--mode", "interpret")
    done = run_module(*run, script, folder / "logs", mode, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    parse = ("-m", "tritonparse", "parse", folder / "logs", "-o", folder / "out")
    done = run_module(*run, *parse, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "out").glob("*.gz")
    with gzip.open(path, "rt") as log:
        return [json.loads(line) for line in log]


def of_type(parsed, name):
    return [event for event in parsed if event["event_type"] == name]


def test_launches_have_their_grid_and_arguments(parsed):
    first, second, tuned = of_type(parsed, "launch")
    assert (first["name"], first["grid"], first["stream"]) == ("add", [8, 1, 1], 0)
    assert first["extracted_args"]["x"]["shape"] == [1000]
    assert first["extracted_args"]["n"] == {"type": "int", "value": 1000}
    assert first["compilation_metadata"]["num_warps"] == 4
    assert (second["name"], tuned["name"]) == ("add", "tuned")


def test_compiles_have_their_source_and_times(parsed):
    compiles = {
        event["payload"]["metadata"]["name"]: event for event in of_type(parsed, "compilation")
    }
    assert set(compiles) == {"add", "tuned"}
    payload = compiles["add"]["payload"]
    assert payload["python_source"]["code"].startswith("@triton.jit\ndef add")
    assert payload["metadata"]["times"]["ir_initialization"] > 0
    assert payload["metadata"]["cache_hit"] is False


def test_lines_map_to_those_of_the_ir(parsed):
    for event in of_type(parsed, "compilation"):
        mappings = event["payload"]["source_mappings"]
        files = {suffix.rsplit(".")[-1] for suffix in event["payload"]["file_content"]}
        for stage in files & {"ttir", "ttgir", "llir", "ptx"}:
            assert mappings[stage], stage
        if event["payload"]["metadata"]["name"] != "add":
            continue
        places = mappings["python"][str(STORE_LINE)]
        for line in places["ttir_lines"]:
            text = event["payload"]["file_content"]["add.ttir"].splitlines()[int(line) - 1]
            assert f":{STORE_LINE}:" in (text if text.startswith("#") else _place(event, text))
        if "ptx" in files:
            assert places["ptx_lines"]
            assert places["llir_lines"]


def _place(event, text):
    number = text.rsplit("loc(", 1)[1].rstrip(")")
    lines = event["payload"]["file_content"]["add.ttir"].splitlines()
    return next(line for line in lines if line.startswith(f"{number} = "))


def test_differences_between_launches_are_found(parsed):
    diffs = {event["name"]: event for event in of_type(parsed, "launch_diff")}
    assert diffs["add"]["total_launches"] == 2
