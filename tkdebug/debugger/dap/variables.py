"""Variables that a client unfolds: values by reference, parts made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tkdebug.debugger.programs import program_text
from tkdebug.debugger.value_text import (
    element_text,
    found_text,
    kind_text,
    reading_text,
    type_name,
    value_text,
)
from tkdebug.debugger.values import (
    Buffer,
    Constant,
    Described,
    PerProgram,
    Pointers,
    Reading,
    Tile,
    Unavailable,
)
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection

# The most entries of one answer, if the client does not ask for a part.
MOST_CHILDREN = 1000
_HAS_LENGTH = (tuple, list)


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as a client sees it.

    Attributes:
        name: the name of the variable, or of the part.
        text: the value on one line.
        type: the type as the language writes it; "" if there is none.
        expression: an expression that evaluates to it; "" if there is none.
        children: makes its parts from `start` on, `count` of them.
        length: the number of parts; 0 for none.
        is_indexed: whether they are numbered.
        place: the variable or argument, and the indices into it, for breakpoints on data.
        is_memory: whether `place` is in an argument's memory, not in a variable's value.
    """

    name: str
    text: str
    type: str = ""
    expression: str = ""
    children: Callable[[int, int], Sequence[Shown]] | None = None
    length: int = 0
    is_indexed: bool = True
    place: tuple[str, tuple[int, ...]] | None = None
    is_memory: bool = False


@dataclass(slots=True)
class References:
    """The numbers, of one stop, by which a client asks for parts of values."""

    _shown: list[Shown] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all values: the launch goes on."""
        self._shown.clear()

    def add(self, shown: Shown) -> int:
        """The number of a value; 0 if it has no parts."""
        if shown.children is None or not shown.length:
            return 0
        self._shown.append(shown)
        return len(self._shown)

    def parts(self, number: int, start: int, count: int) -> Sequence[Shown]:
        """The parts of a value.

        Raises:
            UsageError: the number is of another stop.
        """
        shown = self.of(number)
        assert shown.children is not None
        return shown.children(start, min(count, MOST_CHILDREN) or MOST_CHILDREN)

    def of(self, number: int) -> Shown:
        """The value of that number.

        Raises:
            UsageError: the value is of another stop.
        """
        if not 1 <= number <= len(self._shown):
            raise UsageError(f"variablesReference {number} is not of this stop")
        return self._shown[number - 1]

    def variable(self, shown: Shown) -> dict[str, Any]:
        """A value as the protocol's `Variable`."""
        number = self.add(shown)
        found: dict[str, Any] = {
            "name": shown.name,
            "value": shown.text,
            "variablesReference": number,
        }
        if shown.type:
            found["type"] = shown.type
        if shown.expression:
            found["evaluateName"] = shown.expression
        if number:
            found["indexedVariables" if shown.is_indexed else "namedVariables"] = shown.length
        return found


def scope(name: str, values: Sequence[Shown]) -> Shown:
    """Several values under one heading."""
    return group(name, "", values)


def group(name: str, text: str, values: Sequence[Shown], **fields: Any) -> Shown:
    """A value whose parts have names."""
    return Shown(
        name,
        text,
        children=lambda start, count: values[start : start + count],
        length=len(values),
        is_indexed=False,
        **fields,
    )


def of_reading(name: str, reading: Reading, program: int, grid: tuple[int, int, int]) -> Shown:
    """A variable of one program."""
    text = reading_text(reading, (program,), grid)
    place = (name, ())
    match reading:
        case Tile():
            shown = of_tensor(name, reading.data[0], text, name, place)
            return Shown(
                name,
                text,
                kind_text(reading),
                name,
                shown.children,
                shown.length,
                place=place,
            )
        case Buffer():
            return of_tensor(name, reading.data[0], text, "")
        case Pointers():
            parts = [of_tensor("offsets", reading.offsets[0], None, "")]
            if reading.tensor is not None:
                parts.append(of_tensor(reading.name or "memory", reading.tensor, None, ""))
            return group(name, text, parts, type=reading.type)
        case Described():
            parts = [of_reading(key, part, program, grid) for key, part in reading.parts.items()]
            return group(name, text, parts, type=reading.kind)
        case Constant():
            return of_value(name, reading.value, name)
        case Unavailable():
            return Shown(name, text)
        case _:
            items = [of_reading(f"[{i}]", part, program, grid) for i, part in enumerate(reading)]
            return group(name, text, items, type="tuple")


def of_programs(value: PerProgram, inspection: Inspection) -> Shown:
    """Show the values of an expression in each of several programs."""
    programs, grid = inspection.programs, inspection.launch.grid
    parts = [
        of_value(program_text(program, grid), each, "")
        for program, each in zip(programs, value.values, strict=True)
    ]
    return group("", found_text(value, programs, grid), parts)


def of_value(name: str, value: Any, expression: str) -> Shown:
    """A Python value, whose parts are made when they are asked for: there may be millions."""
    if isinstance(value, Tensor):
        return of_tensor(name, value, None, expression, (name, ()), is_memory=True)
    if isinstance(value, _HAS_LENGTH) and value:

        def parts(start: int, count: int) -> Sequence[Shown]:
            shown = enumerate(value[start : start + count], start)
            return [of_value(f"[{i}]", item, f"{expression}[{i}]") for i, item in shown]

    elif isinstance(value, Mapping) and value:

        def parts(start: int, count: int) -> Sequence[Shown]:
            shown = islice(value.items(), start, start + count)
            return [of_value(str(key), item, "") for key, item in shown]

    else:
        return Shown(name, value_text(value), type_name(value), expression)
    kind = type_name(value)
    return Shown(name, value_text(value), kind, "", parts, len(value), is_indexed=False)


def of_tensor(
    name: str,
    data: Tensor,
    text: str | None,
    expression: str,
    place: tuple[str, tuple[int, ...]] | None = None,
    is_memory: bool = False,
) -> Shown:
    """A tensor, with its parts along the first axis."""
    kind = f"{str(data.dtype).removeprefix('torch.')}{list(data.shape)}"
    shown = value_text(data) if text is None else text
    if data.dim() == 0:
        number = element_text(data)
        return Shown(name, number, kind[:-2], expression, place=place, is_memory=is_memory)

    def parts(start: int, count: int) -> list[Shown]:
        return [
            of_tensor(
                f"[{i}]",
                data[i],
                None,
                expression and f"{expression}[{i}]",
                place and (place[0], (*place[1], i)),
                is_memory,
            )
            for i in range(start, min(start + count, data.shape[0]))
        ]

    length = data.shape[0]
    return Shown(name, shown, kind, expression, parts, length, place=place, is_memory=is_memory)
