"""Costs of the debugger: to stop at a kernel's first line, to step, to step back.

Least processor time on one thread, which other work on the machine disturbs little. "run" is the
launch without checks and debugger; "stop" is from the launch to the stop at its first line, with
what the debugger compiles for itself; "next" is a step in the middle, "back" one back.

    python bench/debugger.py [--only matmul] [--markdown RESULTS.md]

Exit status 1 when a row misses one of its targets.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch
from sections import machine, replace_section, versions

import tkdebug
from tkdebug.compat import install
from tkdebug.debugger.engine import Debugger
from tkdebug.debugger.goals import Continue, Resume, Step, StepKind
from tkdebug.debugger.stops import Stop

STEPS = 7
STOP_MS = 300
NEXT_MS = 50


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        back_ms: the target of a step back.
        breakpoint: file and line in the middle of the launch.
        hit: how often it is passed over.
        stage: the IR that runs.
    """

    title: str
    launch: Callable[[], object]
    back_ms: int
    breakpoint: tuple[str, int]
    hit: int
    stage: str = "tile-ir"


class Timed:
    """Stops, steps and steps back, and notes how long each took."""

    def __init__(self, hit: int) -> None:
        self.times: dict[str, list[float]] = {"next": [], "back": []}
        self.first_at = 0.0
        self._hit = hit
        self._began = 0.0
        self._plan: list[str] = []
        self._doing = ""

    def log(self, text: str) -> None:
        """Nothing is logged."""

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Note the time since the last Resume, and give the next one."""
        now = time.process_time()
        if not self.first_at:
            self.first_at = now
            debugger.breakpoints[0].ignored = self._hit
            self._plan = [*["next", "back"] * STEPS, "out"]
            return Continue()
        if self._began:
            self.times[self._doing].append((now - self._began) * 1e3)
        self._doing = self._plan.pop(0) if self._plan else "out"
        if self._doing == "out":
            debugger.breakpoints[0].is_enabled = False
            self._began = 0.0
            return Continue()
        self._began = time.process_time()
        return Step(StepKind.OVER, backwards=self._doing == "back")


def rows() -> dict[str, Row]:
    """The works."""
    import debugger_kernels as kernels

    def attention(heads: int, tokens: int) -> Callable[[], object]:
        q, k, v = (torch.randn(heads, tokens, 64) for _ in range(3))
        out = torch.empty_like(q)
        scale = math.log2(math.e) / 8
        return lambda: kernels.attention_kernel[(tokens // 64, heads)](
            *(q, k, v, out, scale, q.stride(0), q.stride(1), tokens),
            HEAD_DIM=64,
            BLOCK_Q=64,
            BLOCK_K=64,
        )

    def matmul(size: int, tile: int) -> Callable[[], object]:
        a, b, c = (torch.randn(size, size) for _ in range(3))
        grid = (size // tile, size // tile)
        return lambda: kernels.matmul_kernel[grid](a, b, c, size, BLOCK=tile)

    def lock() -> object:
        lock, count = torch.zeros(2, dtype=torch.int32).split(1)
        return kernels.locked_kernel[(64,)](lock, count)

    scores, product, count = (kernels.line(name) for name in ("scores", "product", "count"))
    small, large = attention(4, 512), attention(32, 2048)
    return {
        "attention": Row("attention forward, 4 heads, N=512", small, 50, scores, 4),
        "gpu-attention": Row("the same in GPU IR", small, 50, scores, 4, "gpu-ir"),
        "matmul": Row("matmul 512^3 fp32, 32-tiles", matmul(512, 32), 50, product, 8),
        "lock": Row("a spin lock, 64 programs", lock, 200, count, 32),
        "large-attention": Row("attention forward, 32 heads, N=2048", large, 200, scores, 40),
        "large-matmul": Row("matmul 2048^3 fp32, 64-tiles", matmul(2048, 64), 200, product, 40),
    }


def measured(row: Row) -> dict[str, float]:
    """Milliseconds: run, stop, next, back."""
    row.launch()
    runs = []
    for _ in range(3):
        began = time.process_time()
        row.launch()
        runs.append((time.process_time() - began) * 1e3)
    front = Timed(row.hit)
    debugger = Debugger(front)
    debugger.choose_stage(row.stage)
    debugger.add_line(*row.breakpoint)
    debugger.stop_at_next_launch()
    debugger.attach()
    began = time.process_time()
    try:
        row.launch()
    finally:
        debugger.detach()
    return {
        "run": min(runs),
        "stop": (front.first_at - began) * 1e3,
        **{name: min(times) for name, times in front.times.items()},
    }


def table(only: str | None) -> tuple[list[str], bool]:
    """The lines of the table, and whether every target is met."""
    lines = [
        "| work | run ms | stop ms | next ms | back ms | target of back |  |",
        "| --- " + "| ---: " * 5 + "| ---: |",
    ]
    passes = True
    for name, row in rows().items():
        if only not in (None, name):
            continue
        torch.manual_seed(0)
        found = measured(row)
        good = (
            found["stop"] <= STOP_MS and found["next"] <= NEXT_MS and found["back"] <= row.back_ms
        )
        passes &= good
        figures = " | ".join(f"{found[key]:.1f}" for key in ("run", "stop", "next", "back"))
        lines.append(
            f"| {row.title} | {figures} | <= {row.back_ms} | {'pass' if good else 'MISS'} |"
        )
        print(lines[-1], flush=True)
    return lines, passes


def main() -> int:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    with install("interpret", checks=("none",)):
        lines, passes = table(arguments.only)
    text = [
        "# Debugger",
        "",
        "Written by `python bench/debugger.py --markdown bench/RESULTS.md`. Least processor time",
        "on one thread, checks off. Run is the launch without a debugger, stop the way to a stop",
        "at its first line, next a step in the middle of the launch, back one back. Targets: stop",
        f"at most {STOP_MS} ms, next at most {NEXT_MS} ms.",
        "",
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
        f"- machine: {machine()}",
        f"- tkdebug: {versions(sys.executable, ['tkdebug', 'torch'])}"
        if arguments.markdown
        else f"- tkdebug: {tkdebug.__version__}",
        "",
        *lines,
    ]
    if arguments.markdown:
        replace_section(arguments.markdown, "\n".join(text))
    return 0 if passes else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main())
