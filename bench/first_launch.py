"""Times of a process's first launch, and of the whole process: this tree, and others beside it.

Runs a script with one interpreted kernel in processes that take turns, with bytecode compiled.
Times are of processors: what another process does at the same time counts little. Needs no GPU.

    python bench/first_launch.py [--tree OTHER_CHECKOUT ...] [--rounds 15]
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "first launch: "
HEAD = """
import time
import torch
INSTALL
import triton
import triton.language as tl
"""
INSTALL = """
import tkdebug
tkdebug.install()
"""
TAIL = """
began = time.process_time()
launch()
ended = time.process_time()
check()
print("first launch: ", [1e3 * (ended - began), 1e3 * time.process_time()])
"""
KERNELS = {
    "vector add": """
@triton.jit
def kernel(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(o + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


x, y, o = torch.rand(1000), torch.rand(1000), torch.empty(1000)


def launch():
    kernel[(4,)](x, y, o, 1000, BLOCK=256)


def check():
    assert torch.equal(o, x + y)
""",
    "softmax": """
@triton.jit
def kernel(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(o + row * n + i, powers / tl.sum(powers, axis=0), mask=i < n)


x, o = torch.randn(20, 100), torch.empty(20, 100)


def launch():
    kernel[(20,)](x, o, 100, BLOCK=128)


def check():
    torch.testing.assert_close(o, x.softmax(1))
""",
    "matmul": """
@triton.jit
def kernel(a, b, c, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + i[:, None] * K + (k + i)[None, :], mask=(k + i)[None, :] < K, other=0.0)
        right = tl.load(b + (k + i)[:, None] * BLOCK + i[None, :], mask=(k + i)[:, None] < K,
                        other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + i[:, None] * BLOCK + i[None, :], acc)


a, b, c = torch.randn(32, 80), torch.randn(80, 32), torch.empty(32, 32)


def launch():
    kernel[(1,)](a, b, c, 80, BLOCK=32)


def check():
    torch.testing.assert_close(c, a @ b, atol=1e-2, rtol=1e-2)
""",
}
WAYS = {"install()": [], "tkdebug run": ["-m", "tkdebug", "run", "--mode", "interpret"]}


def measured(tree: Path, way: str, script: Path) -> tuple[float, float]:
    """Milliseconds of processors: of the first launch, and of the process until its end."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "TKDEBUG_MODE": "interpret"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *WAYS[way], str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
    line = next((x for x in done.stdout.splitlines() if x.startswith(MARK)), None)
    if line is None:
        sys.exit(f"{tree}, {way}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    first, whole = json.loads(line.removeprefix(MARK))
    return first, whole


def main() -> None:
    """Measure in turn, and print medians with the least and the greatest time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", action="append", default=[], type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kernel", action="append", choices=tuple(KERNELS), default=[])
    options = parser.parse_args()
    trees = [HERE.parent, *(tree.resolve() for tree in options.tree)]
    for tree in trees:
        compileall.compile_dir(tree / "tkdebug", quiet=1)
    times: dict[tuple[str, str, Path], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for kernel in options.kernel or KERNELS:
                for way in WAYS:
                    script = Path(folder) / f"{kernel.split()[0]}_{len(WAYS[way])}.py"
                    head = HEAD.replace("INSTALL", "" if WAYS[way] else INSTALL)
                    script.write_text(head + KERNELS[kernel] + TAIL)
                    for tree in trees:
                        found = measured(tree, way, script)
                        times.setdefault((kernel, way, tree), []).append(found)
    print("| kernel | way | tree | first launch, ms | whole process, ms |")
    print("| --- | --- | --- | ---: | ---: |")
    for (kernel, way, tree), found in times.items():
        cells = [
            f"{statistics.median(column):.1f} ({min(column):.1f} to {max(column):.1f})"
            for column in zip(*found, strict=True)
        ]
        print(f"| {kernel} | {way} | {tree.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
