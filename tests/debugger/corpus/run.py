"""Compare the debugger's variables with upstream's interpreter, on kernels of libraries.

`python tests/debugger/corpus/run.py CHECKOUTS --upstream PYTHON [--python PYTHON]`

CHECKOUTS is a folder with the checkouts that `libraries.py` names; nothing of them is copied.
`--upstream` is a Python with Triton 3.6 and torch for the reference, `--python` one with torch and
what the libraries need. A library's tests run under tkdebug, and the smallest launch of each kernel
is written down (`capture_plugin.py`). Upstream's interpreter evaluates one program of it, line by
line (`upstream_locals.py`); the debugger steps through the same program, and each of its locals at
each line is looked for among its variables (`compare.py`). `kernels.txt` lists the kernels, with
the test that launches each; `--all` runs all tests instead, and `--update` writes the list again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
KERNELS = HERE / "kernels.txt"
sys.path.insert(0, str(HERE))

from libraries import LIBRARIES, Library  # noqa: E402


def listed(file: Path = KERNELS) -> dict[str, dict[str, str]]:
    """The kernels of `kernels.txt` by library: the test that launches each."""
    found: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            library, kernel, test = line.split(" ", 2)
            found.setdefault(library, {})[kernel] = test
    return found


def main() -> int:
    """Run what the command line asks for; 1 where a variable is wrong or a live one is missing."""
    options = _options()
    totals: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for name in options.libraries:
        library = LIBRARIES[name]
        out = options.out / name
        if not (options.checkouts / library.folder).is_dir():
            print(f"{name}: skipped, there is no {options.checkouts / library.folder}")
            continue
        _capture(options, name, library, out)
        _evaluate(options, name, library, out)
        rows += [dict(row, library=name) for row in _compare(options, library, out)]
    for row in rows:
        totals.update({key: value for key, value in row.items() if isinstance(value, int)})
    _report(rows, totals)
    if options.update:
        _write_list(rows)
    wrong = totals["wrong"] + totals["live"] + totals["unmatched"]
    return int(wrong > 0 or not totals["equal"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--upstream", required=True, help="a Python with upstream Triton 3.6")
    parser.add_argument("--python", default=sys.executable, help="a Python with the libraries'")
    parser.add_argument("--path", action="append", default=[], help="more to import from, upstream")
    parser.add_argument("--out", type=Path, default=None, help="where launches are kept")
    parser.add_argument("--libraries", type=lambda text: text.split(","), default=list(LIBRARIES))
    parser.add_argument("--all", action="store_true", help="all tests, not those of kernels.txt")
    parser.add_argument("--update", action="store_true", help="write kernels.txt again")
    parser.add_argument("--seconds", type=int, default=300, help="for the tests of a library")
    options = parser.parse_args()
    options.checkouts = options.checkouts.resolve()
    options.out = (options.out or Path(tempfile.mkdtemp(prefix="tkdebug-corpus-"))).resolve()
    return options


def _environment(options: argparse.Namespace, library: Library, **more: str) -> dict[str, str]:
    sources = options.checkouts / library.folder / library.sources
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, HERE, sources))),
        # The branches that upstream 3.6 takes, and the dots of its interpreter.
        "TKDEBUG_TRITON": "3.6",
        "TRITON_F32_DEFAULT": "ieee",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **library.environment,
        **more,
    }


def _capture(options: argparse.Namespace, name: str, library: Library, out: Path) -> None:
    tests = list(library.tests)
    if not options.all:
        chosen = listed().get(name, {})
        tests = sorted(set(chosen.values()))
    plain = ["-q", "--maxfail=100000", "--tb=line", "-p", "no:cacheprovider"]
    ours = ["-p", "tkdebug.pytest_plugin", "--tkdebug-mode", "interpret"]
    command = [options.python, "-m", "pytest", *plain, *ours, "--tkdebug-faults", "report",
               "-p", "capture_plugin"]  # fmt: skip
    environment = _environment(
        options, library, CORPUS_OUT=str(out), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        CORPUS_SAMPLE="1" if options.all else "0",
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with (options.out / f"{name}.log").open("wb") as log:
        subprocess.run(
            ["timeout", str(options.seconds), *command, *library.options, *tests],
            cwd=options.checkouts / library.folder, env=environment, stdout=log,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip


def _evaluate(options: argparse.Namespace, name: str, library: Library, out: Path) -> None:
    chosen = listed().get(name, {})
    files = [file for file in sorted(out.glob("*.pt")) if options.all or file.stem in chosen]
    sources = options.checkouts / library.folder / library.sources
    paths = [word for path in (sources, *options.path) for word in ("--path", str(path))]
    command = [options.upstream, str(HERE / "upstream_locals.py"), *map(str, files), *paths]
    with (options.out / f"{name}.reference.log").open("wb") as log:
        subprocess.run(
            command, env=_environment(options, library, PYTHONPATH=str(HERE)), check=bool(files),
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _compare(options: argparse.Namespace, library: Library, out: Path) -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        [options.python, str(HERE / "compare.py"), str(out)],
        env=_environment(options, library), check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _report(rows: list[dict[str, Any]], totals: Counter[str]) -> None:
    for row in rows:
        for text in (*row["refused"], *row["lines_wrong"]):
            print(f"{row['library']} {row['kernel']}: {text}")
    print(
        f"{'library':10} {'kernels':>7} {'refused':>7} {'lines':>7} {'equal':>8} {'wrong':>6} "
        f"{'not available':>13} {'live':>5} {'other lines':>11} {'not compared':>12}"
    )
    for name in sorted({row["library"] for row in rows}):
        own = [row for row in rows if row["library"] == name]
        _print_row(name, own)
    _print_row("all", rows)
    read = totals["equal"] + totals["wrong"] + totals["unavailable"]
    if read:
        print(f"available: {100 * (read - totals['unavailable']) / read:.2f} % of {read}")
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row["reasons"])
    for reason, count in reasons.most_common(20):
        print(f"  {count} not available: {reason}")


def _print_row(name: str, rows: list[dict[str, Any]]) -> None:
    kernels = sum(not row["refused"] for row in rows)
    columns = ("lines", "equal", "wrong", "unavailable", "live", "unmatched", "other")
    lines, equal, wrong, gone, live, unmatched, other = (
        sum(row[column] for row in rows) for column in columns
    )
    print(
        f"{name:10} {kernels:7} {len(rows) - kernels:7} {lines:7} {equal:8} {wrong:6} {gone:13} "
        f"{live:5} {unmatched:11} {other:12}"
    )


def _write_list(rows: list[dict[str, Any]]) -> None:
    """Keep what the reference could evaluate and what is equal; the rest is to be looked at."""
    head = KERNELS.read_text().splitlines() if KERNELS.exists() else []
    lines = [line for line in head if line.startswith("#")]
    for row in rows:
        if row["equal"] and not row["lines_wrong"]:
            lines.append(f"{row['library']} {row['kernel']} {row['test']}")
    KERNELS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
