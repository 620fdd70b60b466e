"""Dialogues of an agent with the server, as they were recorded.

python tests/mcp_server/dialogues.py [NAME…] records them again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tkdebug.cli.script.execution import command_in_a_process

GOLDEN = Path(__file__).parents[1] / "golden" / "mcp"
_HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
SCRIPTS = {
    # The strides of rows and columns are exchanged at the load.
    "rows.py": _HEAD
    + """@triton.jit
def scale_rows(x_ptr, s_ptr, out_ptr, stride_m, stride_n, BLOCK: tl.constexpr):
    m = tl.arange(0, BLOCK)
    n = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + m[:, None] * stride_n + n[None, :] * stride_m)
    s = tl.load(s_ptr + m)
    tl.store(out_ptr + m[:, None] * stride_m + n[None, :] * stride_n, x * s[:, None])


x = torch.arange(256, dtype=torch.float32, device="cuda").reshape(16, 16)
s = torch.arange(1, 17, dtype=torch.float32, device="cuda")
out = torch.empty_like(x)
scale_rows[(1,)](x, s, out, *x.stride(), BLOCK=16)
torch.testing.assert_close(out, x * s[:, None])
""",
    "slow.py": _HEAD
    + """@triton.jit
def add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) * n + tl.program_id(0)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + 1)


x = torch.zeros(1024, 1024, device="cuda")
out = torch.empty_like(x)
add_one[(1024,)](x, out, 1024, BLOCK=1024)
""",
    "faster.py": _HEAD
    + """@triton.jit
def add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) + tl.program_id(0) * n
    tl.store(out_ptr + i, tl.load(x_ptr + i) + 1)


x = torch.zeros(1024, 1024, device="cuda")
out = torch.empty_like(x)
add_one[(1024,)](x, out, 1024, BLOCK=1024)
""",
    "steps.py": _HEAD
    + """@triton.jit
def clip(x_ptr, out_ptr, LIMIT: tl.constexpr):
    i = tl.program_id(0)
    x = tl.load(x_ptr + i)
    if x > LIMIT:
        x = LIMIT - 0.5
    tl.store(out_ptr + i, x)


x = torch.arange(4, dtype=torch.float32, device="cuda")
out = torch.empty_like(x)
clip[(4,)](x, out, LIMIT=2)
""",
    # The mask is missing at the load.
    "doubled.py": _HEAD
    + """@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * 2, mask=i < n)


def double(x):
    assert x.is_contiguous()
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
""",
    "reference.py": """import torch


def double(x):
    return x * 2


def get_inputs():
    return [torch.rand(256, device="cuda")]
""",
}
SCRIPTS["doubled_again.py"] = SCRIPTS["doubled.py"].replace("x_ptr + i)", "x_ptr + i, mask=i < n)")
# A budget that no machine uses up, so that the number of cases is the same on all.
_VERIFIED = {"reference": "reference:double", "cases": 4, "budget": 300}
_BOUNDS = (
    _HEAD
    + """@triton.jit
def halved(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i <= n)
    tl.store(out_ptr + i, x / 2, mask=i < n)


x = torch.arange(100, dtype=torch.float32, device="cuda")
out = torch.empty_like(x)
halved[(4,)](x, out, 100, BLOCK=32)
"""
)
_NORM = (
    _HEAD
    + """@triton.jit
def scaled(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    total = tl.sum(x)
    share = x / total
    tl.store(out_ptr + i, share)


x = torch.ones(8, 16, device="cuda")
x[5] = 0
out = torch.empty_like(x)
scaled[(8,)](x, out, N=16)
"""
)
_COUNT = (
    _HEAD
    + """@triton.jit
def count(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    tl.store(out_ptr + x, tl.load(out_ptr + x) + 1)


x = torch.arange(16, device="cuda") % 4
out = torch.zeros(4, dtype=torch.int32, device="cuda")
count[(16,)](x, out)
"""
)
_SUM = (
    _HEAD
    + """@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    acc = 0.0
    for start in range(0, n, BLOCK):
        acc += tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)))
    tl.store(out_ptr, acc)


