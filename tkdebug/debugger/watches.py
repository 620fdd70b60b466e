"""Variables and expressions that are looked at, at each line, for a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.expressions import EvaluationError, compile_expression
from tkdebug.debugger.value_text import element_text, value_text
from tkdebug.debugger.values import PerProgram

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection

_NOTHING = object()


class Watches:
    """What watched expressions were, the last time that they could be evaluated."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[tuple[int, ...], Any]] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def clear(self) -> None:
        """Time has jumped: what is there now is no change."""
        self._last.clear()

    def see(self, one: Breakpoint, inspection: Inspection) -> None:
        """It is stopped here: what is there now is no change, but where there is nothing yet."""
        self.change(one, inspection)
        self._last.setdefault(one.number, ((), _NOTHING))

    def change(self, one: Breakpoint, inspection: Inspection) -> str | None:
        """What to say of a change since the last time; None for none."""
        if one.subject not in self._names:
            self._names[one.subject] = compile_expression(one.subject).co_names
        if inspection.is_bound_later(self._names[one.subject]):
            return None  # not the argument that goes by this name, too: `x` for `x_ptr`
        try:
            value = inspection.evaluate(one.subject)
        except EvaluationError:
            return None  # no such variable in this frame, or none yet
        what = "elements"
        if isinstance(value, PerProgram):
            what = what if value.is_tile else "programs"
            value = value.values if value.data is None else value.data
        if one.kind is not BreakKind.CHANGE:
            value = _bad(value, one.kind)
        programs = inspection.programs
        before = self._last.get(one.number)
        self._last[one.number] = (programs, _kept(value))
        if one.kind is not BreakKind.CHANGE:
            count = int(value)
            if not count or (before is not None and before[1] not in (0, _NOTHING)):
                return None
            what = "NaN" if one.kind is BreakKind.NAN else "Inf"
            return f"{one.subject} has {count} {what}"
        if before is not None and before[1] is _NOTHING:
            return f"{one.subject} has a value now"
        if before is None or before[0] != programs or _same(before[1], value):
            return None
        return f"{one.subject} changed{_shown(before[1], value, what)}"


def _bad(value: Any, kind: BreakKind) -> int:
    tensor = torch.as_tensor(value)
    if not tensor.dtype.is_floating_point:
        return 0
    wide = tensor.float() if tensor.element_size() < 2 else tensor
    return int((wide.isnan() if kind is BreakKind.NAN else wide.isinf()).sum())


def _kept(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return torch.equal(
            a.contiguous().reshape(-1).view(torch.uint8),
            b.contiguous().reshape(-1).view(torch.uint8),
        )
    try:
        return bool(a == b) or (a != a and b != b)
    except Exception:
        # A comparison of the user's own objects: what cannot be compared is the same if it is one.
        return a is b


def _shown(before: Any, now: Any, what: str) -> str:
    if isinstance(now, Tensor) and now.numel() > 1:
        if isinstance(before, Tensor) and _is_uniform(before) and _is_uniform(now):
            return f": {_plain(before.reshape(-1)[0])} -> {_plain(now.reshape(-1)[0])}"
        if isinstance(before, Tensor) and before.shape == now.shape:
            return f" in {int((before != now).sum())} of {now.numel()} {what}"
        return ""
    return f": {_plain(before)} -> {_plain(now)}"


def _is_uniform(value: Tensor) -> bool:
    return bool((value == value.reshape(-1)[0]).all())


def _plain(value: Any) -> str:
    is_element = isinstance(value, Tensor) and value.numel() == 1
    return element_text(value) if is_element else value_text(value)
