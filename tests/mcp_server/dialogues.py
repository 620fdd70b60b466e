"""Dialogues of an agent with the server, as they were recorded.

python tests/mcp_server/dialogues.py records them again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
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
# What another machine or another source of tkdebug changes.
_VARYING = ("variant", "time_ns", "tried")


def server_in(folder: Path) -> StdioServerParameters:
    """Return how the SDK's client starts our server."""
    command, *words = command_in_a_process("mcp", str(folder))
    return StdioServerParameters(command=command, args=words, env=dict(os.environ), cwd=folder)


def write_scripts(folder: Path) -> None:
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)


async def spoken(client: Client, name: str, folder: Path) -> list[dict[str, object]]:
    """Return a dialogue as it goes now."""
    found = []
    for tool, arguments in DIALOGUES[name]:
        result = await client.call_tool(tool, arguments)
        (content,) = result.content
        assert len(content.text) <= arguments.get("limit", 4096)
        answer = stable(json.loads(content.text), str(folder))
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


async def _record() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        write_scripts(folder)
        async with Client(server_in(folder)) as client:
            for each in DIALOGUES:
                text = json.dumps(await spoken(client, each, folder), indent=1, ensure_ascii=False)
                (GOLDEN / f"{each}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(anyio.run(_record))
