"""Tricks: results that are right and are not the kernel's work.

Each is found by what a candidate does when something is changed that must, or must not, matter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.benchmark
from torch import Tensor

from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.runtime.errors import GridError
from tkdebug.verification.inputs import dense_values, placed, structured
from tkdebug.verification.launches import Seen
from tkdebug.verification.plan import other_numbers
from tkdebug.verification.records import Case, Finding
from tkdebug.verification.rounding import (
    SUMMING,
    DearError,
    Mode,
    NotRunnableError,
    Work,
    limited,
    note_op,
)

if TYPE_CHECKING:
    from tkdebug.verification.plan import Group, Plan
    from tkdebug.verification.runner import Outcome
    from tkdebug.verification.search import Search

# Ops of torch that allocate, view, convert, fill or add up partial sums.
_PLUMBING = frozenset(
    "view _unsafe_view reshape empty empty_like empty_strided new_empty new_empty_strided zeros "
    "zeros_like new_zeros ones ones_like new_ones full full_like new_full clone copy_ _to_copy "
    "contiguous expand permute transpose t slice select unsqueeze squeeze as_strided fill_ zero_ "
    "cat stack sum add add_ constant_pad_nd arange detach alias unbind split split_with_sizes "
    "_local_scalar_dense lift_fresh scalar_tensor equal is_same_size unfold diagonal flatten "
    "set_ resize_ record_stream _reshape_alias movedim view_as_real item is_nonzero".split()
)
# Ops by which arguments are checked.
_CHECKS = frozenset(
    "abs eq ne lt le gt ge all any isnan isinf isfinite logical_and logical_or logical_not max min "
    "amax amin".split()
)
# Ops of `_PLUMBING` that compute, if their operands are the call's own tensors, not partial sums.
_SMALL_WORK = frozenset(("add", "sum"))
_PART = 4
# Torch does the work if it does this part of the reference's, by a rough count of operations.
_WORK_SHARE = 0.5
_MOST_EXAMPLE = 1 << 24
_MOST_COMPARED = 1 << 14
# Elements of inputs of which only the grid is examined, and powers of 2 of elements from which on a
# grid may be no larger; the share of the time that the reference may take on such inputs.
_SWEPT_ELEMENTS = 1 << 22
_GRIDS = range(17, 21)
_REACHED_SHARE = 0.05
_SKIMMED_SHARE = 0.04
_MOST_SWEPT = 3
_MOST_CHANCES = 9
_OF_TORCH = ("aten", "prims")
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def look(search: Search, plan: Plan) -> None:
    """Look for tricks on one case, and at the example."""
    case = plan.middle.renamed("tricks", values="normal")
    _work_at_example(search, plan)
    ways = (_calls_in_turn, _without_kernels, _work_of_torch, _state, _bits)
    for looking in ways:
        if looking is _without_kernels and search.runner.is_native:
            continue  # launches on a GPU are not left out
        looking(search, case)
        if any(finding.is_wrong for finding in search.answer.findings):
            return


# Results that are kept from call to call.


def _calls_in_turn(search: Search, case: Case) -> None:
    """Call with other values in the same memory, and with the same values in other memory."""
    runner = search.runner
    first = runner.run(case)
    search.take(first)
    if first.status != "right" or first.result is None or first.oracle is None:
        return
    kept = [t.clone() for _, t in first.result]
    views = [t for _, t in _tensors(first)]
    if not first.oracle.changed:
        same = runner.call(case, first.given, first.oracle)
        if first.seen.computes and not same.seen.computes and same.status == "right":
            text = (
                "called again with the same inputs no kernel computes anything: the result is kept"
            )
            search.keep(Finding("cached-result", text, True, case, runner.problem.file))
            return
    last = first
    earlier: list[list[Tensor]] = []
    for name, change in _CHANGES.items():
        again = _called_in_place(search, last, name, change)
        if again is None:
            break
        if again.status == "wrong":
            _note_kept(search, again, [kept, *earlier])
            return
        if not _unchanged(views, kept, first):
            text = "the result of a call changes when the kernel is called again"
            search.keep(Finding("shared-result", text, True, case, runner.problem.file))
            return
        earlier.append([t for _, t in again.result or ()])
        last = again
    search.take(runner.run(case.renamed("the same values in other memory")))


def _tensors(out: Outcome) -> list[tuple[str, Tensor]]:
    from tkdebug.verification.oracle import tensors_in

    return tensors_in(out.raw)


def _unchanged(views: Sequence[Tensor], kept: Sequence[Tensor], first: Outcome) -> bool:
    """Whether the tensors that a call returned, but for views of its inputs, are as they were."""
    inputs = {host_view(t).untyped_storage().data_ptr() for t in first.given}
    for view, before in zip(views, kept, strict=False):
        now = host_view(view.detach())
        if now.untyped_storage().data_ptr() in inputs:
            continue
        same = now.cpu() == before
        if before.is_floating_point():
            same |= now.cpu().isnan() & before.isnan()
        if not bool(same.all()):
            return False
    return True


def _other_values(tensor: Tensor) -> Tensor:
    rng = torch.Generator().manual_seed(91)
    drawn = torch.randn(tuple(tensor.shape), generator=rng).to(tensor.dtype)
    return drawn.abs() if bool((tensor >= 0).all()) else drawn


def _one_element(share: float) -> Callable[[Tensor], Tensor]:
    """Return a function that changes one element of a tensor, at a share of its length."""

    def changed(tensor: Tensor) -> Tensor:
        made = tensor.clone()
        flat = made.reshape(-1)
        if flat.numel():
            place = int(share * flat.numel()) + (flat.numel() > 2)
            flat[min(place, flat.numel() - 1)] += 1.5
        return made

    return changed


def _integers(tensor: Tensor) -> Tensor:
    return (_other_values(tensor) * 3).round()


def _turned(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).flip(0).reshape(tensor.shape)


# Sums of integers are the same in any order.
_CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "other values": _other_values,
    "one other element": _one_element(0.5),
    "another element": _one_element(0.28),
    "integers": _integers,
    "the values in another order": _turned,
}


def _called_in_place(
    search: Search, before: Outcome, name: str, change: Callable[[Tensor], Tensor]
) -> Outcome | None:
    """Call again with other values in the inputs' memory; None if the reference refuses them."""
    runner, case = search.runner, before.case
    tensors = [host_view(t.detach()).cpu().clone() for t in before.given]
    rng = torch.Generator().manual_seed(92)
    changed = [
        structured(change(t), example, rng).to(t.dtype) if t.is_floating_point() else t
        for t, example in zip(tensors, runner.problem.example.tensors, strict=True)
    ]
    try:
        oracle = runner.oracle(case, changed)
    except NotRunnableError:
        return None
    for tensor, values in zip(before.given, changed, strict=True):
        tensor.copy_(values.to(tensor.device))
    named = case.renamed(f"tricks: {name} in the same memory")
    out = runner.call(named, before.given, oracle)
    runner.look_closer(out, changed)
    if out.status == "right":
        search.take(out)
    return out


