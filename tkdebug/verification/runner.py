"""One call of a candidate: its inputs are made, it runs, and what it does is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tkdebug.causes.launches import RememberedLaunches
from tkdebug.errors import CompileError, LaunchError, TkError, UnsupportedError
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault
from tkdebug.runtime.errors import GridError
from tkdebug.verification.inputs import (
    INDEX_VALUES,
    LARGEST_VALUES,
    LEAST_VALUES,
    OUTSIDE,
    SPECIAL_VALUES,
    dense_values,
    has_lost_places,
    has_other_signs,
    placed,
    size_elems,
    whole_memory,
)
from tkdebug.verification.launches import PADDING, Seen, Watcher, tuners_in
from tkdebug.verification.oracle import (
    ANY_OF_TIES,
    FIRST_OF_TIES,
    MANY_RUNS,
    RUNS,
    Oracle,
    Wrong,
    ask,
    compare,
    tensors_in,
)
from tkdebug.verification.problem import (
    Problem,
    place_of,
    references,
    refuses,
)
from tkdebug.verification.records import Case, Finding, Request
from tkdebug.verification.rounding import (
    INDEXING,
    MULTIPLYING,
    DearError,
    NotRunnableError,
    limited,
)
from tkdebug.verification.source import branches_of, conditions_of

# "doubtful": wrong for inputs that a kernel may not mean to take.
Status = Literal["right", "wrong", "refused", "no-inputs", "dear", "raises", "doubtful"]
_ACCEPT_SHARE = 0.01
_ORACLE_SHARE = 0.1
_ORACLE_RUNS = 20
_MOST_SPECIALS = 4
# For so many elements few runs show how large errors are.
_LARGE_ELEMENTS = 1 << 16
_TF32_UNIT = 2.0**-11
# An error of so many tolerances is no chance of a few runs.
_CLEARLY = 1000.0


@dataclass
class Outcome:
    """Result of one call, judged.

    Attributes:
        finding: what is wrong, or why it raised.
        text: why the inputs were refused.
        oracle: the expected results; None if the reference does not run.
        result: the tensors of the result, on the CPU.
        given: the tensors that the candidate got.
        wrong: how the result differs.
        elements: the number of elements that were compared.
        doubt: a remark that leaves it open whether the kernel is right.
    """

    case: Case
    status: Status
    seen: Seen
    finding: Finding | None = None
    text: str = ""
    oracle: Oracle | None = None
    result: list[tuple[str, Tensor]] | None = None
    raw: Any = None
    given: Sequence[Tensor] = ()
    wrong: Wrong | None = None
    elements: int = 0
    doubt: Finding | None = None


class Runner:
    """Calls a candidate on cases.

    Args:
        problem: the kernel and its reference.
        request: how the kernel is verified.
        remembered: launches, for the search for causes.
        at: called with each case before it runs.
    """

    def __init__(
        self,
        problem: Problem,
        request: Request,
        remembered: RememberedLaunches | None,
        at: Callable[[Case], None] = lambda case: None,
    ) -> None:
        self.problem = problem
        self.request = request
        self.is_native = request.mode == "native"
        source = branches_of(problem.source), conditions_of(problem.source)
        self.watcher = Watcher(problem.file, remembered, self.is_native, *source)
        module_names = getattr(problem.candidate, "__globals__", None)
        if module_names is None:
            import sys

            module_names = vars(sys.modules[problem.candidate.__module__])
        self.tuners = tuners_in(module_names)
        self._at = at
        # Whether products of fp32 are interpreted in fp32, as they are right so and not in tf32.
        self._is_exact = False

    def accepts(self, case: Case) -> bool:
        """Whether the reference takes a case's inputs in their own types, or runs out of time."""
        try:
            tensors = dense_values(self.problem.example, case)
            given = placed(tensors, case, "cpu")
            arguments = self.problem.example.filled(given, case.numbers)
            with limited(self.request.seconds * _ACCEPT_SHARE):
                self.problem.call_reference(arguments, case, False, None)
        except DearError:
            return True
        except (NotRunnableError, RuntimeError, ValueError, IndexError):
            return False
        return True

    def oracle(
        self,
        case: Case,
        tensors: Sequence[Tensor],
        lowered: float | None = None,
        runs: int = RUNS,
        most_s: float = math.inf,
    ) -> Oracle:
        """Return the expected results of a case.

        Raises:
            NotRunnableError: the reference does not run.
        """
        run = references(self.problem, case, tensors, lambda: placed(tensors, case, "cpu"))
        special: list[Callable[..., Any]] = []
        if case.values in SPECIAL_VALUES:
            special = [self._replacing(case, tensors, some) for some in _specials(tensors)]
        return ask(
            run,
            tensors,
            case.seed + 7,
            special=special,
            lowered=lowered,
            runs=runs,
            most_s=most_s,
        )

    def _replacing(
        self, case: Case, tensors: Sequence[Tensor], some: Sequence[Tensor]
    ) -> Callable[..., Any]:
        """Return a function that runs the reference with random numbers at the masks `some`."""

        def run(is_wide: bool, lift: Any, draw: int) -> Any:
            rng = torch.Generator().manual_seed(draw)
            replaced = []
            for tensor, mask in zip(tensors, some, strict=True):
                if bool(mask.any()):
                    drawn = torch.randn(tuple(tensor.shape), generator=rng).to(tensor.dtype)
                    tensor = torch.where(mask, drawn, tensor)
                replaced.append(tensor)
            laid = references(self.problem, case, replaced, lambda: placed(replaced, case, "cpu"))
            return laid(is_wide=is_wide, lift=lift)

        return run

    def run(self, case: Case, most_s: float = math.inf) -> Outcome:
        """Call the candidate on a case and judge it; "dear" if the reference alone takes longer."""
        self._at(case)
        tensors = dense_values(self.problem.example, case)
        try:
            with limited(min(self.request.seconds * _ORACLE_SHARE, _ORACLE_RUNS * most_s)):
                oracle = self.oracle(case, tensors, most_s=most_s)
        except DearError as error:
            return Outcome(case, "dear", Seen(), text=str(error))
        except NotRunnableError as error:
            return Outcome(case, "no-inputs", Seen(), text=str(error))
        if has_other_signs(self.problem.example, case) and oracle.makes_nans:
            return Outcome(case, "no-inputs", Seen(), text="NaNs of negative numbers")
        if case.values in OUTSIDE and oracle.reads_numbers:
            return Outcome(case, "no-inputs", Seen(), text="lengths or offsets")
        out = self._called(case, tensors, oracle)
        is_of_value = out.wrong is not None and out.wrong.kind == "wrong-value"
        if is_of_value and out.seen.has_tf32 and not self._is_exact:
            exact = self._in_fp32(out, tensors, oracle)
            if exact.status == "right":
                return exact if self.problem.takes_tf32 else self._doubt_tf32(exact, out)
        if out.status == "wrong" and oracle.leaves_one:
            return Outcome(case, "no-inputs", Seen(), text="parts of two sizes that broadcast")
        reason = self._doubts(out, tensors) if out.status == "wrong" else ""
        if reason and out.finding is not None:
            text = f"with {case.name} ({reason}): {out.finding.message}"
            out.doubt = Finding("other-inputs", text, False, case, self.problem.file)
            out.status, out.finding = "doubtful", None
        return out

    def _doubts(self, out: Outcome, tensors: Sequence[Tensor]) -> str:
        """Return why inputs for which a kernel is wrong may be unintended, "" if they are not."""
        case, ops = out.case, () if out.oracle is None else out.oracle.ops.keys()
        if case.values in OUTSIDE and INDEXING.intersection(ops):
            return "integers outside of the example's"
        if case.way == PADDING:
            return "lanes that a load without `other` masks off are undefined, and GPUs give 0"
        if out.finding is not None and out.finding.kind == "assert":
            return "a `device_assert` of its own, which runs in debug builds alone"
        if self._parts_sizes(case):
            return "sizes that are equal in the example differ"
        pairs = zip(self.problem.example.tensors, tensors, strict=True)
        if any(has_lost_places(given, now) for given, now in pairs):
            return "integers that are all different in the example are not"
        if self._exceeds_sizes(case, tensors):
            return "integers are larger than a size that is larger in the example"
        if out.oracle is not None and out.oracle.reads_numbers and self._has_other_places(case):
            return "lengths or offsets of other inputs"
        if self._has_idle_numbers(case, tensors, out.oracle):
            return "a number on which the reference does not depend"
        if out.wrong is None or out.wrong.kind != "wrong-value":
            return ""
        if case.values in SPECIAL_VALUES:
            return "numbers that are not finite"
        if case.values in LARGEST_VALUES and MULTIPLYING.intersection(ops):
            return "products of such numbers may overflow"
        if case.values in LEAST_VALUES and out.oracle is not None and out.oracle.has_epsilon:
            return "a number in the reference such as 1e-8 is larger"
        return self._doubts_type(out, tensors)

    def _parts_sizes(self, case: Case) -> bool:
        """Whether sizes differ that are equal in the example, by intent or by chance."""
        now: dict[int, set[int]] = {}
        for given, shape in zip(self.problem.example.case().shapes, case.shapes, strict=True):
            for size, other in zip(given, shape, strict=len(given) == len(shape)):
                now.setdefault(size, set()).add(other)
        return any(len(sizes) > 1 for sizes in now.values())

    def _exceeds_sizes(self, case: Case, tensors: Sequence[Tensor]) -> bool:
        """Whether integers, such as lengths, no longer fit into a size into which they fitted."""
        given = self.problem.example
        for before, now in zip(given.tensors, tensors, strict=True):
            if before.is_floating_point() or before.dtype is torch.bool or not before.numel():
                continue
            if not now.numel():
                continue
            most, largest = int(before.max()), int(now.max())
            pairs = zip(given.case().shapes, case.shapes, strict=True)
            sizes = [pair for shapes in pairs for pair in zip(*shapes, strict=False)]
            if any(size >= most and other < largest for size, other in sizes):
                return True
        return False

    def _has_other_places(self, case: Case) -> bool:
        """Whether an input is a tensor of integers, and these or sizes are not the example's."""
        tensors = self.problem.example.tensors
        if all(t.is_floating_point() or t.dtype is torch.bool for t in tensors):
            return False
        return case.shapes != self.problem.example.case().shapes or case.values in INDEX_VALUES

    def _has_idle_numbers(
        self, case: Case, tensors: Sequence[Tensor], oracle: Oracle | None
    ) -> bool:
        """Whether numbers are not the example's, but change nothing in the reference's result."""
        numbers = self.problem.example.case().numbers
        if oracle is None or case.numbers == numbers:
            return False
        try:
            other = self.oracle(replace(case, numbers=numbers), tensors, runs=0)
        except NotRunnableError:
            return False
        pairs = list(zip(oracle.expected, other.expected, strict=False))
        return all(torch.equal(a.exact.nan_to_num(), b.exact.nan_to_num()) for a, b in pairs)

    def _doubts_type(self, out: Outcome, tensors: Sequence[Tensor]) -> str:
        """Return a reason if rounding in another type than the example's explains it, else ""."""
        case = out.case
        types = [getattr(torch, name) for name in case.dtypes if "float" in name]
        if case.dtypes == self.problem.example.case().dtypes or not types or out.result is None:
            return ""
        unit = max(torch.finfo(one).eps for one in types) / 2
        try:
            oracle = self.oracle(case, tensors, lowered=unit)
        except NotRunnableError:
            return ""
        is_arithmetic = unit > 1e-5 and compare(out.result, oracle)[0] is None
        return "arithmetic in a type that is not the example's" if is_arithmetic else ""

    def _called(self, case: Case, tensors: Sequence[Tensor], oracle: Oracle) -> Outcome:
        out = self.call(case, placed(tensors, case, self.problem.device), oracle)
        self.look_closer(out, tensors)
        return out

    def _in_fp32(self, out: Outcome, tensors: Sequence[Tensor], oracle: Oracle) -> Outcome:
        """Return the outcome with products in fp32; on a GPU, judged with tf32's errors instead."""
        if self.is_native:
            lowered = self.oracle(out.case, tensors, lowered=_TF32_UNIT)
            wrong = compare(out.result or (), lowered)[0]
            return out if wrong is not None else replace(out, status="right", finding=None)
        self._is_exact = True
        exact = self._called(out.case, tensors, oracle)
        self._is_exact = exact.status == "right"
        return exact

    def _doubt_tf32(self, exact: Outcome, lowered: Outcome) -> Outcome:
        """Return the outcome that is right in fp32, with a remark on its error in tf32."""
        text = "" if lowered.wrong is None else lowered.wrong.text
        text = f'tl.dot rounds fp32 to tf32 unless it has input_precision="ieee": {text}'
        exact.doubt = Finding("tf32", text, False, exact.case, self.problem.file)
        return exact

    def look_closer(self, out: Outcome, tensors: Sequence[Tensor]) -> None:
        """Compare a wrong value again with more runs: a few may have small errors by chance."""
        wrong = out.wrong
        if wrong is None or wrong.kind != "wrong-value" or out.result is None:
            return
        if wrong.apart < math.inf and wrong.apart > _CLEARLY * wrong.tolerance:
            return
        try:
            is_large = size_elems(out.case) > _LARGE_ELEMENTS
            out.oracle = self.oracle(out.case, tensors, runs=2 * RUNS if is_large else MANY_RUNS)
        except NotRunnableError:
            return
        out.wrong, out.elements = compare(out.result, out.oracle)
        if out.wrong is None:
            out.status, out.finding = "right", None
        elif out.finding is not None:
            out.finding = replace(out.finding, message=out.wrong.text)

    def call(self, case: Case, given: Sequence[Tensor], oracle: Oracle) -> Outcome:
        """Call the candidate on tensors, and judge the call by the expected results."""
        before = [whole_memory(tensor) for tensor in given]
        arguments = self.problem.example.filled(given, case.numbers)
        result: Any = None
        error: Exception | None = None
        seen = Seen()
        try:
            function = self.problem.function(case)
            is_exact = self._is_exact and not any("16" in dtype for dtype in case.dtypes)
            with (
                KNOBS.scope(strict_ieee=is_exact or KNOBS.strict_ieee),
                self.watcher.watching(case.way, self.tuners, case.seed, given) as seen,
            ):
                result = self.problem.call(function, arguments)
        except Exception as raised:
            error = raised
        out = Outcome(case, "right", seen, oracle=oracle, raw=result, given=given)
        fault = seen.wrong_fault
        if fault is not None and fault.kind == "compile-error" and not self._is_of_example(case):
            self._not_compiled(out, fault.message)
        elif error is not None:
            self._raised(out, error, fault)
        elif fault is not None:
            out.status, out.finding = "wrong", fault_finding(fault, case)
        else:
            self._judge(out, before)
        if out.status == "right" and seen.doubtful_fault is not None:
            finding = replace(fault_finding(seen.doubtful_fault, case), is_wrong=False)
            out.doubt = out.doubt or finding
        return out

    def _is_of_example(self, case: Case) -> bool:
        """Whether a case has the example's sizes and dtypes, for which a kernel has to compile."""
        given = self.problem.example.case()
        return (case.shapes, case.dtypes) == (given.shapes, given.dtypes)

    def _not_compiled(self, out: Outcome, text: str) -> None:
        """Count a kernel that does not compile for other inputs as one that refuses them.

        With the example's dtypes it is a doubt, too: such sizes may be intended, other types not.
        """
        out.status, out.text = "refused", text
        if out.case.dtypes == self.problem.example.case().dtypes:
            text = f"with {out.case.name} it cannot be launched: {text}"
            out.doubt = Finding("other-inputs", text, False, out.case, self.problem.file)

    def _raised(self, out: Outcome, error: Exception, fault: Fault | None) -> None:
        """Judge a call that raised an exception."""
        text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        text = f"{type(error).__name__}: {text}"
        file, line = self.problem.file, place_of(error, self.problem.file)
        out.text = text
        if fault is not None:
            out.status, out.finding = "wrong", fault_finding(fault, out.case)
        elif refuses(error):
            out.status = "refused"
        elif isinstance(error, UnsupportedError | GridError):
            out.status = "raises"
            out.finding = Finding("raises", text, False, out.case, file, line)
        elif isinstance(error, CompileError | LaunchError) and not self._is_of_example(out.case):
            self._not_compiled(out, text)
        elif isinstance(error, CompileError | LaunchError):
            out.status, out.finding = (
                "wrong",
                Finding(
                    "raises", f"{text}, for inputs that it let pass", True, out.case, file, line
                ),
            )
        elif isinstance(error, TkError) or set(out.case.layouts) == {"contiguous"}:
            out.status = "raises"
            message = f"it raises {text}, which is no check of its own"
            out.finding = Finding("raises", message, False, out.case, file, line)
        else:
            out.status = "refused"  # with an error, at inputs in another layout

    def _judge(self, out: Outcome, before: Sequence[Tensor]) -> None:
        """Compare the result, and see whether inputs are as they were."""
        oracle = out.oracle
        assert oracle is not None
        found = tensors_in(out.raw)
        found += [(f"input {place}", out.given[place]) for place in oracle.changed]
        lazy = [name for name, t in found if _is_lazy(t)]
        if lazy:
            text = f"{lazy[0]} is no plain tensor, and may be computed when it is looked at"
            out.status = "wrong"
            out.finding = Finding("lazy-result", text, True, out.case, self.problem.file)
            return
        out.result = [(name, host_view(t.detach()).cpu().clone()) for name, t in found]
        for place, (tensor, kept) in enumerate(zip(out.given, before, strict=True)):
            if place not in oracle.changed and _is_changed(kept, tensor):
                text = f"input {place} is changed, which the reference leaves as it is"
                out.status = "wrong"
                out.finding = Finding("input-changed", text, True, out.case, self.problem.file)
                return
        out.wrong, out.elements = compare(out.result, oracle)
        if out.wrong is not None and out.wrong.is_of_nans and not oracle.has_special:
            text = f"{out.wrong.text}: of finite inputs the reference makes NaNs, the kernel none"
            out.doubt = Finding("nan-of-reference", text, False, out.case, self.problem.file)
            out.wrong = None
        if out.wrong is not None:
            out.status = "wrong"
            out.finding = Finding(out.wrong.kind, out.wrong.text, True, out.case, self.problem.file)
        elif out.case.dtypes == self.problem.example.case().dtypes:
            doubts = (self._other_dtype, self._aliased, self._of_ties)
            out.doubt = out.doubt or next(filter(None, (doubt(out) for doubt in doubts)), None)

    def _other_dtype(self, out: Outcome) -> Finding | None:
        """Return a remark on a tensor of another dtype than the reference's, if there is any."""
        assert out.oracle is not None
        for (name, got), one in zip(out.result or (), out.oracle.expected, strict=True):
            wanted = got.dtype if one.native is None else one.native.dtype
            if got.dtype != wanted and got.dim():
                text = f"{name} is of {got.dtype}, where the reference gives {wanted}"
                return Finding("dtype", text, False, out.case, self.problem.file)
        return None

    def _aliased(self, out: Outcome) -> Finding | None:
        """Return a remark on a result that is an input's memory, if the reference's is not."""
        assert out.oracle is not None
        given = {host_view(t).untyped_storage().data_ptr() for t in out.given if t.numel()}
        for name, t in tensors_in(out.raw):
            if host_view(t).untyped_storage().data_ptr() in given and not out.oracle.aliases:
                text = f"{name} is memory of an input, where the reference gives memory of its own"
                return Finding("aliased-result", text, False, out.case, self.problem.file)
        return None

    def _of_ties(self, out: Outcome) -> Finding | None:
        """Return a remark on an index that is not the first of equal values, or None."""
        assert out.oracle is not None
        ops = out.oracle.ops.keys()
        if out.case.values != "equal" or not ops & FIRST_OF_TIES or ops & ANY_OF_TIES:
            return None
        for (name, got), one in zip(out.result or (), out.oracle.expected, strict=True):
            first = one.exact if one.bounds is not None and one.native is not None else None
            if first is None or not torch.equal(first, one.native):  # type: ignore[arg-type]
                continue
            other = (got.long() != first.long()) & one.has_ties
            if bool(other.any()):
                at = int(other.reshape(-1).nonzero()[0])
                text = f"of equal values {name} has index {int(got.reshape(-1)[at])}"
                text += f", the reference the first, {int(first.reshape(-1)[at])}"
                return Finding("other-of-ties", text, False, out.case, self.problem.file)
        return None


