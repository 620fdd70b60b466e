"""Follows what has no defined value to where it is used.

That is the result of an integer division by zero and of a shift past the width and, when that is
asked for, what a load without `other` gives where its mask is false. All are harmless where nothing
uses them: in elements that are masked off, or that `tl.where` drops. So each is followed through
the ops after it, and reported when a store writes it, an access goes by it, or a branch or a loop.
Until one happens this looks at nothing but the divisors, the amounts of shifts, and masks.

Offsets that wrapped (`offset_wraps`) are followed in the same way, and reported where an access
goes by them; negative remainders, where it goes before the tensor by them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.undefined.elements import UndefinedElements
from tkdebug.interpreter.checks.undefined.sources import Sources
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Moments, Observer

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


class UndefinedValues(Observer):
    """Reports where undefined values, and offsets that wrapped, are used.

    Args:
        module: what is launched.
        faults: where it reports.
        of_loads: whether what a load gives where its mask is false is undefined, too.
    """

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog, of_loads: bool) -> None:
        self._sources = Sources.of(module)
        self._faults = faults
        self._of_loads = of_loads

    @property
    def key(self) -> Hashable:
        """Loads are looked at only where that is asked for."""
        return type(self), self._of_loads

    def moments(self, op: Operation) -> Moments:
        """Before what may be undefined, after what may wrap; all else only while there is any."""
        sources = self._sources
        moments = Moments.NEVER
        if op in sources.ops or (self._of_loads and op in sources.loads):
            moments |= Moments.BEFORE
        if any(op in ops for ops in (sources.offsets.sums, sources.offsets.hashed)):
            moments |= Moments.AFTER
        if op in sources.offsets.remainders:
            moments |= Moments.AFTER
        return moments

    def of_batch(self, run: Evaluator) -> Observer:
        """The undefined elements of one batch."""
        return UndefinedElements(run, self._faults, self._sources, self._of_loads)
