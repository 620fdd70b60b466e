"""Metrics that scripts give of their scopes and launches: reading values, and adding them up.

Responsible for the kinds of values, as Proton has them: numbers, lists of numbers, text. A tensor
is copied on its device and read when the profile is written, so that nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from tkdebug.instrument.profiling import ProfileError

Number = int | float
Value = int | float | str | list[int] | list[float]

_EXCLUSIVE, _PROPERTY = "(exc)", "(pty)"


class Metric:
    """One metric of one place.

    Attributes:
        name: the name without the part that says how it adds up.
        inclusive: whether the places around it have it too.
    """

    def __init__(self, name: str) -> None:
        self.inclusive = not name.endswith(_EXCLUSIVE)
        self._is_property = name.endswith(_PROPERTY)
        self.name = plain_name(name)
        self._value: Value | None = None
        self._tensors: list[Any] = []

    def add(self, value: object) -> None:
        """Add `value`; text and properties replace the earlier value.

        Raises:
            ProfileError: it is of another type than the values before, or of none that can be
                added.
        """
        if hasattr(value, "data_ptr"):
            self._tensors.append(value)
            return
        new = read_value(self.name, value)
        if self._value is not None:
            self._check_type(new)
        if self._value is None or self._is_property or isinstance(new, str):
            self._value = new
        else:
            self._value = _sum(self.name, self._value, new)

    def check(self, value: object) -> None:
        """Raise what `add` would raise of `value`."""
        if not hasattr(value, "data_ptr"):
            new = read_value(self.name, value)
            if self._value is not None:
                self._check_type(new)

    def _check_type(self, new: Value) -> None:
        before, now = _type_name(self._value), _type_name(new)
        if before != now and not {before, now} <= {"uint64_t", "int64_t"}:
            raise ProfileError(
                f"Metric value type mismatch for valueId 0 ({self.name}): current={before}, "
                f"new={now}; give it values of one type"
            )

    def value(self) -> Value | None:
        """The sum so far; reads tensors, which waits for the device."""
        tensors, self._tensors = self._tensors, []
        for tensor in tensors:
            values = tensor.reshape(-1).tolist()
            self.add(values[0] if len(values) == 1 else values)
        return self._value


def kept(metrics: Mapping[str, object]) -> dict[str, object]:
    """`metrics` as they are now: tensors copied, on their device."""
    return {
        name: value.detach().clone() if hasattr(value, "detach") else value
        for name, value in metrics.items()
    }


def plain_name(name: str) -> str:
    """A metric's name without the marks of exclusive metrics and properties."""
    return name.replace(_EXCLUSIVE, "").replace(_PROPERTY, "").strip()


def is_number(value: object) -> bool:
    """Whether `value` can be added up: a number, or a tensor of numbers."""
    return isinstance(value, Real) or hasattr(value, "data_ptr")


def read_value(name: str, value: object) -> Value:
    """`value` as plain Python.

    Raises:
        ProfileError: it is nothing that a metric can be.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Real) for v in value):
        if all(isinstance(v, Integral) for v in value):
            return [int(v) for v in value]
        return [float(v) for v in value]
    raise ProfileError(
        f"metric {name!r}: got {value!r:.80}, expected a number, a list of numbers, a tensor "
        "or text"
    )


def _sum(name: str, before: Value, new: Value) -> Value:
    if isinstance(before, list) and isinstance(new, list):
        if len(before) != len(new):
            raise ProfileError(
                f"metric {name!r}: got {len(new)} numbers, expected {len(before)} as before"
            )
        return [a + b for a, b in zip(before, new, strict=True)]
    if isinstance(before, (int, float)) and isinstance(new, (int, float)):
        return before + new
    return new


def _type_name(value: object) -> str:
    # The names that Proton has for them, which scripts may look for in the message.
    if isinstance(value, list):
        return f"std::vector<{_type_name(value[0])}>"
    if isinstance(value, str):
        return "std::string"
    if isinstance(value, float):
        return "double"
    return "uint64_t" if isinstance(value, int) and value >= 0 else "int64_t"
