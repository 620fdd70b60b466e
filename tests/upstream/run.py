"""Run upstream's own tests under tkdebug: `python tests/upstream/run.py CHECKOUT [--mode native]`.

CHECKOUT is a checkout of upstream 3.6 to 3.9, or of a fork; nothing of it is copied. Interpreted,
the interpreter-marked cases of the language files run as upstream runs them under its interpreter
(on the CPU), without the skips for bf16; the behaviour files run whole, on the stand-in for CUDA.
Native, which takes a GPU, all files run whole. `not_applicable.py` names what is left out and why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
NATIVE = HERE.parent / "native"
sys.path.insert(0, str(HERE))

import not_applicable  # noqa: E402

LANGUAGE = tuple(
    f"language/test_{name}.py"
    for name in (
        "core",
        "standard",
        "tensor_descriptor",
        "tuple",
        "block_pointer",
        "random",
        "line_info",
        "subprocess",
    )
)
BEHAVIOUR = (
    "language/test_compile_errors.py",
    "language/test_conversions.py",
    "language/test_annotations.py",
    "language/test_decorator.py",
    "runtime/test_launch.py",
    "runtime/test_autotuner.py",
    "runtime/test_cache.py",
    "runtime/test_autotune_listener.py",
    "runtime/test_cache_determinism.py",
)

# Files that upstream runs on GPUs alone.
NATIVE_ONLY = ("language/test_libdevice.py", "language/test_matmul.py")

# pytest's exit statuses: all passed, some failed, interrupted (--maxfail), none chosen.
_ENDED_WELL = (0, 1, 2, 5)


@dataclass
class Outcome:
    """The record of one pytest process."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def of(self, outcome: str) -> list[dict[str, Any]]:
        """The rows with that outcome."""
        return [row for row in self.rows if row["outcome"] == outcome]


