"""Edits that fix a launch: each is tried on a program that was wrong, then on the whole launch.

An edit counts if the whole launch, run again with it in the source, agrees with the expected
tensor, or comes near it and agrees in fp64, so that only rounding is left. Nothing else is called a
cause.

Edits of a function are tried in an order: common mistakes, undone. Each rule has its share of the
tries, however many edits it makes: a few that exchange axes come before the hundreds that replace
one name by another. Most of them do not compile, or fix nothing: `edits_of` tries none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from types import FunctionType

import torch
from torch import Tensor

from tkdebug.causes.comparison import Comparison
from tkdebug.causes.expression_edits import ExpressionEdits
from tkdebug.causes.fp64 import NotLiftableError
from tkdebug.causes.kernel_text import Change, Edit, KernelText, Kind, sliced_lines
from tkdebug.causes.launches import Launched
from tkdebug.causes.rerun import OutOfTimeError, Rerun, Sources, Store
from tkdebug.causes.screening import Screening, Wanted
from tkdebug.causes.statement_edits import StatementEdits
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.frontend.arguments import Constant
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.ir import DescriptorType, Module, PointerType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.tensor import is_jit_function
from tkdebug.errors import TkError
from tkdebug.runtime.compile.compilation import compile_with_sources

# How often the mistake that a rule undoes is made, relative to others.
_WEIGHTS: Mapping[str, float] = {
    **{"axis": 3, "comparison": 3, "range": 3, "assignment": 4, "stale": 3, "rescale": 4},
    **{"operator": 3, "constant": 2, "operand": 3, "name": 6, "exchange": 3, "bound": 2},
    **{
        "mask": 3,
        "other": 3,
        "factor": 5,
        "term": 2,
        "where": 2,
        "function": 2,
        "type": 1,
        "number": 2,
    },
    **{"statement": 1, "offset": 3, "stride": 2, "index": 2},
}
# An edit after which nothing reads a name any more is less likely; one that reads a name that
# nothing has read is likelier.
_LOSES, _USES = 3.0, 0.4
# How many places later an edit is tried whose rank is 1.
_UNLIKELY = 3.0
_NAME = re.compile(r"[^\W\d]\w*")
# Edits that are shown.
_MOST = 5
# After the first one others are looked for: for a part of the time that it took, and at least for
# a part of the whole time.
_LONGER, _LEAST = 0.3, 0.04
# How much later edits of kernels before the last one are tried: each takes as much longer.
_EARLIER = 12.0
# The largest error of an edited launch that may be rounding, as a part of the wrong one's.
_NEAR = 0.05
# Errors of the interpreter for code that no one would write.
_NONSENSE = (RuntimeError, ValueError, IndexError, TypeError, ArithmeticError, AssertionError)


def edits_of(
    source: KernelSource,
    globals_: Mapping[str, object],
    kinds: Mapping[str, Kind],
    line: int | None = None,
    *,
    is_kernel: bool = True,
) -> list[Edit]:
    """Return the edits of a function, the likeliest first, each once.

    Args:
        source: the source of the function.
        globals_: its global names; those of numbers may be used.
        kinds: the kinds of its parameters and variables, if known.
        line: the line of a statement that edits should change something for; None for any.
        is_kernel: whether it is launched, or called by a function that is.
    """
    text = KernelText(source, globals_, kinds, is_kernel=is_kernel)
    lines = None if line is None else sliced_lines(text.body, line)
    found: dict[tuple[Change, ...], Edit] = {}
    for edit in chain(ExpressionEdits(text).edits(), StatementEdits(text).edits()):
        if lines is not None and edit.line not in lines:
            continue
        known = found.get(edit.changes)
        if known is None or (edit.rank, edit.rule) < (known.rank, known.rule):
            found[edit.changes] = edit
    return sorted(_in_turns(found.values(), text), key=lambda edit: edit.order)


def _in_turns(edits: Iterable[Edit], text: KernelText) -> Iterator[Edit]:
    """Yield the edits with their order: the place within the rule, divided by the rule's weight."""
    by_rule: dict[str, list[tuple[float, int, float, Edit]]] = {}
    for edit in edits:
        factor = _factor(edit, text)
        # Ranks are about how likely an edit is within its rule. Of two that are alike the later
        # one changes less of what the kernel computes.
        ranked = ((1 + edit.rank) * factor, -edit.line, factor, edit)
        by_rule.setdefault(edit.rule, []).append(ranked)
    for rule, known in by_rule.items():
        known.sort(key=lambda each: each[:2])
        for place, (_, _, factor, edit) in enumerate(known):
            turn = place + 1 + _UNLIKELY * edit.rank
            yield replace(edit, order=turn * max(factor, 1.0) / _WEIGHTS[rule])


