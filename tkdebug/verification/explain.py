"""A failing case made smaller, its cause, and the trick that it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tkdebug.causes.comparison import Comparison
from tkdebug.causes.launches import RememberedLaunches
from tkdebug.errors import Frame, TkError
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault
from tkdebug.verification.drawing import first_of, simpler
from tkdebug.verification.inputs import dense_values
from tkdebug.verification.oracle import compare
from tkdebug.verification.records import Case, Finding
from tkdebug.verification.rounding import NotRunnableError

if TYPE_CHECKING:
    from tkdebug.verification.plan import Plan
    from tkdebug.verification.runner import Outcome
    from tkdebug.verification.search import Search

_OF_VALUES = ("wrong-value", "wrong-shape")
_CAUSE_SECONDS = 6.0
_MOST_DRAWN = 40
# Findings of one call alone, which a smaller case may show, too.
SHRINKABLE = frozenset(
    (
        *_OF_VALUES,
        *("oob-load", "oob-store", "oob-atomic", "race", "uninitialised-read", "offset-overflow"),
        *("assert", "assumption", "compile-error", "raises", "input-changed"),
    )
)


def smallest(search: Search, finding: Finding, plan: Plan, limit: float) -> Finding:
    """Return the same finding for the smallest case, of those tried in time, that shows it.

    Args:
        search: the search that runs cases.
        finding: the finding; it is returned unchanged if no smaller case shows it.
        plan: the plan with the sizes that may change.
        limit: the share of the time until which cases are tried.
    """
    assert finding.case is not None
    known: dict[Case, Finding | None] = {finding.case: finding}

    def shows(case: Case) -> bool:
        if case not in known:
            if search.share() > limit:
                return False
            out = search.runner.run(case)
            found = out.finding if out.status == "wrong" else None
            known[case] = found if found is not None and _is_same(found, finding) else None
        return known[case] is not None

    seed = str(search.request.seed)
    case = first_of(simpler(finding.case, plan), shows, _MOST_DRAWN, seed)
    return finding if case is None else known[case] or finding


def _is_same(found: Finding, wanted: Finding) -> bool:
    if wanted.kind in _OF_VALUES:
        return found.kind == wanted.kind
    return found.kind == wanted.kind and found.line == wanted.line


def caused(search: Search, finding: Finding) -> Finding:
    """Return a finding with the cause of its wrong value; unchanged if no cause is found."""
    remembered = search.runner.watcher.remembered
    if finding.kind != "wrong-value" or finding.case is None or remembered is None:
        return finding
    left = search.request.seconds * (1.0 - search.share())
    if left < 1.0:
        return finding
    seconds = min(KNOBS.cause_seconds, _CAUSE_SECONDS, left * 0.8)
    with KNOBS.scope(cause=True, cause_seconds=seconds):
        out = search.runner.run(finding.case)
        fault = _fault(out, remembered)
    if fault is None:
        return finding
    return replace(
        finding,
        file=fault.file or finding.file,
        line=fault.line,
        kernel=fault.kernel,
        fault=_as_json(fault),
    )


def _fault(out: Outcome, remembered: RememberedLaunches) -> Fault | None:
    from tkdebug.causes.mismatch import Mismatches
    from tkdebug.verification.oracle import tensors_in

    if out.wrong is None or out.oracle is None or out.result is None:
        return None
    place = out.wrong.place
    found = tensors_in(out.raw)
    found += [(f"input {number}", out.given[number]) for number in out.oracle.changed]
    expected = out.oracle.expected[place]
    actual = host_view(found[place][1].detach())
    wanted = expected.exact.to(actual.dtype)
    frames = (Frame(out.finding.file or "", 1, "verify"),) if out.finding is not None else ()
    comparison = Comparison(
        *("tkdebug verify", actual, wanted, 0.0, max(out.wrong.tolerance, 1e-30), True, frames)
    )
    try:
        return Mismatches(remembered).fault(comparison)
    except TkError:
        return None  # the finding stands without


def _as_json(fault: Fault) -> dict[str, object]:
    from tkdebug.instrument.renderers.json_format import fault_object

    return fault_object(fault)


def name_trick(search: Search, finding: Finding, plan: Plan) -> None:
    """Add a finding if a wrong value is a constant result or the error of a narrower type."""
    if finding.kind != "wrong-value" or finding.case is None:
        return
    if _is_constant(search, finding.case):
        text = "other values of the inputs give the same bits, where the reference gives others"
        search.keep(Finding("constant-result", text, True, finding.case, finding.file))
        return
    name = _lowered(search, finding.case) if _is_like_rounding(search, finding.case, plan) else ""
    if name:
        text = f"the error is that of arithmetic in {name}"
        search.keep(Finding("precision-lowered", text, True, finding.case, finding.file))


def _is_constant(search: Search, case: Case) -> bool:
    if case.values not in ("normal", "given", "integers"):
        return False
    outs = [
        search.runner.run(case.renamed(case.name, values="normal", seed=case.seed + more))
        for more in (1, 2)
    ]
    if any(out.result is None or out.oracle is None for out in outs):
        return False
    (a, b), (one, other) = (
        [[t for _, t in out.result or ()] for out in outs],
        [[e.exact for e in out.oracle.expected] for out in outs if out.oracle is not None],
    )
    is_same = all(x.shape == y.shape and torch.equal(x, y) for x, y in zip(a, b, strict=True))
    differs = any(
        x.shape == y.shape and not torch.equal(x, y) for x, y in zip(one, other, strict=True)
    )
    return is_same and differs and any(t.numel() for t in a)


def _lowered(search: Search, case: Case) -> str:
    """Return the narrower type whose rounding explains a wrong value, "" for none."""
    runner = search.runner
    tensors = dense_values(runner.problem.example, case)
    floats = {t.dtype for t in tensors if t.is_floating_point()}
    if torch.float64 in floats:
        ladder = [("fp32", 2.0**-24)]
    elif torch.float32 in floats:
        ladder = [("tf32 or fp16", 2.0**-11), ("bf16", 2.0**-8)]
    else:
        ladder = [("half precision on the way, such as sums", 2.0**-8)]
    out = runner.run(case)
    if out.result is None or out.wrong is None:
        return ""
    for name, unit in ladder:
        try:
            oracle = runner.oracle(case, tensors, lowered=unit)
        except NotRunnableError:
            return ""
        wrong, elements = compare(out.result, oracle)
        if wrong is not None:
            continue
        scale = max(
            (
                float(e.exact.abs().nan_to_num(0, 0, 0).max())
                for e in oracle.expected
                if e.exact.numel()
            ),
            default=0.0,
        )
        allowed = max(
            (
                float(e.tolerance[e.tolerance.isfinite()].max())
                for e in oracle.expected
                if e.tolerance.numel()
            ),
            default=0.0,
        )
        if elements and allowed < 0.2 * scale:
            return name
    return ""


def _is_like_rounding(search: Search, case: Case, plan: Plan) -> bool:
    """Whether results are wrong at every scale of values, but right for small, exact integers."""
    like = plan.middle.renamed("roundings", dtypes=case.dtypes, weights="given")
    runs = [
        search.runner.run(like.renamed(like.name, values=values))
        for values in ("integers", "normal", "large", "small")
    ]
    return [one.status for one in runs] == ["right", "wrong", "wrong", "wrong"]