def run_pytest(
    options: argparse.Namespace, python: str, files: list[str], marked: bool, mode: str | None
) -> Outcome:
    """Run `files` of the checkout in one pytest process and read its record.

    Args:
        options: of the command line.
        python: the interpreter.
        files: below the checkout's unit tests.
        marked: whether only interpreter-marked cases run, on the CPU.
        mode: tkdebug's; None for a run without tkdebug.
    """
    if not files:
        return Outcome()
    tests = options.checkout.resolve() / "python" / "test"
    command = [python, "-m", "pytest", "-q", "--tb=short", "--continue-on-collection-errors"]
    # What pytest spends on a case is in both times; less of it, and they compare the kernels.
    command += ["-p", "no:cacheprovider", "-p", "no:logging"]
    command += ["--rootdir", str(tests), "-c", os.devnull, "-p", "upstream_plugin"]
    command += ["--device", "cpu" if marked else "cuda"]
    if mode is not None:
        command += ["-p", "tkdebug.pytest_plugin", "--tkdebug-mode", mode]
        command += ["--tkdebug-faults", options.faults]
    if marked:
        command += ["-m", "interpreter"]
        if options.also_native:
            command += ["-p", "corpus_plugin", "--also-native", options.also_native]
            command += ["--check-gpu-ir"] if options.check_gpu_ir else []
            if options.native_report:
                command += ["--native-report", str(options.native_report.resolve())]
    if options.workers > 1:
        command += ["-p", "xdist", "-n", str(options.workers)]
    for name in ("k", "maxfail"):
        if (value := getattr(options, name)) is not None:
            command += [f"-{name}" if len(name) == 1 else f"--{name}", str(value)]
    command += [str(tests / "unit" / file) for file in files]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.jsonl"
        record.touch()
        threads = max(1, (os.cpu_count() or 1) // max(1, options.workers))
        environment = {
            "OMP_NUM_THREADS": str(threads),
            **os.environ,
            "PYTHONPATH": os.pathsep.join(_import_path(with_tkdebug=mode is not None)),
            "TKDEBUG_TEST_MODE": mode or "interpret",
            "TKDEBUG_TRITON": options.triton,
            # Upstream's tests count lines.
            "TKDEBUG_PRINT_ELEMENTS": "all",
            "TKDEBUG_TEST_CHECKOUT": str(options.checkout.resolve()),
            "TKDEBUG_TEST_RECORD": str(record),
            "TKDEBUG_TEST_ALL": "1" if options.all else "0",
            "TKDEBUG_TEST_SAMPLE": options.sample,
            "TRITON_INTERPRET": "1" if marked else "0",
            # The plugins that happen to be installed beside one of the two would slow it.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TRITON_HOME": folder,
            "XDG_CACHE_HOME": folder,
        }
        started, cpu_s = time.monotonic(), _children_cpu_s()
        with open(os.devnull if options.quiet else options.log, "ab") as log:
            status = run_for(command, environment, log, options.seconds)
        wall_s, cpu_s = time.monotonic() - started, _children_cpu_s() - cpu_s
        lines = record.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    if status not in _ENDED_WELL:
        last = rows[-1]["id"] if rows else "none"
        reason = f"{status if isinstance(status, str) else f'pytest ended with status {status}'}; "
        reason += f"the last test done is {last}"
        rows.append({"id": " ".join(files), "outcome": "failed", "reason": reason})
    return Outcome(rows, wall_s, cpu_s)


def run_for(
    command: list[str], environment: dict[str, str], log: IO[bytes], seconds: float | None
) -> int | str:
    """Run a command; its exit status, or that its time was up: it is killed, with its children."""
    with subprocess.Popen(
        command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"the {seconds:.0f} seconds were up"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _import_path(*, with_tkdebug: bool) -> list[str]:
    """Folders of modules, beside Python's own."""
    if not with_tkdebug:
        return [str(HERE), str(NATIVE)]
    given = os.environ.get("PYTHONPATH")
    return [str(HERE), str(NATIVE), str(REPOSITORY), *([given] if given else [])]


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe(title: str, outcome: Outcome) -> None:
    """Print the numbers of `outcome`, by file, and every failure."""
    print(f"\n{title}: {outcome.wall_s:.0f} s wall, {outcome.cpu_s:.0f} s of processors")
    by_file: dict[str, Counter[str]] = {}
    for row in outcome.rows:
        by_file.setdefault(row["id"].partition("::")[0], Counter())[row["outcome"]] += 1
    for file, counts in sorted(by_file.items()):
        others = [f"{n} {what}" for what, n in sorted(counts.items()) if what != "passed"]
        print(f"  {file}: " + ", ".join([share(counts), *others]))
    for what in ("not applicable", "skipped", "expected failure"):
        for why, count in Counter(row.get("reason", "") for row in outcome.of(what)).most_common():
            print(f"  {what}, {count}: {why}")
    for row in outcome.of("failed"):
        why = not_applicable.known_failure(row["id"]) or row.get("reason", "")
        print(f"  failed {row['id']}: {why}")


def share(counts: Counter[str]) -> str:
    """Return how many of the cases apply, and how many of these pass."""
    passed, applicable = counts["passed"], counts["passed"] + counts["failed"]
    part = f" ({passed / applicable:.2%})" if applicable else ""
    return f"applicable {applicable}, passed {passed}{part}"


def compare(ours: Outcome, theirs: Outcome) -> None:
    """Print the times against upstream's interpreter, and what it passes and tkdebug does not."""
    mine, reference = (
        {row["id"]: row["seconds"] for row in outcome.of("passed")} for outcome in (ours, theirs)
    )
    both = mine.keys() & reference.keys()
    if not both or not theirs.cpu_s:
        print("\nno time to compare: no case passed with both; see the log")
        return
    spent, reference_spent = (sum(seconds[name] for name in both) for seconds in (mine, reference))
    print("\ntkdebug's time / that of upstream's interpreter:")
    print(f"  wall, all cases of the language files: {ours.wall_s / theirs.wall_s:.2f}")
    print(f"  processors, the same: {ours.cpu_s / theirs.cpu_s:.2f}")
    print(
        f"  the {len(both)} cases that both pass: {spent:.0f} s / {reference_spent:.0f} s "
        f"= {spent / reference_spent:.2f}"
    )
    missing = sorted(reference.keys() - mine.keys())
    print(f"upstream's interpreter passes and tkdebug does not: {len(missing)}")
    for name in missing:
        print(f"  {name}: {not_applicable.reason(name, 'interpret') or 'failed'}")


def chosen(options: argparse.Namespace, files: tuple[str, ...]) -> list[str]:
    """Return the files that the checkout has and the command line asks for."""
    tests = options.checkout / "python" / "test" / "unit"
    there = [f for f in files if (tests / f).exists()]
    return [f for f in there if not options.files or any(part in f for part in options.files)]


def run_native(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run every file natively, print, and give the outcomes."""
    files = chosen(options, LANGUAGE + NATIVE_ONLY + BEHAVIOUR)
    ours = run_pytest(options, sys.executable, files, marked=False, mode="native")
    describe("native, all files", ours)
    return ours.rows


def run_interpreted(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what upstream interprets, and the behaviour files; print, and give the outcomes."""
    marked, whole = chosen(options, LANGUAGE), chosen(options, BEHAVIOUR)
    ours = run_pytest(options, sys.executable, marked, marked=True, mode="interpret")
    describe("language files, interpreter-marked cases", ours)
    behaviour = run_pytest(options, sys.executable, whole, marked=False, mode="interpret")
    describe("behaviour files", behaviour)
    if options.upstream_python and marked:
        theirs = run_pytest(options, options.upstream_python, marked, marked=True, mode=None)
        describe("upstream's interpreter", theirs)
        compare(ours, theirs)
    return ours.rows + behaviour.rows


def print_left_out(checkout: Path) -> None:
    """Print the files of the checkout that are not run, and why."""
    listed = {*LANGUAGE, *BEHAVIOUR, *NATIVE_ONLY}
    print("\nfiles that are not run:")
    for file in not_applicable.files_of(checkout):
        if file not in listed:
            print(f"  {file}: {not_applicable.FILES.get(file, 'not looked into')}")


def main() -> int:
    """Parse the command line, run, report; 0 when 99.5 % of what applies passes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--mode", choices=("interpret", "native"), default="interpret")
    parser.add_argument(
        "--triton",
        default="3.6",
        choices=("3.6", "3.7", "3.8", "3.9"),
        help="the version that the checkout is of",
    )
    parser.add_argument("--files", nargs="*", help="part of a path, such as test_core")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", type=Path, help="write every outcome as JSON")
    parser.add_argument("--upstream-python", help="a Python with upstream installed: compare")
    parser.add_argument("--faults", choices=("fail", "report"), default="fail")
    parser.add_argument("--all", action="store_true", help="run also what does not apply")
    parser.add_argument("--also-native", metavar="TARGETS", help="compile what is interpreted too")
    parser.add_argument("--check-gpu-ir", action="store_true", help="run its GPU IR and compare")
    parser.add_argument("--native-report", type=Path, help="a JSON line for each compile")
    parser.add_argument("-k", help="as pytest's")
    parser.add_argument("--maxfail", type=int)
    parser.add_argument("--sample", default="1/1", metavar="K/N", help="of N parts only the Kth")
    parser.add_argument("--log", type=Path, default=Path("upstream-tests.log"))
    parser.add_argument("--seconds", type=float, help="end then, and report what was done")
    parser.add_argument("--quiet", action="store_true", help="keep no log of pytest's output")
    options = parser.parse_args()

    rows = run_native(options) if options.mode == "native" else run_interpreted(options)
    if options.report:
        options.report.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print_left_out(options.checkout)
    counts = Counter(row["outcome"] for row in rows)
    print(f"\n{share(counts)}, failed {counts['failed']}")
    return 0 if counts["passed"] >= 0.995 * (counts["passed"] + counts["failed"]) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