def _note_kept(search: Search, again: Outcome, earlier: Sequence[Sequence[Tensor]]) -> None:
    """Report a wrong result as kept from an earlier call, unless new memory gives it, too."""
    results = [t for _, t in again.result or ()]
    is_old = bool(results) and any(
        all(
            a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
            for a, b in zip(results, kept, strict=False)
        )
        for kept in earlier
    )
    runner = search.runner
    if not is_old and again.oracle is not None:
        tensors = [host_view(t.detach()).cpu() for t in again.given]
        given = placed(tensors, again.case, runner.problem.device)
        fresh = runner.call(again.case, given, again.oracle)
        if fresh.status != "right":
            search.take(replace(again, finding=_without_case(again)))
            return
    text = (
        f"{again.case.name.partition(': ')[2]}: "
        f"{'the result is that of an earlier call' if is_old else 'the result is wrong'}, "
        "so that something is kept from call to call"
    )
    file = runner.problem.file
    search.keep(Finding("cached-result", text, True, again.case, file))


# Results that torch computes.


def look_again(search: Search, plan: Plan) -> None:
    """Look at the work of torch again: kernels may be launched in the first calls alone."""
    _work_of_torch(search, plan.middle)
    _calls_in_turn(search, plan.middle.renamed("tricks", values="normal"))
    _look_at_modules(search, plan)
    if search.bare and 2 * len(search.bare) > search.answer.covered.cases:
        _work_of_torch(search, search.bare[-1])


def reach(search: Search, plan: Plan) -> None:
    """Run inputs for which the host code takes branches that did not run, or ends a grid early.

    Launches are skipped until such inputs are found, so that large ones take little time.
    """
    if search.runner.is_native:
        return
    for branch in list(search.runner.watcher.unreached):
        for case in plan.beside(branch.numbers):
            seen, _ = _skimmed(search, case)
            if branch.has_run(seen.ran):
                if search.is_over(case, _REACHED_SHARE):
                    return
                break
    for unit in plan.sizes.apart[:_MOST_SWEPT]:
        if _ends_early(search, plan, unit):
            return