def _is_changed(before: Tensor, tensor: Tensor) -> bool:
    """Whether a tensor's allocation has other numbers than its bytes before; 0 equals -0."""
    now = whole_memory(tensor)
    if torch.equal(now, before) or not tensor.is_floating_point():
        return not torch.equal(now, before)
    whole = now.numel() - now.numel() % tensor.element_size()
    one, other = (each[:whole].view(tensor.dtype) for each in (before, now))
    return not bool(((one == other) | (one.isnan() & other.isnan())).all())


def _is_lazy(tensor: Tensor) -> bool:
    """Whether a tensor is of a class of its own, or has methods of its own."""
    own = getattr(tensor, "__dict__", {})
    is_plain = type(tensor) in (Tensor, torch.nn.Parameter)
    return not is_plain or any(callable(value) for value in own.values())


def fault_finding(fault: Fault, case: Case) -> Finding:
    """Return a fault as a finding."""
    # It belongs to reports: only kernels with a fault need it.
    from tkdebug.instrument.renderers.json_format import fault_object

    place = (fault.file, fault.line, fault.kernel)
    return Finding(fault.kind, fault.message, True, case, *place, fault_object(fault))


def _specials(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return sets of masks, one per tensor: all NaNs and infinities, a tensor's, single ones."""
    found = [
        ~t.isfinite() if t.is_floating_point() else torch.zeros_like(t, dtype=torch.bool)
        for t in tensors
    ]
    nothing = [torch.zeros_like(mask) for mask in found]
    sets = [found]
    for number, mask in enumerate(found):
        places = mask.reshape(-1).nonzero().reshape(-1).tolist()[:_MOST_SPECIALS]
        for some in [places, *([place] for place in places)] if len(places) > 1 else [places]:
            if some:
                chosen = torch.zeros_like(mask)
                chosen.reshape(-1)[torch.tensor(some)] = True
                sets.append([*nothing[:number], chosen, *nothing[number + 1 :]])
    return sets
