"""Compare what Triton and tkdebug compile and refuse, over kernels of this repository.

`python tests/upstream/ask_triton.py --upstream-python PYTHON [SCRIPT …]` interprets the scripts (by
default the examples) and runs the tests of `--tests`, and asks the Triton of PYTHON whether it
compiles each signature that they launch. No GPU is needed. Differences that are known are in
`triton_differences.py`, each with its reason; others make the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE))

from triton_differences import DIFFERENCES, Difference  # noqa: E402

EXAMPLES = ("examples/*.py", "examples/debugging/*.py")
TESTS = ("tests/ops", "tests/frontend", "tests/interpreter", "tests/runtime", "tests/checked")
_SHOWN = 3


def main() -> int:
    """Ask, and print what differs; the exit status."""
    options = _options()
    scripts = options.scripts or [s for pattern in EXAMPLES for s in REPOSITORY.glob(pattern)]
    with tempfile.TemporaryDirectory() as folder:
        path = options.answers or Path(folder) / "answers.jsonl"
        path.unlink(missing_ok=True)
        asked = ["--ask-triton", options.upstream_python, "--answers", str(path.absolute())]
        failed = [s for s in scripts if _run([str(HERE / "ask_plugin.py"), *asked, str(s)])]
        for tests in options.tests:
            if _run(["-m", "pytest", "-q", "-p", "ask_plugin", *asked, tests]):
                failed.append(tests)
        answers = [json.loads(line) for line in path.read_text().splitlines()]
    for line in report(answers):
        print(line)
    for name in failed:
        print(f"failed: {name}")
    unknown = sum(1 for answer in answers if differs(answer) and reason_of(answer) is None)
    return 1 if unknown or failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream-python", required=True, metavar="PYTHON")
    parser.add_argument("--tests", nargs="*", default=TESTS, metavar="FOLDER")
    parser.add_argument("--answers", type=Path, metavar="FILE", help="keep all answers there")
    parser.add_argument("scripts", nargs="*", type=Path, metavar="SCRIPT")
    return parser.parse_args()


def _run(words: Sequence[str]) -> int:
    path = os.pathsep.join([str(REPOSITORY), str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    return done.returncode


def differs(answer: Mapping[str, Any]) -> bool:
    """Whether one of the two compiles what the other refuses."""
    return bool(answer["verdict"] == ("takes" if answer["refused"] else "refuses"))


def reason_of(answer: Mapping[str, Any]) -> Difference | None:
    """The known difference that an answer is of."""
    text = answer["refused"] or answer["text"]
    for known in DIFFERENCES:
        if known.verdict == answer["verdict"] and re.search(known.pattern, text):
            return known
    return None


def report(answers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines: counts, known differences by their reason, and the others with their kernels."""
    found: dict[Difference | str, list[str]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for answer in answers:
        if not differs(answer):
            both = {"takes": "both take", "refuses": "both refuse"}
            counts[both.get(answer["verdict"], "undecided")] += 1
            continue
        counts["differ"] += 1
        text = f"Triton {answer['verdict']}: {answer['refused'] or answer['text']}"
        file, line = answer["place"]
        found[reason_of(answer) or text].append(f"{file}:{line} {answer['kernel']}")
    yield f"{len(answers)} signatures: " + ", ".join(f"{what} {n}" for what, n in counts.items())
    for what, kernels in sorted(found.items(), key=lambda item: isinstance(item[0], str)):
        if isinstance(what, Difference):
            yield f"{len(kernels):5}  known: {what.reason}"
        else:
            yield f"{len(kernels):5}  NEW: {what}"
            yield from (f"         {kernel}" for kernel in sorted(set(kernels))[:_SHOWN])


if __name__ == "__main__":
    sys.exit(main())