def _ends_early(search: Search, plan: Plan, unit: Group) -> bool:
    """Run a case above the size where the grid stops growing; return if the kernel is wrong."""
    large = plan.filled(unit, _SWEPT_ELEMENTS)
    if large is None:
        return False
    seen, error = _skimmed(search, large)
    if isinstance(error, GridError):
        text = f"with {large.name}: {error.args[0]}; an assert says that it is not meant"
        search.doubt(Finding("grid-limit", text, False, large, search.runner.problem.file))
    if error is not None or seen.programs <= _skimmed(search, plan.sizes.base)[0].programs:
        return False
    for power in _GRIDS:
        case = plan.filled(unit, 1 << power)
        if case is not None and _skimmed(search, case)[0].programs == seen.programs:
            larger = plan.filled(unit, 2 << power)
            return larger is not None and search.is_over(larger, _REACHED_SHARE)
    return False


def _skimmed(search: Search, case: Case) -> tuple[Seen, Exception | None]:
    """Call the candidate without its launches; return what is seen, and its error or timeout."""
    tensors = dense_values(search.runner.problem.example, case)
    try:
        with limited(search.request.seconds * _SKIMMED_SHARE):
            seen, _, error = _noted(search, case, tensors, "skipped")
    except DearError as over:
        return Seen(), over
    return seen, error


def _without_case(out: Outcome) -> Finding | None:
    """Return an outcome's finding without a case, as no case makes its inputs; None for none."""
    return None if out.finding is None else replace(out.finding, case=None)


def _without_kernels(search: Search, case: Case) -> None:
    """Put random numbers in place of what kernels write: the result must not be right then."""
    runner = search.runner
    out = runner.run(case.renamed("kernels left out", way="skipped"))
    if not out.seen.launches or out.status != "right" or not out.elements:
        return
    values = "given" if case.values == "given" else "normal"
    for more in range(1, _MOST_CHANCES):  # a bool is right by chance
        again = runner.run(
            case.renamed("kernels left out", way="skipped", seed=case.seed + more, values=values)
        )
        if again.status != "right" or not again.elements:
            return
    text = "with random numbers in place of what its kernels write the result is right"
    search.keep(Finding("kernel-unused", text, True, again.case, runner.problem.file))


class _OpsOfTorch(Mode):  # type: ignore[no-untyped-call]
    """Notes the ops of torch that a candidate calls; the interpreter's own are not seen.

    Args:
        given: the call's own tensors.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: dict[str, Work] = {}
        # The ones among these on the call's own tensors.
        self.direct: dict[str, Work] = {}
        self._given = {host_view(t).untyped_storage().data_ptr() for t in given}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Note an op."""
        name = func.overloadpacket.__name__
        if func.namespace not in _OF_TORCH:
            return func(*args, **(kwargs or {}))  # an op that is made of kernels
        note_op(self.ops, name, args)
        tensors = [one for one in args if isinstance(one, Tensor)]
        if tensors and host_view(tensors[0]).untyped_storage().data_ptr() in self._given:
            note_op(self.direct, name, args)
        return func(*args, **(kwargs or {}))


def _work_of_torch(search: Search, case: Case) -> None:
    """See whether torch computes what the reference computes, and kernels only copy."""
    runner = search.runner
    tensors = dense_values(runner.problem.example, case)
    try:
        oracle = runner.oracle(case, tensors)
    except NotRunnableError:
        return
    seen, own, error = _noted(search, case, tensors, "checked")
    if error is None:
        _judge_torch(search, case, seen, own, oracle.ops)


def _noted(
    search: Search, case: Case, tensors: Sequence[Tensor], way: str
) -> tuple[Seen, _OpsOfTorch, Exception | None]:
    """Call the candidate, and return what is seen of its launches, its ops of torch, its error."""
    runner = search.runner
    given = placed(tensors, case, runner.problem.device)
    arguments = runner.problem.example.filled(given, case.numbers)
    noted, seen = _OpsOfTorch(given), Seen()
    try:
        function = runner.problem.function(case)
        with runner.watcher.watching(way, (), case.seed, given) as seen, noted:
            runner.problem.call(function, arguments)
    except Exception as error:
        return seen, noted, error
    return seen, noted, None


