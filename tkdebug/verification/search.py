"""The search: a candidate is called on case after case, and what it does is judged.

Runs in the process of the candidate. The answer so far is handed out as it grows, so that a call
that does not end loses nothing.

Planned cases come first: which sizes there are is learned from the reference and from what the
kernel refuses, and what is tried depends on branches and grids that were seen, and on costs.
Hypothesis draws the random cases after them (`Plan.drawn`), and makes any failing case smaller
(`explain.smallest`, `drawing`); each case stays one replayable record.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from tkdebug.verification.drawing import first_of
from tkdebug.verification.inputs import (
    dense_values,
    placed,
    size_elems,
)
from tkdebug.verification.launches import Seen
from tkdebug.verification.oracle import (
    compare,
    tensors_in,
)
from tkdebug.verification.plan import Plan, Sizes
from tkdebug.verification.problem import (
    references,
)
from tkdebug.verification.records import Answer, Case, Finding
from tkdebug.verification.rounding import DearError, NotRunnableError, limited
from tkdebug.verification.runner import Outcome, Runner
from tkdebug.verification.source import Hints

# Shares of the time: of cases, and of making a failing one smaller.
_SEARCH_SHARE = 0.65
_SHRINK_SHARE = 0.2
# The share until which cases are tried that a kernel may not mean to take.
_DOUBT_SHARE = 0.85
_LARGE_SHARE = 0.25
_DEAR_SHARE = 0.12
# Time grows by this power of the elements: attention by the second, for most by the first.
_GROWTH = 1.5
_REFERENCE_SHARE = 0.005
# Shares of the reference: on the example inputs, and on the inputs of one case.
_EXAMPLE_SHARE = 0.1
_LARGE_ELEMENTS = 2048
_BIG_ELEMENTS = 1 << 16


class Search:
    """One verification, from the example to the verdict.

    Args:
        runner: calls the candidate.
        answer: the answer to fill.
        report: called with the answer when it has grown.
    """

    def __init__(
        self, runner: Runner, answer: Answer, report: Callable[[Answer], None] = lambda answer: None
    ) -> None:
        self.runner = runner
        self.answer = answer
        self.request = runner.request
        self._report = report
        self._begun = time.process_time()
        self._wall = time.monotonic()
        self._cost_s = 0.0
        # Elements and processor time of cases that are not small.
        self._costs: list[tuple[int, float]] = []
        # Cases whose results are right though no kernel was launched.
        self.bare: list[Case] = []

    def share(self) -> float:
        """Return the used share of the budget: processor time, or a third of wall time if more."""
        used = max(time.process_time() - self._begun, (time.monotonic() - self._wall) / 3)
        return used / self.request.seconds

    def is_late(self) -> bool:
        """Whether no time is left for cases that a kernel may not mean to take."""
        return self.share() > _DOUBT_SHARE

    def run(self) -> None:
        """Verify the kernel, and fill the answer."""
        from tkdebug.verification import tricks

        problem, request, answer = self.runner.problem, self.runner.request, self.answer
        if request.case:
            self.take(self.runner.run(Case.of_text(request.case)))
            return self._end()
        given = problem.example.case()
        is_slow = False
        try:
            with limited(request.seconds * _EXAMPLE_SHARE):
                answer.why = self._reference_fails(given)
        except DearError as error:
            is_slow = True
            text = f"the reference is slow, on the example inputs {error}: smaller ones were tried"
            answer.covered.notes.append(text)
        if answer.why:
            return self._end()
        integers = [int(t.max()) for t in problem.example.tensors if _is_index(t)]
        sizes = Sizes.learn(given, self.runner.accepts, max(integers, default=-1))
        plan = Plan(
            problem.example,
            given,
            sizes,
            request.seed,
            max((len(t.configs) for t in self.runner.tuners), default=0),
            problem.has_modules and self._has_parameters(),
            Hints.of_source(problem.source),
            self.runner.watcher.blocks,
            self.runner.is_native,
        )
        if not sizes.groups:
            answer.covered.notes.append("the reference takes no other sizes than the example's")
        self._first(plan, is_slow)
        if answer.why and not answer.covered.cases:
            return self._end()
        if not self._is_wrong():
            tricks.look(self, plan)
        if not self._is_wrong():
            self._cases(plan)
            tricks.look_again(self, plan)
        if not self._is_wrong():
            self._doubtful(plan)
            self._note_unreached()
        if self._is_wrong():
            self._explain(plan)
        return self._end()

    def _end(self) -> None:
        self.answer.judge()
        self.answer.seconds = time.process_time() - self._begun
        self._report(self.answer)

    def _is_wrong(self) -> bool:
        return any(finding.is_wrong for finding in self.answer.findings)

    def _has_parameters(self) -> bool:
        """Whether other parameters can be given to both modules alike."""
        try:
            return bool(self.runner.problem.same_names())
        except Exception:
            return False  # why they cannot be made is asked elsewhere

    def _settle(self, plan: Plan) -> None:
        """Choose the parameters and sizes with which all else is varied."""
        self._settle_weights(plan)
        plan.settle(self._takes)

    def _settle_weights(self, plan: Plan) -> None:
        """Stop varying parameters if the module keeps other tensors and is wrong with new ones."""
        if not plan.has_weights or not self.runner.problem.keeps_more():
            return
        base = plan.sizes.base
        others = self.runner.run(base.renamed("other parameters", weights="random"))
        if others.status == "wrong" and self.runner.run(base).status == "right":
            plan.has_weights = False
            text = "parameters that are loaded are not seen: something is kept as it was made"
            self.doubt(Finding("stale-parameters", text, False, None, self.runner.problem.file))

    def _reference_fails(self, given: Case) -> str:
        """Return why the reference is of no use for the example; "" if it is."""
        runner = self.runner
        tensors = dense_values(runner.problem.example, given)
        run = references(runner.problem, given, tensors, lambda: placed(tensors, given, "cpu"))
        try:
            first, _ = run(is_wide=False, lift=None)
            again, _ = run(is_wide=False, lift=None)
        except NotRunnableError as error:
            if "not implemented for" in str(error):
                return ""
            return f"the reference fails on the example inputs: {error}"
        pairs = zip(tensors_in(first), tensors_in(again), strict=True)
        if not tensors_in(first):
            return "the reference gives no tensor"
        if not all(_same(a, b) for (_, a), (_, b) in pairs):
            return "the reference is random: called again, it gives another result"
        return ""

    def _first(self, plan: Plan, is_slow: bool) -> None:
        """Run a small case and the example, unless that takes too long; then settle the plan."""
        small = self._timed(plan.sizes.base)
        if small.status == "dear":
            shapes = ", ".join(str(list(shape)) for shape in small.case.shapes)
            text = f"the reference is slow, even on inputs of shape {shapes} {small.text}: give"
            self.answer.why = f"{text} --inputs of other sizes"
            return
        if small.status in ("wrong", "raises"):
            self.take(small)
            if small.status == "wrong":
                return
        if small.status == "refused":
            plan.sizes.fit(plan.given, self._takes)
            small = self._timed(plan.sizes.base)
        given = plan.given
        ratio = size_elems(given) / max(size_elems(plan.sizes.base), 1)
        expected = self._cost_s * max(ratio, 1.0)
        if is_slow:
            self.take(small)
            self._settle(plan)
            return
        if size_elems(given) > _BIG_ELEMENTS and expected > self.request.seconds * _LARGE_SHARE:
            self.answer.covered.notes.append(
                f"the example inputs ({size_elems(given):,} elements) are too large for the "
                "budget: smaller ones were run"
            )
            self.take(small)
            self._settle(plan)
            return
        example = self.runner.run(given)
        if example.status == "refused":
            text = f"it refuses the example inputs: {example.text}"
            self.answer.findings.append(Finding("refuses-example", text, True, given))
            return
        if example.status == "no-inputs":
            self.answer.why = f"the reference does not run in fp64: {example.text}"
            return
        self.take(example)
        if small.status == "right":
            self.take(small)
        self._settle(plan)

    def _takes(self, case: Case) -> bool:
        """Run a case, add its outcome, and return whether the kernel took it."""
        out = self.runner.run(case)
        self.take(out)
        return out.status in ("right", "wrong")

    def _timed(self, case: Case, most_s: float = math.inf) -> Outcome:
        begun = time.process_time()
        out = self.runner.run(case, most_s)
        self._cost_s = time.process_time() - begun
        if size_elems(case) >= _LARGE_ELEMENTS:  # of small ones the compiler takes most
            self._costs.append((size_elems(case), self._cost_s))
        return out

    def _cases(self, plan: Plan) -> None:
        """Run the planned cases, and random ones, until one is wrong or time is over.

        Those that may take much of the time come after the others.
        """
        from tkdebug.verification import tricks

        number, count = self.request.shard
        most = self.request.cases
        own = slice(number - 1, most, count)
        planned = list(itertools.islice(plan.planned(), most))
        dear: list[Case] = []
        for case in planned[own]:
            if self._predicted_s(case) > self.request.seconds * _DEAR_SHARE:
                dear.append(case)
            elif self.is_over(case):
                return
        for case in sorted(dear, key=size_elems):
            left_s = (_SEARCH_SHARE - self.share()) * self.request.seconds
            if self._predicted_s(case) > left_s / 2:
                self.answer.covered.left += 1
            elif self.is_over(case):
                return
        if number == 1 and len(planned) < most:
            tricks.reach(self, plan)
        if self._is_wrong():
            return

        def ends(case: Case) -> bool:
            """Run a case unless it is dear or the search is over; return whether it is over."""
            if self._is_wrong() or self.share() > _SEARCH_SHARE:
                return True
            is_dear = self._predicted_s(case) > self.request.seconds * _DEAR_SHARE
            return not is_dear and self.is_over(case)

        own_random = len(range(len(planned), most)[number - 1 :: count])
        if own_random:
            first_of(plan.drawn(), ends, own_random, f"{self.request.seed} {number}/{count}")

    def is_over(self, case: Case, share: float = _REFERENCE_SHARE) -> bool:
        """Run a case, and return whether the kernel is wrong; False without a run if time is over.

        Args:
            case: the case to run.
            share: the share of the time that the reference may take.
        """
        if self.share() > _SEARCH_SHARE:
            self.answer.covered.left += 1
            return False
        self.take(self._timed(case, self.request.seconds * share))
        return self._is_wrong()

    def _note_unreached(self) -> None:
        """Add a remark for each branch that ran in no call with a right result, though it could."""
        if not self.answer.covered.cases:
            return
        for branch in self.runner.watcher.unreached:
            what = f"line {min(branch.lines)} ran in no call that was compared: its condition is "
            if branch.outcome is not None:
                what = f"in no launch whose result was compared is it {branch.outcome} that "
            text = f"{what}`{branch.condition[:80]}`, and no input that was tried leads there"
            file = self.runner.problem.file
            self.doubt(Finding("not-run", text, False, None, file, min(branch.tested)))

    def _doubtful(self, plan: Plan) -> None:
        """Run cases that a kernel may not mean to take: if one is wrong, nothing is decided."""
        for case in plan.doubtful():
            if self.is_late() or self._predicted_s(case) > self.request.seconds * _DEAR_SHARE:
                return
            out = self._timed(case, self.request.seconds * _REFERENCE_SHARE)
            if out.status != "wrong" or out.finding is None:
                self.take(out)
                continue
            if self._is_of_first_type(out):
                continue
            is_wide = "float64" in case.dtypes and "float64" not in plan.given.dtypes
            if is_wide and out.finding.kind not in ("wrong-value", "wrong-shape"):
                continue  # the kernel raised an error
            if is_wide and self._is_right_in_fp32(out):
                text = f"float64 inputs are computed as float32: {out.finding.message}"
                file = self.runner.problem.file
                self.keep(Finding("precision-lowered", text, False, case, file))
                continue
            text = f"with {case.name}: {out.finding.message}"
            self.doubt(Finding("other-inputs", text, False, case, self.runner.problem.file))
            return

    @staticmethod
    def _is_of_first_type(out: Outcome) -> bool:
        """Whether a result for inputs of several types has another type than the reference's."""
        if len({name for name in out.case.dtypes if "float" in name}) < 2 or out.oracle is None:
            return False
        pairs = zip(out.result or (), out.oracle.expected, strict=True)
        return any(
            one.native is not None and got.dtype != one.native.dtype for (_, got), one in pairs
        )

    def _is_right_in_fp32(self, out: Outcome) -> bool:
        """Whether roundings of fp32 explain a wrong result."""
        if out.result is None:
            return False
        tensors = dense_values(self.runner.problem.example, out.case)
        unit = torch.finfo(torch.float32).eps / 2
        oracle = self.runner.oracle(out.case, tensors, lowered=unit)
        return compare(out.result, oracle)[0] is None

    def _predicted_s(self, case: Case) -> float:
        """Return the predicted time of a case, by the largest timed ones that are no larger."""
        elements = size_elems(case)
        known = [(size, cost_s) for size, cost_s in self._costs if size <= elements]
        if not known:
            return 0.0
        largest = max(size for size, _ in known)
        # Cases whose kernels were compiled first took longer.
        cost_s = min(cost_s for size, cost_s in known if 2 * size >= largest)
        return float(cost_s * (elements / largest) ** _GROWTH)

    def take(self, out: Outcome) -> None:
        """Add an outcome to the answer."""
        answer, case = self.answer, out.case
        covered = answer.covered
        if out.status in ("no-inputs", "dear"):
            covered.no_inputs += out.status == "no-inputs"
            covered.left += out.status == "dear"
            return
        covered.launches += out.seen.launches
        covered.kernels += [name for name in out.seen.kernels if name not in covered.kernels]
        if out.doubt is not None:
            self.doubt(out.doubt)
        if out.status in ("refused", "doubtful"):
            covered.refused += out.status == "refused"
            return
        if out.finding is not None:
            known = [(finding.kind, finding.line) for finding in answer.findings]
            if (out.finding.kind, out.finding.line) not in known:
                answer.findings.append(out.finding)
            if out.status == "raises" and not answer.why:
                answer.why = f"{out.finding.message} ({case.name})"
        if out.status in ("right", "wrong"):
            covered.cases += 1
            if out.status == "right":
                self.runner.watcher.reached(out.seen.ran)
            covered.elements += out.elements
            if out.elements and not out.seen.launches:
                self.bare.append(case)
            for counts, key in (
                (covered.ways, case.way),
                (covered.values, case.values),
                *((covered.layouts, one) for one in set(case.layouts)),
                *((covered.dtypes, one) for one in set(case.dtypes)),
            ):
                counts[key] = counts.get(key, 0) + 1
        if out.oracle is not None and not answer.tolerance:
            answer.tolerance = out.oracle.tolerance_text()
        self.note_late(out.seen, case)
        if out.finding is not None or covered.cases % 8 == 0:
            self._report(answer)

    def note_late(self, seen: Seen, case: Case) -> None:
        """Add findings on a call's threads, processes, streams and seeds, whatever its result."""
        problem = self.runner.problem
        for kind, places, text in (
            ("other-thread", seen.threads, "the call starts a thread, at"),
            ("other-thread", seen.other_threads, "launched from another thread than the call's:"),
            ("other-process", seen.processes, "the call starts a process, at"),
            ("other-stream", seen.unjoined, "the caller's stream does not wait for"),
            (
                *("other-stream", ["the call"] if seen.leaves_stream else []),
                "the current stream is another than the caller's after",
            ),
            (
                *("patched", ["a test draws its inputs"] if seen.is_seeded else []),
                "a call seeds torch's random numbers, of which",
            ),
        ):
            if places and kind not in [finding.kind for finding in self.answer.findings]:
                names = ", ".join(dict.fromkeys(places))
                self.answer.findings.append(
                    Finding(kind, f"{text} {names}", True, case, problem.file)
                )
        if seen.callers:
            text = f"the call looks at its callers, at {', '.join(dict.fromkeys(seen.callers))}"
            self.doubt(Finding("looks-at-callers", text, False, case, problem.file))

    def _explain(self, plan: Plan) -> None:
        """Make the first failing case smaller, and look for its cause."""
        from tkdebug.verification import explain

        place = next(i for i, f in enumerate(self.answer.findings) if f.is_wrong)
        finding = self.answer.findings[place]
        if finding.case is None or finding.kind not in explain.SHRINKABLE:
            return
        smallest = explain.smallest(self, finding, plan, self.share() + _SHRINK_SHARE)
        self.answer.findings[place] = smallest
        self._report(self.answer)
        self.answer.findings[place] = explain.caused(self, smallest)
        explain.name_trick(self, smallest, plan)

    def doubt(self, finding: Finding) -> None:
        """Add a remark that leaves the verdict undecided."""
        self.keep(finding)
        self.answer.why = self.answer.why or finding.message

    def keep(self, finding: Finding) -> None:
        """Add a finding; a remark only if there is no finding of its kind."""
        if finding.is_wrong or finding.kind not in [one.kind for one in self.answer.findings]:
            self.answer.findings.append(finding)
        self._report(self.answer)


def _is_index(tensor: Tensor) -> bool:
    is_integer = not tensor.is_floating_point() and tensor.dtype is not torch.bool
    return is_integer and bool(tensor.numel())


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    equal = a == b
    if a.is_floating_point():
        equal |= a.isnan() & b.isnan()
    return bool(equal.all())
