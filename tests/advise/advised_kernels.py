"""The kernels of `kernels/`: what is planted where, and what advice says of them.

python tests/advise/advised_kernels.py [SIZE]     # a line for each kernel, and how many are right
"""

from __future__ import annotations

import ast
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import tkdebug
from tkdebug import compat
from tkdebug.advice.records import LaunchCost, Remark, ranked
from tkdebug.checks import NO_CHECKS
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook

KERNELS = Path(__file__).parent / "kernels"
PLANTED = (
    *("compute_first", "grids_first", "memory_first"),
    *("compute_more", "memory_more"),
)
# Written before the rules were looked at; rules were then fixed for what they missed of these.
HELD_OUT = ("held_out", "held_out_tiles")
# What people reported in public issues and articles: right at small sizes and at real ones.
STORIES = ("stories", "stories_more")
# Such kernels again, with their right answers written before advice was asked; at real sizes.
PUBLISHED = ("published", "published_more")
# Such kernels at the sizes of a test alone.
SMALL_STORIES = "stories_small"
# Too little at 256 for a remark.
ONLY_REAL = ("squared_norms", "weighed_norms")
# Two more kernels for each such cause, with which it was seen that the fixed rules are general.
VARIANTS = ("variants",)
GOOD = tuple(sorted(p.stem for p in KERNELS.glob("good_*.py")))
_SIZE = 512
_MARK = "# <- "


@dataclass(frozen=True, slots=True)
class Told:
    """Advice on one case: the launch's cost, and remarks, the best first."""

    cost: LaunchCost
    remarks: tuple[Remark, ...]


def run(
    file: str, case: str, size: int = _SIZE, arch: str = "sm_90a", form: str = "planted"
) -> Told:
    """Interpret one case, with its cause or in another form, and judge it."""
    costs: list[LaunchCost] = []
    remarks: list[Remark] = []

    def record(event: object) -> None:
        if isinstance(event, LaunchCost):
            costs.append(event)
        elif isinstance(event, Remark):
            remarks.append(event)

    hook = Hook(record=record, compiled=lambda kernel: None)
    knobs = KNOBS.scope(cross_compile=arch, advise=True, checks=(NO_CHECKS,))
    with knobs, compat.install(mode="interpret", quick=True):
        HOOKS.add(hook)
        try:
            make = runpy.run_path(str(KERNELS / f"{file}.py"))["CASES"][case]
            launch = make(size) if file in GOOD else make(form, size)
            launch()
        finally:
            HOOKS.remove(hook)
    return Told(costs[0], tuple(ranked(remarks)))


def cases(file: str) -> tuple[str, ...]:
    """The names of a file's cases, in order."""
    with compat.install(mode="interpret", quick=True):
        return tuple(runpy.run_path(str(KERNELS / f"{file}.py"))["CASES"])


def planted_at(file: str, kernel: str) -> tuple[int, str]:
    """Line and kind of what is planted in a kernel."""
    lines = (KERNELS / f"{file}.py").read_text().splitlines()
    start = next(n for n, text in enumerate(lines) if text.startswith(f"def {kernel}("))
    for number in range(start, len(lines)):
        if _MARK in lines[number]:
            return number + 1, lines[number].partition(_MARK)[2].strip()
    raise AssertionError(f"nothing is planted in {kernel}")


def planted_in(file: str, kernel: str) -> set[tuple[int, str]]:
    """Lines and kinds that are right of a kernel: all marks, each for its whole statement."""
    text = (KERNELS / f"{file}.py").read_text()
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    function = next(node for node in functions if node.name == kernel)
    simple = (ast.Assign, ast.AugAssign, ast.Expr)
    spans = [
        range(node.lineno, (node.end_lineno or 0) + 1)
        for node in ast.walk(function)
        if isinstance(node, simple)
    ]
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        if function.lineno <= number <= (function.end_lineno or 0) and _MARK in line:
            head = range(function.lineno, function.body[0].lineno)
            span = next((s for s in (*spans, head) if number in s), range(number, number + 1))
            kinds = line.partition(_MARK)[2].strip().split("|")
            found |= {(one, kind) for one in span for kind in kinds}
    return found


def rank(told: Told, line: int, kind: str) -> int | None:
    """Return the rank of a remark of a kind at a line, from 1; None where there is none."""
    places = [(remark.line, remark.kind) for remark in told.remarks]
    return places.index((line, kind)) + 1 if (line, kind) in places else None


def _print_ranked(file: str, case: str, size: int) -> int | None:
    told = run(file, case, size)
    planted = planted_in(file, told.cost.kernel)
    kind = min(kind for _, kind in planted)
    ranks = (rank(told, *one) for one in planted)
    found = min((one for one in ranks if one is not None), default=None)
    text = "-"
    if told.remarks:
        first = told.remarks[0]
        before_ns, after_ns = first.ranked_by
        text = f"{first.kind}:{first.line} {before_ns / after_ns:.3g}x"
    mark = "ok" if found == 1 else "--"
    print(f"{mark} {case:20} {kind:20} rank {found or '-'}  {text:36} {told.cost.launched_bound}")
    return found


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else _SIZE
    groups = (PLANTED, "planted"), (HELD_OUT, "held out"), (VARIANTS, "variants")
    stories = (*STORIES, SMALL_STORIES), "stories"
    for files, what in (*groups, stories, (PUBLISHED, "published")):
        ranks = [_print_ranked(file, case, size) for file in files for case in cases(file)]
        print(f"{ranks.count(1)} of {len(ranks)} {what}")
    for file in GOOD:
        for case in cases(file):
            result = run(file, case, size)
            kinds = ", ".join(f"{r.kind}:{r.line}" for r in result.remarks)
            print(f"{'--' if kinds else 'ok'} {case:20} {result.cost.launched_bound:24} {kinds}")


if __name__ == "__main__":
    assert tkdebug.__version__
    main()