def _work_at_example(search: Search, plan: Plan) -> None:
    """Report it if the call with the example's inputs launches no kernel, though others do.

    Its launches are not run, so that large inputs take little time.
    """
    case = plan.given.renamed("kernels of the example left out", way="skipped")
    if not 0 < sum(math.prod(shape) for shape in case.shapes) <= _MOST_EXAMPLE:
        return
    if not search.answer.covered.launches:
        return  # of no inputs are there any: that is found elsewhere
    tensors = dense_values(search.runner.problem.example, case)
    seen, own, error = _noted(search, case, tensors, "skipped")
    if error is not None:
        return
    search.note_late(seen, case)
    work = ", ".join(sorted(_plain(own.ops)))
    is_small = sum(math.prod(shape) for shape in case.shapes) <= _MOST_COMPARED
    if is_small and not search.runner.is_native:
        _without_kernels(search, plan.given)
    if not seen.launches:
        text = "for the example inputs no kernel is launched, for others there is one"
        text += f"; torch computes ({work})" if work else ""
        kind = "torch-fallback" if work else "no-kernel"
        search.keep(Finding(kind, text, True, case, search.runner.problem.file))


def _large(ops: Mapping[str, Work], case: Case) -> set[str]:
    """Return the ops that have a large part of a case's elements as an operand."""
    least = max((math.prod(shape) for shape in case.shapes), default=0) // _PART
    return {name for name, work in ops.items() if work.elements >= max(least, 2)}


def _plain(names: Iterable[str]) -> set[str]:
    return {name.rstrip("_") for name in names if name not in _PLUMBING} - _CHECKS


def _cost(ops: Mapping[str, Work], names: set[str]) -> float:
    return sum(work.cost for name, work in ops.items() if name.rstrip("_") in names)


def _judge_torch(
    search: Search,
    case: Case,
    seen: Seen,
    noted: _OpsOfTorch,
    reference: Mapping[str, Work],
) -> None:
    own, theirs = _large(noted.ops, case), _large(reference, case)
    work, asked = _plain(own), _plain(theirs)
    file = search.runner.problem.file
    names = ", ".join(sorted(work or own))
    whole = _cost(reference, asked)
    share = _cost(noted.ops, work) / whole if whole else 0.0
    small = {name.rstrip("_") for name in theirs} & _SMALL_WORK
    rest = {name.rstrip("_") for name in theirs} & (_SMALL_WORK | _CHECKS)
    direct = {name.rstrip("_") for name in _large(noted.direct, case)} & _SMALL_WORK
    if seen.launches and not seen.computes and (asked or small):
        how = f"torch computes ({names})" if work else "something else computes"
        text = f"{how}, and the kernels only copy"
        search.keep(Finding("torch-fallback", text, True, case, file))
    elif not seen.launches and work:
        text = f"torch computes ({names}), and no kernel is launched"
        search.keep(Finding("torch-fallback", text, True, case, file))
    elif not asked and small and small <= direct:
        text = f"torch computes all that the reference does ({', '.join(sorted(small))})"
        search.keep(Finding("torch-fallback", text, True, case, file))
    elif asked and asked <= work and not rest - {name.rstrip("_") for name in own}:
        text = f"torch computes all that the reference does ({names})"
        search.keep(Finding("torch-fallback", text, True, case, file))
    elif work & asked or share >= _WORK_SHARE:
        names = ", ".join(sorted(work & asked or work))
        text = f"torch computes a part of the result ({names})"
        summing = asked & SUMMING
        if share >= _WORK_SHARE or (summing and summing <= work):
            # What is left for the kernels may be right, but is the smaller part.
            search.answer.why = search.answer.why or (
                f"torch does most of the reference's work, the products or sums of it ({names})"
            )
        search.keep(Finding("torch-part", text, False, case, file))


# What a module keeps.


def _state(search: Search, case: Case) -> None:
    """See whether a module sees parameters that change, and changes buffers as the reference."""
    runner, problem = search.runner, search.runner.problem
    if not problem.has_modules:
        return
    with problem.other_parameters(case) as is_changed:
        named = case.renamed("other parameters in the same module")
        out = runner.run(named) if is_changed else None
    if out is not None and out.status == "wrong":
        text = "parameters that change between calls are not seen: something of them is kept"
        search.doubt(Finding("stale-parameters", text, False, case, problem.file))
    dense = dense_values(problem.example, case)
    both = [
        problem.example.filled(placed(dense, case, device), case.numbers)
        for device in (problem.device, "cpu")
    ]
    try:
        others = problem.other_buffers(case, *both)
    except Exception:
        return  # whether they run is asked elsewhere
    if others:
        text = f"after a call {', '.join(others)} of the module are other than the reference's"
        search.doubt(Finding("stale-buffers", text, False, case, problem.file))


