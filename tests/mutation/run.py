"""Mutation testing by hand: `python tests/mutation/run.py record`, then `… run`.

What it measures, and how its figures are read: docs/mutation_testing.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from forked_pytest import REPOSITORY, Ended, Test, record, run_mutant, source_path
from mutants import Mutant, mutants

# Package of the report -> its modules, as patterns of dotted names.
PACKAGES = {
    "analysis": ("tkdebug.compiler.analysis.*",),
    "lowering": ("tkdebug.compiler.targets.nvptx.lowering.*",),
    "checkers": tuple(
        f"tkdebug.interpreter.{name}"
        for name in (
            "checks.*",
            "memory.buffer_access",
            "memory.checked_access",
            "memory.loads_and_stores",
            "tiles.masks",
        )
    ),
}
_RECORDED = Path(".mutation/tests.json")
_RESULTS = Path(".mutation/results.jsonl")
_RECORD_TIMEOUT_S = 900.0
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a mutant.

    Attributes:
        package: of the report.
        mutant: the change.
        outcome: "killed", "timed out", "survived", or "no test" where none calls the function.
        by: the test that failed, "" for an error of import or a crash.
        seconds: that took.
    """

    package: str
    mutant: Mutant
    outcome: str
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """The tests that call each function."""

    tests: dict[str, Test]
    callers: dict[str, list[str]]

    @staticmethod
    def read(path: Path) -> Recorded:
        rows = json.loads(path.read_text())
        callers: dict[str, list[str]] = {}
        for name, _, functions in rows:
            for function in functions:
                callers.setdefault(function, []).append(name)
        return Recorded({name: Test(name, seconds) for name, seconds, _ in rows}, callers)

    def tests_of(self, mutant: Mutant, budget_s: float) -> list[Test]:
        """Tests that call the mutant's function: the cheapest of each file by turns."""
        names = self.callers.get(f"{mutant.module}:{mutant.function}", [])
        if not names and not mutant.function:
            # Nothing in the module is called, as in one that only holds a table.
            package = mutant.module.rpartition(".")[0]
            names = list({n for key in self.callers if key.startswith(f"{package}.")
                          for n in self.callers[key]})  # fmt: skip
        by_file: dict[str, list[Test]] = {}
        for test in sorted((self.tests[name] for name in names), key=lambda test: test.seconds):
            by_file.setdefault(test.name.split("::")[0], []).append(test)
        chosen: list[Test] = []
        spent = 0.0
        for turn in range(max(map(len, by_file.values()), default=0)):
            for tests in by_file.values():
                if turn < len(tests) and (not chosen or spent + tests[turn].seconds <= budget_s):
                    chosen.append(tests[turn])
                    spent += tests[turn].seconds
        return chosen


