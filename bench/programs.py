"""Times of whole programs with and without tkdebug: steps, after the last line, whole process.

Three programs (`program_llama.py`, eager and compiled, and `program_kernels.py`, of hand-written
kernels), each a process of its own in each way, in turn: Triton's python, `tkdebug.install()`, that
with CUPTI recording for nobody, and `tkdebug run`. A round that only
fills the caches comes first. Ratios are taken within a round. Needs a GPU, torch, Triton and
transformers.

    python bench/programs.py [--rounds 5] [--only llama] [--without install]
        [--markdown bench/RESULTS.md]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from sections import check_gpu, replace_section, versions

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
LLAMA, KERNELS = str(HERE / "program_llama.py"), str(HERE / "program_kernels.py")
WORKER = str(HERE / "program_worker.py")
PROGRAMS = {
    "llama, eager": (LLAMA,),
    "llama, compiled": (LLAMA, "--compile"),
    "hand-written kernels": (KERNELS,),
}
# The command that runs a program in each way.
WAYS: dict[str, Sequence[str]] = {
    "python, Triton": (PYTHON,),
    "`tkdebug.install()`": (PYTHON, WORKER, "install"),
    "the same and CUPTI alone": (PYTHON, WORKER, "cupti"),
    "`tkdebug run`": (PYTHON, "-m", "tkdebug", "run", "--no-tui"),
}
BARE, CUPTI = "python, Triton", "the same and CUPTI alone"
# Steps that compile, and warm up.
FIRST_STEPS = 10
LIMIT_S = 300


class Times(NamedTuple):
    """Times of one process.

    Attributes:
        step_s: median of its steps but for the first ones.
        last_line_s: from its start to the program's last line.
        after_s: from there to the process's end.
    """

    step_s: float
    last_line_s: float
    after_s: float

    @property
    def whole_s(self) -> float:
        """From start to end."""
        return self.last_line_s + self.after_s


def timed(command: Sequence[str], folder: Path) -> Times:
    """Run a program and time it.

    Raises:
        SystemExit: it failed.
    """
    answers = folder / "times.json"
    answers.unlink(missing_ok=True)
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PROGRAM_TIMES": str(answers)}
    start_s = time.time()
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    end_s = time.time()
    if done.returncode or not answers.exists():
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found = json.loads(answers.read_text(encoding="utf-8"))
    step_s = statistics.median(found["steps"][FIRST_STEPS:])
    last_s = float(found["last_line_s"])
    return Times(step_s, last_s - start_s, end_s - last_s)


def measured(
    program: Sequence[str], ways: Mapping[str, Sequence[str]], rounds: int, folder: Path
) -> dict[str, list[Times]]:
    """Times of a program in each way, by rounds; a first round is thrown away."""
    times: dict[str, list[Times]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, command in ways.items():
            found = timed((*command, *program), folder)
            if number:
                times[way].append(found)
            print(
                f"  {number}: {way:38} step {found.step_s * 1e3:7.2f} ms, last line "
                f"{found.last_line_s:5.1f} s, after {found.after_s:4.1f} s",
                file=sys.stderr,
                flush=True,
            )
    return times


def rows(times: Mapping[str, Sequence[Times]]) -> list[str]:
    """Rows of the table of one program."""
    return [
        f"| {way} | {_spread(found, lambda t: t.step_s * 1e3, '.2f')} "
        f"| {_ratio(times, way, BARE, lambda t: t.step_s)} "
        f"| {_ratio(times, way, CUPTI, lambda t: t.step_s)} "
        f"| {_spread(found, lambda t: t.last_line_s, '.1f')} "
        f"| {_spread(found, lambda t: t.after_s, '.1f')} "
        f"| {_spread(found, lambda t: t.whole_s, '.1f')} "
        f"| {_ratio(times, way, BARE, lambda t: t.whole_s)} |"
        for way, found in times.items()
    ]


def _spread(found: Sequence[Times], figure: Callable[[Times], float], form: str) -> str:
    values = sorted(map(figure, found))
    middle = format(statistics.median(values), form)
    return f"{middle} ({format(values[0], form)} to {format(values[-1], form)})"


def _ratio(
    times: Mapping[str, Sequence[Times]], way: str, base: str, figure: Callable[[Times], float]
) -> str:
    if base not in times:
        return "-"
    pairs = zip(times[way], times[base], strict=True)
    return f"{statistics.median(figure(a) / figure(b) for a, b in pairs):.3f}x"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--without", default="no way", help="leave out the ways that contain this")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    check_gpu()
    import torch

    ways = {way: command for way, command in WAYS.items() if arguments.without not in way}
    lines = [
        "# Whole programs",
        "",
        "Written by `python bench/programs.py --markdown bench/RESULTS.md`. Each way is a process",
        f"of its own, in turn, {arguments.rounds} rounds with warm caches: medians, with the least",
        "and the most; ratios are medians of the rounds' ratios.",
        "",
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
        f"- machine: {torch.cuda.get_device_name()}, {os.cpu_count()} CPU cores",
        f"- versions: {versions(PYTHON, ['torch', 'triton', 'transformers'])}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, program in PROGRAMS.items():
            if arguments.only not in name:
                continue
            print(name, file=sys.stderr, flush=True)
            times = measured(program, ways, arguments.rounds, Path(folder))
            lines += [
                "",
                f"## {name[0].upper()}{name[1:]}",
                "",
                "| | step, ms | / python's | / CUPTI alone | last line at, s | after it, s "
                "| whole process, s | / python's |",
                f"| --- |{' ---: |' * 7}",
                *rows(times),
            ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.markdown is not None:
        replace_section(arguments.markdown, text)


if __name__ == "__main__":
    main()
