"""Whether a kernel drops by lane what it has loaded, as `tl.where(cols < n, x, 0)` does."""

from __future__ import annotations

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Module
from tkdebug.interpreter.checks.value_sources import LANES, MEMORY, ValueSources


class LaneSelections:
    """The selections of a module.

    Attributes:
        any_by_lane: whether the condition of one depends on the lane, and on no loaded value.
    """

    def __init__(self, module: Module) -> None:
        sources = ValueSources(module)
        conditions = (
            sources.of(arith.Select(op).condition)
            for op in module.function.walk()
            if arith.Select.matches(op)
        )
        self.any_by_lane = any(LANES in found and MEMORY not in found for found in conditions)

    @classmethod
    def of(cls, module: Module) -> LaneSelections:
        """Those of a module, worked out when they are first asked for."""
        found = module.derived.get(cls)
        if found is None:
            found = module.derived[cls] = cls(module)
        assert isinstance(found, cls)
        return found