def _factor(edit: Edit, text: KernelText) -> float:
    change: Counter[str] = Counter()
    for one in edit.changes:
        change.update(_NAME.findall(one.text))
        change.subtract(_NAME.findall(text.piece(one)))
    factor = 1.0
    for name, count in change.items():
        if name in text.kinds and count:
            before = text.uses[name]
            if before and before + count <= 0:
                factor *= _LOSES
            elif not before and count > 0:
                factor *= _USES
    return factor


class Agreement(Enum):
    """Whether an edited launch agrees with what was expected."""

    NONE = "not"
    AS_IT_IS = "as it is"
    IN_FP64 = "in fp64"


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit with which the launch agrees.

    Attributes:
        is_in_fp64: whether it agrees in fp64 alone.
    """

    function: str
    file: str
    edit: Edit
    before: tuple[str, ...]
    after: tuple[str, ...]
    is_in_fp64: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a search.

    Attributes:
        fixes: the likeliest first.
        tried: how many edits were tried.
        is_whole: whether all edits were tried, or one was found.
        screening: the wrong program as Python, where it runs as such.
    """

    fixes: tuple[Fix, ...]
    tried: int
    is_whole: bool
    screening: Screening | None = None


NOTHING_TRIED = Tried((), 0, True)


class Search:
    """The search for edits that fix launches.

    Args:
        rerun: the launches.
        store: the store of a wrong element in the last launch; None if no program stores it.
        comparison: the one that failed, for a tensor like the rerun's.
    """

    def __init__(self, rerun: Rerun, store: Store | None, comparison: Comparison) -> None:
        self._rerun = rerun
        self._store = store
        self._comparison = comparison
        self._worst = comparison.worst

    def _wrong(self, tensor: Tensor) -> Tensor:
        return self._comparison.wrong(tensor.to(self._comparison.actual.dtype))

    def _screened(self) -> Screening | None:
        """The wrong program as Python; None if it cannot run so, or stores something else."""
        store, last = self._store, self._rerun.launches[-1]
        if store is None or not tt.Store.matches(store.op):
            return None
        arguments, target = self._rerun.arguments_of_last()
        x, y, _ = last.grid
        program = (store.program % x, store.program // x % y, store.program // (x * y))
        wanted = Wanted.of(self._comparison, target)
        now = Wanted.of(self._comparison, target, is_now=True)
        function = last.kernel.src.fn
        try:
            screening = Screening(
                function.fn, function.kernel_source, arguments, program, last.grid, wanted
            )
        except Exception:  # what it cannot run, the interpreter can
            return None
        return screening if screening.agrees(now.values) else None

    def run(self, rules: Collection[str] | None = None) -> Tried:
        """Try edits, the likeliest first, until enough fix the launch or time is over.

        Args:
            rules: the rules whose edits are tried; None for all.
        """
        fixes: list[Fix] = []
        tried = 0
        end = 1.0
        # It computes in other types than launches do.
        screening = self._screened() if rules is None else None
        # Edits of these change what the last launch is given, which the screening does not see.
        earlier = self._functions(self._rerun.launches[:-1])
        for function, source, edit in self._candidates():
            if rules is not None and edit.rule not in rules:
                continue
            used = self._rerun.budget.used()
            if len(fixes) >= _MOST or used >= end:
                return Tried(_ranked(fixes), tried, bool(fixes), screening)
            tried += 1
            if screening is not None and not edit.makes_atomic and function not in earlier:
                if not screening.may_fix(function, edit):
                    continue
            agrees = self._agreement(function, source, edit, may_round=rules is None)
            if agrees is not Agreement.NONE:
                plain = edit.plain(source)
                before, after = plain.diff(source)
                if not fixes:
                    used = self._rerun.budget.used()
                    end = min(1.0, used + max(_LEAST, _LONGER * used))
                if all(after != fix.after for fix in fixes):
                    is_in_fp64 = agrees is Agreement.IN_FP64
                    fixes.append(Fix(source.name, source.file, plain, before, after, is_in_fp64))
        return Tried(_ranked(fixes), tried, True, screening)

    def _candidates(self) -> Iterator[tuple[FunctionType, KernelSource, Edit]]:
        found = []
        # As the front end makes them: passes drop variables that nothing uses.
        kernels = {launched.kernel.hash: launched.kernel for launched in self._rerun.launches}
        kinds = _kinds(compile_with_sources(kernel.src, {}) for kernel in kernels.values())
        for kernel in kernels.values():
            for name, spec in zip(kernel.src.fn.arg_names, kernel.src.specs, strict=True):
                if isinstance(spec, Constant) and isinstance(spec.value, float):
                    kinds.setdefault(name, Kind("float"))
        functions = self._functions(self._rerun.launches)
        last = self._functions(self._rerun.launches[-1:])
        launched = {one.kernel.src.fn.fn for one in self._rerun.launches}
        for function, source in functions.items():
            globals_ = function.__globals__
            line = self._line_in(source)
            # The last launch is what is looked at; others take longer to try.
            later = 1.0 if function in last else _EARLIER
            found += [
                (later * edit.order, function, source, edit)
                for edit in edits_of(source, globals_, kinds, line, is_kernel=function in launched)
            ]
        found.sort(key=lambda candidate: candidate[0])
        return ((function, source, edit) for _, function, source, edit in found)

    def _line_in(self, source: KernelSource) -> int | None:
        """The store's line, if it is in a source."""
        if self._store is None:
            return None
        place = self._store.op.location.primary
        is_here = source.file == place.file and source.line(place.line) is not None
        return place.line if is_here else None

    def _functions(self, launches: Sequence[Launched]) -> dict[FunctionType, KernelSource]:
        """The kernels, the last one first, and the functions that they call."""
        functions = {}
        for launched in reversed(launches):
            kernel = launched.kernel
            functions[kernel.src.fn.fn] = kernel.src.fn.kernel_source
            for used in kernel.used_globals:
                if is_jit_function(used.value):
                    functions[used.value.fn] = used.value.kernel_source
        return functions

    def _agreement(
        self, function: FunctionType, source: KernelSource, edit: Edit, *, may_round: bool
    ) -> Agreement:
        """Return whether the edited launch agrees; in fp64 only where it may round."""
        try:
            sources = {function: edit.apply(source)}
        except SyntaxError:
            return Agreement.NONE
        store = self._store
        # The result of an atomic is the work of several programs.
        is_of_one = store is not None and tt.Store.matches(store.op) and not edit.makes_atomic
        if store is not None and is_of_one and self._rerun.marks_written:
            program = store.program
            part = self._ran(sources, [range(program, program + 1)])
            if part is None:
                return Agreement.NONE
            if not self._agrees_where_written(part):
                written = self._rerun.is_written(part)
                is_near = bool(written.reshape(-1)[self._worst]) and self._is_near(part, written)
                return self._in_fp64(sources) if may_round and is_near else Agreement.NONE
        whole = self._ran(sources)
        if whole is None:
            return Agreement.NONE
        if not bool(self._wrong(whole).any()):
            return Agreement.AS_IT_IS
        is_near = may_round and self._is_near(whole, torch.ones_like(whole, dtype=torch.bool))
        return self._in_fp64(sources) if is_near else Agreement.NONE

    def _is_near(self, tensor: Tensor, where: Tensor) -> bool:
        """Whether a tensor's largest error is but a small part of the compared one's."""
        actual, expected = self._comparison.actual, self._comparison.expected
        if not actual.is_floating_point():
            return False
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            kept = where.cpu()
            right = expected.detach().cpu().to(torch.float64)[kept]
            errors = [
                float((one.detach().cpu().to(torch.float64)[kept] - right).abs().max())
                for one in (tensor, actual)
            ]
        # NaN is not near.
        return errors[0] <= _NEAR * errors[1]

    def _in_fp64(self, sources: Sources) -> Agreement:
        try:
            exact = self._rerun.edited_in_fp64(sources)
        except (TkError, OutOfTimeError, NotLiftableError, *_NONSENSE):
            return Agreement.NONE
        if exact is None or bool(self._comparison.wrong(exact).any()):
            return Agreement.NONE
        return Agreement.IN_FP64

    def _ran(self, sources: Sources, programs: Sequence[range] | None = None) -> Tensor | None:
        """Return the tensor after edited launches, or None if they cannot be run."""
        try:
            return self._rerun.run(sources, programs)
        except (TkError, OutOfTimeError, *_NONSENSE):
            return None

    def _agrees_where_written(self, part: Tensor) -> bool:
        written = self._rerun.is_written(part)
        if not bool(written.reshape(-1)[self._worst]):
            return False
        return not bool((self._wrong(part) & written).any())


def _ranked(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Return the fixes, those with which the launch agrees only in fp64 last."""
    return tuple(sorted(fixes, key=lambda fix: fix.is_in_fp64))


def _kinds(modules: Iterable[Module]) -> dict[str, Kind]:
    """Return the kinds of the named values of kernels."""
    found: dict[str, Kind] = {}
    for module in modules:
        block = module.function.regions[0].block
        names = tt.Func(module.function).arg_names
        named = [*zip(names, block.arguments, strict=True)]
        named += [(r.name, r) for op in module.walk() for r in op.results if r.name]
        for name, value in named:
            element = ir.element_of(value.type)
            if isinstance(element, PointerType) or isinstance(value.type, DescriptorType):
                kind = "pointer"
            elif not element.is_integer:
                kind = "float"
            else:
                kind = "bool" if element.bits == 1 else "int"
            found.setdefault(name, Kind(kind, tuple(ir.shape_of(value.type))))
    return found
