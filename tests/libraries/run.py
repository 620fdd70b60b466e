"""Run a sample of a library's kernel tests: `python tests/libraries/run.py vllm SOURCE`.

SOURCE is an unpacked source of the version that `libraries.py` names. The Python that runs this
needs what the library imports, torch, and no Triton. Tests that say `device="cuda"` run on the
stand-in for CUDA, their kernels interpreted. Prints a row of docs/libraries.md, and each failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from libraries import LIBRARIES, Library  # noqa: E402

# What a test says that calls into a compiled extension.
_EXTENSION = re.compile(
    r"_OpNamespace|no attribute '(_C|_moe_C)"
    r"|No module named '(vllm\.|sgl_kernel|flashinfer|deep_gemm)"
)
_TIME = re.compile(r"over \d+ s$")
# pytest's exit statuses: all passed, some failed, interrupted, none chosen.
_ENDED_WELL = (0, 1, 2, 5)


def cause(row: dict[str, Any]) -> str:
    """Return the outcome of a case, in the words of the table."""
    match row["outcome"]:
        case "failed" if over := _TIME.search(row["reason"]):
            return over[0]
        case "failed" if _EXTENSION.search(row["reason"] + row["text"]):
            return "needs the compiled extension"
        case outcome:
            return str(outcome)


def run(name: str, library: Library, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the files; where a test takes the process down, go on in another behind its file."""
    source = options.source.resolve()
    below = HERE if library.tests_are_ours else source
    files = sorted({path for pattern in library.tests for path in below.glob(pattern)})
    files = [f for f in files if not options.files or any(part in str(f) for part in options.files)]
    rows: list[dict[str, Any]] = []
    while files:
        status, found = run_files(name, library, files, options)
        rows += found
        done = {str(below / row["id"].partition("::")[0]) for row in found}
        if status in _ENDED_WELL:
            break
        left = [i for i, file in enumerate(files) if str(file) in done]
        last = max(left, default=0)
        reason = f"pytest ended with status {status}"
        rows.append({"id": str(files[last]), "outcome": "died", "reason": reason, "faults": []})
        files = files[last + 1 :]
    return rows


def run_files(
    name: str, library: Library, files: list[Path], options: argparse.Namespace
) -> tuple[int, list[dict[str, Any]]]:
    """Run files in one pytest process; its status, and what it recorded."""
    imports = [str(options.source.resolve() / folder) for folder in library.import_from]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    root = HERE if library.tests_are_ours else options.source.resolve()
    command += ["--continue-on-collection-errors", "--rootdir", str(root)]
    command += ["-c", os.devnull, "-p", "tkdebug.pytest_plugin", "-p", "library_plugin"]
    command += ["--tkdebug-mode", "interpret", "--tkdebug-triton", library.triton]
    command += [f"--tkdebug-check={check}" for check in options.check]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.jsonl"
        record.touch()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(HERE), str(HERE.parent.parent), *imports, os.environ.get("PYTHONPATH", "")]
            ),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TKDEBUG_LIBRARY": name,
            "TKDEBUG_LIBRARY_CASES": str(options.cases),
            "TKDEBUG_LIBRARY_SECONDS": str(options.seconds),
            "TKDEBUG_LIBRARY_RECORD": str(record),
        }
        with options.log.open("ab") as log:
            ended = subprocess.run(
                [*command, *map(str, files)], env=environment, stdout=log, stderr=log, cwd=folder
            )
        lines = record.read_text(encoding="utf-8").splitlines()
    return ended.returncode, [json.loads(line) for line in lines]


def describe(row: dict[str, Any]) -> None:
    """Print a failure in a line, and the first lines of faults."""
    if cause(row) in ("failed", "died", "not collected"):
        print(f"  {row['id'].rpartition('/')[2]}: {' '.join(row['reason'].split())[-300:]}")
    for text in row["faults"]:
        print("  " + text.splitlines()[0])


def main() -> int:
    """Run, print the row of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("source", type=Path)
    parser.add_argument("--files", nargs="*", help="part of a path")
    parser.add_argument("--cases", type=int, default=2, help="of each test function")
    parser.add_argument("--seconds", type=int, default=10, help="for each case")
    parser.add_argument("--check", action="append", default=[], help="as --tkdebug-check")
    parser.add_argument("--log", type=Path, default=Path("library-tests.log"))
    parser.add_argument("--report", type=Path, help="write every outcome as JSON")
    options = parser.parse_args()
    library = LIBRARIES[options.library]
    rows = run(options.library, library, options)
    for row in rows:
        describe(row)
    if options.report:
        options.report.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    counts = Counter(cause(row) for row in rows)
    print(
        f"\n{options.library} {library.version}: "
        + ", ".join(f"{n} {what}" for what, n in counts.most_common())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
