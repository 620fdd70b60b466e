"""Costs of watching a program: hooks and recording, against Triton bare and its Proton.

A process for each way of watching (`bench/overhead_worker.py`), asked in turn, so that one uses
the GPU at a time; each time is the median over the rounds. What slows a host down lasts longer than
a round: ratios are taken within each round, and the median of them is shown. Equal processes differ
by 10 %, so several sets of them are measured. Needs a GPU, and a torch and a triton for it.

    python bench/overhead.py [--rounds 11] [--processes 3] [--markdown bench/RESULTS.md]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from sections import check_gpu, replace_section

HERE = Path(__file__).resolve().parent
WORKER = HERE / "overhead_worker.py"
WATCHES = {
    "triton": "Triton",
    "proton": "Triton, Proton (CUPTI)",
    "bare": "tkdebug",
    "hook": "tkdebug, one no-op hook",
    "hooks": "tkdebug, two no-op hooks",
    "events": "tkdebug, recorded, times by CUDA events",
    "alone": "tkdebug, CUPTI alone, whose records nobody reads",
    "cupti": "tkdebug, recorded, times by CUPTI",
}
# Program -> title, unit, units per second, whose time is 1 in the ratio.
PROGRAMS = {
    "empty": ("an empty kernel, host time of a launch", "us", 1e6),
    "big": ("vector add of 2^27 fp32, a launch", "us", 1e6),
    "training": ("training step of a 4-layer transformer, bound by the host", "ms", 1e3),
    "large": ("the same with 8 times the batch, bound by the GPU", "ms", 1e3),
}


class Worker:
    """A process that is watched in one way."""

    def __init__(self, watch: str, folder: Path) -> None:
        self.error = ""
        read_end, write_end = os.pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
            "TKDEBUG_CUPTI": "0" if watch == "events" else "1",
            "TKDEBUG_MODE": "native",
        }
        command = [sys.executable, str(WORKER), "--watch", watch, "--answers", str(write_end)]
        self._errors = (folder / f"{watch}.err").open("w+")
        self._process = subprocess.Popen(
            [*command, "--folder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=(write_end,),
            env=environment,
            text=True,
        )
        os.close(write_end)
        self._answers = os.fdopen(read_end, encoding="utf-8")

    def answer(self) -> object:
        """Its next answer; None where it has died, and `error` says of what."""
        line = self._answers.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        self.error = self._errors.read()[-2000:]
        return None

    def ask(self, program: str) -> float | None:
        """The seconds that the program took."""
        if self.error or self._process.stdin is None:
            return None
        try:
            print(program, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass
        found = self.answer()
        return found if isinstance(found, float) else None

    def close(self) -> None:
        """End it."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(timeout=60)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
        self._errors.seek(0)
        said = self._errors.read()
        if said.strip():
            print(said[-1500:], file=sys.stderr)


def measured(
    rounds: int, folder: Path, watches: list[str], times: dict[tuple[str, str], list[float]]
) -> list[str]:
    """Add the seconds by program and way of watching to `times`; what went wrong."""
    workers = {watch: Worker(watch, folder) for watch in watches}
    for worker in workers.values():
        worker.answer()
    for number in range(rounds):
        # In each round another one is asked first.
        first = number % len(watches)
        for program in PROGRAMS:
            for watch in (*watches[first:], *watches[:first]):
                seconds = workers[watch].ask(program)
                times.setdefault((program, watch), []).append(seconds or math.nan)
    errors = [f"{watch}: {worker.error}" for watch, worker in workers.items() if worker.error]
    for worker in workers.values():
        worker.close()
    return errors


def table(times: dict[tuple[str, str], list[float]]) -> list[str]:
    """The lines of the table."""
    titles = [f"{title}, {unit}" for title, unit, _ in PROGRAMS.values()]
    lines = ["| | " + " | ".join(f"{title} | / bare" for title in titles) + " |"]
    lines.append("| --- |" + " ---: |" * (2 * len(titles)))
    for watch, name in WATCHES.items():
        base = "triton" if watch in ("triton", "proton") else "bare"
        cells = []
        for program, (_, _, scale) in PROGRAMS.items():
            found, bare = times.get((program, watch)), times.get((program, base))
            if not found or not bare or math.isnan(sum(found) + sum(bare)):
                cells += ["-", "-"]
                continue
            ratio = statistics.median(a / b for a, b in zip(found, bare, strict=True))
            cells += [f"{statistics.median(found) * scale:.2f}", f"{ratio:.3f}x"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def section(lines: list[str], rounds: int, processes: int) -> str:
    """The section of RESULTS.md."""
    import torch

    versions = ", ".join(f"{n} {metadata.version(n)}" for n in ("torch", "triton"))
    return "\n".join(
        [
            "# Overhead benchmark",
            "",
            "Written by `python bench/overhead.py --markdown bench/RESULTS.md`. The same programs",
            "watched in different ways, each in a process of its own that was asked in turn;",
            f"medians of {rounds} rounds with each of {processes} sets of processes. `/ bare` is",
            "the median of the rounds' ratios to the same compiler's unwatched.",
            "",
            f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
            f"- machine: {torch.cuda.get_device_name()}, {os.cpu_count()} CPU cores, "
            f"{platform.system()} {platform.machine()}",
            f"- versions: {versions}, python {platform.python_version()}",
            "",
            *lines,
            "",
        ]
    )


def main() -> int:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--processes", type=int, default=3, help="how many sets of processes")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(WATCHES), default=list(WATCHES))
    arguments = parser.parse_args()
    check_gpu()
    times: dict[tuple[str, str], list[float]] = {}
    errors = []
    for _ in range(arguments.processes):
        with tempfile.TemporaryDirectory() as folder:
            errors += measured(arguments.rounds, Path(folder), arguments.only, times)
    text = section(table(times), arguments.rounds, arguments.processes)
    print(text)
    for error in errors:
        print(error, file=sys.stderr)
    if arguments.markdown is not None:
        replace_section(arguments.markdown, text)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
