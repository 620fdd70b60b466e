"""torch's own tests, run as for a GPU on the CUDA device that machines without one have.

    python bench/standin_inductor.py pytorch/test/inductor/test_torchinductor.py
    python bench/standin_inductor.py FILE --cases 50 --seed 7 --report inductor.json
    python bench/standin_inductor.py FILE --only test_cat
    python bench/standin_inductor.py pytorch/test/test_torch.py

FILE is torch's: Inductor's tests, or any whose tests are instantiated for devices, of a version
whose imports load with the installed torch; nothing is downloaded. Cases are drawn by a seed from
the classes of tests whose device is `cuda`, and run one after another in a process under tkdebug,
interpreted; one that crashes or takes too long is a line of the report. Skipped tests do not apply
and others are drawn instead. `--for-device npu` takes a file that is written for another device.
Needs `expecttest`.
"""

import argparse
import ast
import collections
import contextlib
import importlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

HERE = Path(__file__).resolve()
LIMIT_S = 300
PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--cases", type=int, default=300, metavar="N", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain this")
    parser.add_argument("--for-device", metavar="NAME", help="the device that FILE is written for")
    parser.add_argument("--report", type=Path, metavar="FILE", help="all cases, as JSON")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first is not None:
        return work(arguments)
    done = run(arguments)
    for case in done:
        if case["outcome"] in (FAILED, CRASHED):
            print(f"{case['outcome']}: {case['name']}: {case['said']}")
    counts = collections.Counter(case["outcome"] for case in done)
    print(f"{len(done)} cases that apply:", dict(counts))
    return 1 if counts[FAILED] or counts[CRASHED] else 0


def run(arguments):
    """Run cases until enough have applied: a record of each."""
    done, first = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "inductor_tests.py"
        file.write_text(source_of(arguments), "utf-8")
        while len(done) < arguments.cases:
            before = first
            first = run_worker(arguments, file, first, done)
            if first is None or first == before:
                return done
    return done


def source_of(arguments):
    """Return the text of the tests, for a CUDA device."""
    text = arguments.file.read_text("utf-8")
    if arguments.for_device:
        name = arguments.for_device
        for word, device in ((name.lower(), "cuda"), (name.upper(), "CUDA")):
            text = re.sub(rf"(?<![A-Za-z]){word}", device, text)
    return text


def run_worker(arguments, file, first, done):
    """Run cases from one on, until a process ends: where to go on, or None after the last."""
    command = [sys.executable, "-m", "tkdebug", "run", "--no-tui", HERE, file]
    options = ["--seed", arguments.seed, "--only", arguments.only, "--first", first]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(file.parent / "inductor")}
    running, begun = None, first
    printed = file.parent / "stderr"
    with (
        printed.open("w") as errors,
        subprocess.Popen(
            [str(word) for word in (*command, *options)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            # Tests leave files.
            cwd=file.parent,
        ) as worker,
    ):
        for line in worker.stdout:
            with contextlib.suppress(json.JSONDecodeError, TypeError, KeyError):
                case = json.loads(line)
                first, running = case["index"] + 1, case
                if case["outcome"] != CRASHED:
                    running = None
                    if case["outcome"] != SKIPPED:
                        done.append(case)
                        print(len(done), case["outcome"], case["name"], file=sys.stderr)
                        if arguments.report:
                            arguments.report.write_text(json.dumps(done, indent=1), "utf-8")
            if len(done) >= arguments.cases:
                worker.kill()
                return None
    if running is not None:
        done.append({**running, "said": f"the process ended with status {worker.returncode}"})
        return first
    if worker.returncode and first == begun:
        raise SystemExit(f"the tests did not load:\n{printed.read_text('utf-8')[-2000:]}")
    return None


def work(arguments):
    """Run cases from `--first` on, and print a line for each before and after it."""
    # Tests count warnings.
    warnings.simplefilter("default")
    spec = importlib.util.spec_from_file_location("inductor_tests", arguments.file)
    make_missing_names(arguments.file.read_text("utf-8"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["inductor_tests"] = module
    spec.loader.exec_module(module)
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, unittest.TestCase)
        and "cuda" in (hasattr(kind, "common") and kind.device, getattr(kind, "device_type", ""))
    ]
    names = [
        (kind, name)
        for kind in kinds
        for name in sorted(unittest.TestLoader().getTestCaseNames(kind))
        if arguments.only in name
    ]
    random.Random(arguments.seed).shuffle(names)
    for index, (kind, name) in enumerate(names):
        if index < arguments.first:
            continue
        case = {"index": index, "name": name, "outcome": CRASHED, "said": ""}
        print(f"\n{json.dumps(case)}", flush=True)
        signal.alarm(LIMIT_S)
        # Both use what torch offers its tests alone.
        kind._do_cuda_memory_leak_check = kind._do_cuda_non_default_stream = False  # noqa: SLF001
        outcome, said = outcome_of(kind(name))
        print(f"\n{json.dumps({**case, 'outcome': outcome, 'said': said})}", flush=True)
    return 0


def make_missing_names(text):
    """Give torch names that another version has; tests that use one are skipped."""
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torch"):
            continue
        owner = importlib.import_module(node.module)
        for alias in node.names:
            try:
                importlib.import_module(f"{node.module}.{alias.name}")
            except ImportError:
                if not hasattr(owner, alias.name):
                    setattr(owner, alias.name, missing(f"{node.module}.{alias.name}"))


def missing(name):
    """Return what skips the test that calls it, or that it decorates."""

    def skip(*arguments, **keywords):
        if len(arguments) == 1 and callable(arguments[0]):
            return unittest.skip(f"this torch has no {name}")(arguments[0])
        raise unittest.SkipTest(f"this torch has no {name}")

    return skip


def outcome_of(test):
    """Run a test: an outcome, and the last lines of what it said."""
    result = unittest.TestResult()
    kind = type(test)
    kind.setUpClass()
    try:
        test.run(result)
    finally:
        kind.tearDownClass()
    if result.skipped or result.expectedFailures:
        return SKIPPED, str(result.skipped)[:200]
    wrong = result.errors + result.failures
    if not wrong:
        return PASSED, ""
    lines = [line.strip() for line in wrong[0][1].strip().splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failure)\b", line)]
    return FAILED, (errors[-1] if errors else lines[-1])[:300]


if __name__ == "__main__":
    sys.exit(main())