def _look_at_modules(search: Search, plan: Plan) -> None:
    """See whether modules are right in evaluation, and made with other arguments."""
    runner, problem = search.runner, search.runner.problem
    if not problem.has_modules:
        return
    case = plan.middle
    with problem.evaluating(case) as is_other:
        out = runner.run(case.renamed("modules in evaluation")) if is_other else None
    if out is not None and out.status == "wrong" and out.finding is not None:
        text = f"after `eval()` of its module: {out.finding.message}"
        search.doubt(Finding("eval-mode", text, False, case, problem.file))
    try:
        for init in _with_other_numbers(problem.init):
            if search.is_late() or _is_wrong_of(search, plan, init):
                return
    finally:
        runner.problem = problem


def _with_other_numbers(given: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield lists with one number changed, also in tuples such as sizes of a window."""
    for place, value in enumerate(given):
        others: Iterable[Any] = ()
        if isinstance(value, int | float):
            others = other_numbers(value)
        elif isinstance(value, list | tuple):
            others = map(type(value), _with_other_numbers(value))
        for other in others:
            yield [*given[:place], other, *given[place + 1 :]]


def _is_wrong_of(search: Search, plan: Plan, init: Sequence[Any]) -> bool:
    """Whether a module made with some arguments is wrong; a remark says so."""
    runner = search.runner
    runner.problem = runner.problem.with_init(init)
    shown = ", ".join(map(str, init))
    for case in (plan.middle, plan.sizes.base):
        out = runner.run(case.renamed(f"modules made with ({shown})"))
        if out.status == "wrong" and out.finding is not None:
            text = f"made with ({shown}): {out.finding.message}"
            search.doubt(Finding("other-constructor", text, False, None, runner.problem.file))
            return True
        if out.status == "right":
            return False
    return False


# Bits, on request.


def _bits(search: Search, case: Case) -> None:
    request = search.request
    if request.is_deterministic:
        _deterministic(search, case)
    if request.is_batch_invariant:
        _batch_invariant(search, case)


def _deterministic(search: Search, case: Case) -> None:
    """Call again, also with programs in other orders: each bit must be the same."""
    first = search.runner.run(case)
    others = () if search.runner.is_native else ("one by one", "reversed", "shuffled")
    for way in ("checked", *others):
        again = search.runner.run(case.renamed(f"again, {way}", way=way))
        if not _same_bits(first, again):
            text = f"the same inputs give other bits (programs {way})"
            file = search.runner.problem.file
            search.keep(Finding("not-deterministic", text, True, again.case, file))
            return


def _batch_invariant(search: Search, case: Case) -> None:
    """Call with half of the batch: the rows that are left must have the same bits."""
    if not case.shapes or not case.shapes[0] or case.shapes[0][0] < 2:
        search.answer.covered.notes.append("batch invariance: the inputs have no batch")
        return
    size = case.shapes[0][0]
    half = tuple(
        (size // 2, *shape[1:]) if shape and shape[0] == size else shape for shape in case.shapes
    )
    runner = search.runner
    tensors = dense_values(runner.problem.example, case)
    fewer = [
        t[: shape[0]].contiguous() if shape else t for t, shape in zip(tensors, half, strict=True)
    ]
    smaller = replace(case, name="half of the batch", shapes=half)
    try:
        oracle = runner.oracle(smaller, fewer)
    except NotRunnableError:
        search.answer.covered.notes.append("batch invariance: the reference takes no other batch")
        return
    whole = runner.run(case)
    part = runner.call(smaller, placed(fewer, smaller, runner.problem.device), oracle)
    if whole.result is None or part.result is None:
        return
    for (name, a), (_, b) in zip(whole.result, part.result, strict=True):
        if a.dim() and b.dim() and a.shape[1:] == b.shape[1:] and not _equal_bits(a[: len(b)], b):
            text = f"{name}: rows have other bits in a batch of {size // 2} than in one of {size}"
            search.keep(Finding("not-batch-invariant", text, True, smaller, runner.problem.file))
            return


def _same_bits(a: Outcome, b: Outcome) -> bool:
    if a.result is None or b.result is None:
        return True
    return all(_equal_bits(x, y) for (_, x), (_, y) in zip(a.result, b.result, strict=True))


def _equal_bits(a: Tensor, b: Tensor) -> bool:
    views = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.shape == b.shape and torch.equal(*views)