def main() -> int:
    options = _parser().parse_args()
    return int(options.command(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", type=Path, default=_RECORDED, help="which test calls what")
    commands = parser.add_subparsers(required=True)
    note = commands.add_parser("record", help="note which functions each test calls")
    note.add_argument("paths", nargs="*", default=["tests"], help="test files or folders")
    note.set_defaults(command=_record)
    run = commands.add_parser("run", help="run the tests on a sample of mutants")
    run.add_argument("--package", choices=PACKAGES, action="append", help="all unless given")
    run.add_argument("--module", default="*", help="only modules that fit this pattern")
    run.add_argument("--sample", type=int, default=60, help="mutants of each package")
    run.add_argument("--seed", type=int, default=12)
    run.add_argument("--budget", type=float, default=30.0, help="recorded seconds of tests")
    run.add_argument("--results", type=Path, default=_RESULTS)
    run.set_defaults(command=_run)
    again = commands.add_parser("again", help="run the survivors of a file of results again")
    again.add_argument("results", type=Path, nargs="?", default=_RESULTS)
    again.add_argument("--budget", type=float, default=60.0)
    again.set_defaults(command=_again)
    return parser


def _record(options: argparse.Namespace) -> int:
    """Files one by one: a function whose results are cached is called in each of them."""
    path = options.recorded
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_text()) if path.exists() else []
    for file in _test_files(options.paths):
        ended = record([file], _RECORD_TIMEOUT_S)
        new = json.loads(ended.left or "[]")
        rows = [row for row in rows if row[0].split("::")[0] != file] + new
        path.write_text(json.dumps(rows))
        seconds = sum(row[1] for row in new)
        print(f"{file}: {len(new)} tests passed, {seconds:.0f} s{_problem(ended)}", flush=True)
    return 0


def _problem(ended: Ended) -> str:
    if ended.status in (0, 5):
        return ""
    return f"; pytest ended with {ended.status}: {ended.output[-600:]}"


def _test_files(paths: Sequence[str]) -> list[str]:
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    own = Path(__file__).resolve().parent
    kept = [file.resolve() for file in files if own not in file.resolve().parents]
    return [str(file.relative_to(REPOSITORY)) for file in kept]


def sample(package: str, modules: str, size: int, seed: int) -> list[Mutant]:
    """Mutants of a package, drawn from all of them with equal chances."""
    found: list[Mutant] = []
    for file in sorted((REPOSITORY / "tkdebug").rglob("*.py")):
        module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        if any(fnmatch(module, pattern) for pattern in PACKAGES[package]):
            if fnmatch(module, modules):
                found += mutants(module, file.read_text())
    return random.Random(seed).sample(found, min(size, len(found)))


def _run(options: argparse.Namespace) -> int:
    recorded = Recorded.read(options.recorded)
    chosen = [
        (package, mutant)
        for package in options.package or PACKAGES
        for mutant in sample(package, options.module, options.sample, options.seed)
    ]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    results = []
    with options.results.open("w") as file:
        for number, (package, mutant) in enumerate(chosen, 1):
            result = _tried(package, mutant, recorded, options.budget)
            results.append(result)
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            print(f"{number}/{len(chosen)} {_line(result)}", flush=True)
    print(table(results))
    return 0


def _again(options: argparse.Namespace) -> int:
    recorded = Recorded.read(options.recorded)
    results = []
    for row in map(json.loads, options.results.read_text().splitlines()):
        result = Result(**{**row, "mutant": Mutant(**row["mutant"])})
        mutant = _current(result.mutant)
        if mutant is None:
            print(f"gone: {_line(result)}")
            continue
        if result.outcome in ("survived", "no test"):
            result = _tried(result.package, mutant, recorded, options.budget)
            print(_line(result), flush=True)
        results.append(result)
    options.results.write_text("".join(f"{json.dumps(asdict(r))}\n" for r in results))
    print(table(results))
    return 0


def _current(mutant: Mutant) -> Mutant | None:
    """Return the same change in the module as it is now, or None if the code is no longer there."""
    same = [
        other
        for other in mutants(mutant.module, source_path(mutant.module).read_text())
        if (other.function, other.change) == (mutant.function, mutant.change)
    ]
    return min(same, key=lambda other: abs(other.line - mutant.line), default=None)


def _tried(package: str, mutant: Mutant, recorded: Recorded, budget_s: float) -> Result:
    tests = recorded.tests_of(mutant, budget_s)
    if not tests:
        return Result(package, mutant, "no test", "", 0.0)
    start = time.monotonic()
    timeout_s = _START_S + 5 * sum(test.seconds for test in tests)
    ended = run_mutant(mutant, tests, timeout_s)
    outcome = {None: "timed out", 0: "survived"}.get(ended.status, "killed")
    if ended.status == 5:
        raise SystemExit(f"none of the tests recorded for {mutant.module} is there; record again")
    return Result(package, mutant, outcome, ended.left, round(time.monotonic() - start, 1))


def _line(result: Result) -> str:
    mutant = result.mutant
    where = f"{mutant.module.removeprefix('tkdebug.')}:{mutant.line} {mutant.function}"
    return f"{result.outcome:9} {result.seconds:5.1f} s  {where}  {mutant.change}"


def table(results: Iterable[Result]) -> str:
    """Outcomes by package, as Markdown."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result.package, Counter())[result.outcome] += 1
    lines = [
        "| package | mutants | killed | timed out | survived | no test | kill rate |",
        "|---|---|---|---|---|---|---|",
    ]
    for package, count in counts.items():
        dead = count["killed"] + count["timed out"]
        figures = [count[name] for name in ("killed", "timed out", "survived", "no test")]
        cells = [package, count.total(), *figures, f"{100 * dead / count.total():.0f} %"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