x = torch.ones(1 << 14, device="cuda")
out = torch.empty(1, device="cuda")
total[(1,)](x, out, 1 << 14, BLOCK=1024)
"""
)
SCRIPTS |= {
    "rows_fixed.py": SCRIPTS["rows.py"].replace(
        "m[:, None] * stride_n + n[None, :] * stride_m)",
        "m[:, None] * stride_m + n[None, :] * stride_n)",
        1,
    ),
    "bounds.py": _BOUNDS,
    "bounds_fixed.py": _BOUNDS.replace("i <= n", "i < n"),
    "norm.py": _NORM,
    "norm_fixed.py": _NORM.replace("x / total", "x / tl.maximum(total, 1)"),
    "count.py": _COUNT,
    "count_fixed.py": _COUNT.replace(
        "tl.store(out_ptr + x, tl.load(out_ptr + x) + 1)", "tl.atomic_add(out_ptr + x, 1)"
    ),
    "sum.py": _SUM,
    "sum_split.py": _SUM.replace("(0, n, BLOCK)", "(tl.program_id(0) * BLOCK, n, 16 * BLOCK)")
    .replace("tl.store(out_ptr, acc)", "tl.atomic_add(out_ptr, acc)")
    .replace("torch.empty", "torch.zeros")
    .replace("total[(1,)]", "total[(16,)]"),
}
DIALOGUES = {
    "bug_to_cause": [
        ("run", {"script": "rows.py", "mode": "interpret"}),
        ("faults", {"session": ".tkdebug/rows.tkd"}),
        ("cause", {"session": ".tkdebug/rows.tkd"}),
        ("explain", {"kind": "mismatch", "limit": 1024}),
        ("source", {"session": ".tkdebug/rows.tkd"}),
    ],
    "slow_to_faster": [
        ("advise", {"target": "slow.py"}),
        ("advise", {"target": "faster.py"}),
    ],
    "verify_and_fix": [
        ("verify", {"file": "doubled.py", "function": "double", **_VERIFIED}),
        ("verify", {"file": "doubled_again.py", "function": "double", **_VERIFIED}),
    ],
    "stepping": [
        ("debug", {"action": "start", "script": "steps.py", "breakpoints": ["clip"]}),
        ("debug", {"action": "step"}),
        ("debug", {"action": "step"}),
        ("debug", {"action": "evaluate", "text": "x"}),
        ("debug", {"action": "step"}),
        ("debug", {"action": "back"}),
        ("debug", {"action": "watch", "text": "out[3]"}),
        ("debug", {"action": "continue"}),
        ("debug", {"action": "why", "text": "out[3]"}),
        ("debug", {"action": "variables"}),
        ("debug", {"action": "evaluate", "text": "nothing"}),
        ("debug", {"action": "stop"}),
        ("debug", {"action": "step"}),
    ],
}
DIALOGUES |= {
    # From a fault to a short script of it, to the script without it.
    "bounds_to_fix": [
        ("run", {"script": "bounds.py", "mode": "interpret"}),
        ("reproduce", {"target": ".tkdebug/bounds.tkd", "fault": 0}),
        ("run", {"script": "bounds_fixed.py", "mode": "interpret"}),
        ("compare", {"before": ".tkdebug/bounds.tkd", "after": ".tkdebug/bounds_fixed.tkd"}),
    ],
    "nan_to_its_birth": [
        ("run", {"script": "norm.py", "mode": "interpret"}),
        ("why", {"script": "norm.py", "what": "out[5, 3]", "question": "nan"}),
        ("run", {"script": "norm_fixed.py", "mode": "interpret"}),
    ],
    "race_to_atomic": [
        ("run", {"script": "count.py", "check": ["race"]}),
        ("explain", {"kind": "race", "limit": 1024}),
        ("more", {"cursor": "CURSOR", "limit": 1024}),
        ("run", {"script": "count_fixed.py", "check": ["race"]}),
    ],
    # Goes on after "bug_to_cause": the edit is made, and checked.
    "edit_and_check": [
        ("run", {"script": "rows_fixed.py", "mode": "interpret"}),
        ("compare", {"before": ".tkdebug/rows.tkd", "after": ".tkdebug/rows_fixed.tkd"}),
    ],
    "one_program_to_many": [
        ("advise", {"target": "sum.py"}),
        ("advise", {"target": "sum_split.py"}),
    ],
    "changes_of_a_pass": [
        ("passes", {"target": "slow.py", "number": 1, "limit": 1024}),
    ],
    "mistakes": [
        ("run", {"script": "nothing.py"}),
        ("faults", {"session": "rows.py"}),
        ("reproduce", {"target": "bounds_fixed.py"}),
        ("explain", {"kind": "oob-lode"}),
        ("more", {"cursor": "page-99"}),
    ],
}
# In tests these talk to a server over stdio, whose commands begin in new processes; those of the
# others are forked from one process that has imported what they import.
OVER_STDIO = ("stepping",)
# What another machine or another source of tkdebug changes.
_TIMES = ("total_ns", "mean_ns", "min_ns", "max_ns", "mean_ratio", "min_ratio")
_VARYING = ("variant", "time_ns", "tried", "cursor", *_TIMES)


def server_in(folder: Path) -> StdioServerParameters:
    """Return how the SDK's client starts our server."""
    command, *words = command_in_a_process("mcp", str(folder))
    return StdioServerParameters(command=command, args=words, env=dict(os.environ), cwd=folder)


def write_scripts(folder: Path) -> None:
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)


async def spoken(client: Client, name: str, folder: Path) -> list[dict[str, object]]:
    """Return a dialogue as it goes now."""
    found, cursor = [], ""
    for tool, arguments in DIALOGUES[name]:
        given = arguments
        if arguments.get("cursor") == "CURSOR":
            given = {**arguments, "cursor": cursor}
        result = await client.call_tool(tool, given)
        (content,) = result.content
        assert len(content.text) <= arguments.get("limit", 4096)
        page = json.loads(content.text)
        cursor = page.get("cursor", "")
        answer = stable(page, str(folder))
        found.append({"tool": tool, "arguments": arguments, "answer": answer})
    return found


def stable(value: object, folder: str) -> object:
    """Return an answer without what varies."""
    if isinstance(value, dict):
        kept = {name: stable(each, folder) for name, each in value.items()}
        if "edits" in kept:
            kept["edits"] = kept["edits"][:1]  # as many as the time allows
        return {name: "…" if name in _VARYING else each for name, each in kept.items()}
    if isinstance(value, list):
        return [stable(each, folder) for each in value if not _is_of_the_machine(each)]
    return value.replace(folder, "FOLDER") if isinstance(value, str) else value


def _is_of_the_machine(item: object) -> bool:
    return isinstance(item, dict) and "stderr" in item


async def _record(names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        write_scripts(folder)
        async with Client(server_in(folder)) as client:
            for each in names:
                text = json.dumps(await spoken(client, each, folder), indent=1, ensure_ascii=False)
                (GOLDEN / f"{each}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(anyio.run(_record, sys.argv[1:] or list(DIALOGUES)))
