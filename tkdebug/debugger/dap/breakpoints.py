"""A client's breakpoints as the engine's: each request replaces all of its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.dap.wire import FAULTS, optional, required
from tkdebug.debugger.expressions import EvaluationError
from tkdebug.debugger.lines import checked_line, kernel_lines
from tkdebug.errors import TkError, UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.engine import Debugger

_HITS = re.compile(r"\s*(?:>=|==)?\s*(\d{1,9})\s*")
_ACCESSES: dict[str, tuple[BreakKind, ...]] = {
    "write": (BreakKind.WRITE,),
    "read": (BreakKind.READ,),
    "readWrite": (BreakKind.READ, BreakKind.WRITE),
}
_VARIABLE, _ELEMENT = "variable:", "element:"


@dataclass(slots=True)
class Breakpoints:
    """The breakpoints of one client.

    Args:
        debugger: the debugger that has them.
    """

    debugger: Debugger
    _set: dict[str, list[int]] = field(default_factory=dict)

    def at_lines(self, file: str, asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Set the breakpoints of a source file."""
        return self._replace(f"lines of {file}", [self._line(file, one) for one in asked])

    def at_functions(self, asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Set the breakpoints at the beginning of kernels and device functions."""
        return self._replace("functions", [self._function(one) for one in asked])

    def at_data(self, asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Set the breakpoints on variables and elements."""
        return self._replace("data", [self._data(one) for one in asked])

    def at_faults(self, filters: Sequence[str]) -> list[dict[str, Any]]:
        """Set the breakpoints on faults."""
        unknown = [name for name in filters if name != FAULTS]
        if unknown:
            raise UsageError(f"filter {unknown[0]!r} is unknown, expected {FAULTS!r}")
        made = [Wanted([(BreakKind.FAULT, "", {})]) for _ in filters]
        return self._replace("faults", made)

    def _replace(self, key: str, wanted: Sequence[Wanted]) -> list[dict[str, Any]]:
        for number in self._set.pop(key, ()):
            if any(one.number == number for one in self.debugger.breakpoints):
                self.debugger.remove(number)
        numbers: list[int] = []
        answers = []
        for one in wanted:
            made, problem = self._make(one)
            numbers += [each.number for each in made]
            answers.append(_answer(one, made, problem))
        self._set[key] = numbers
        return answers

    def _make(self, wanted: Wanted) -> tuple[list[Breakpoint], str]:
        if wanted.problem:
            return [], wanted.problem
        made: list[Breakpoint] = []
        try:
            for kind, subject, options in wanted.parts:
                made.append(self.debugger.add(kind, subject, **options))
        except (TkError, EvaluationError) as error:
            return made, str(error)
        return made, ""

    def _line(self, file: str, asked: Mapping[str, Any]) -> Wanted:
        line = required(asked, "line", int)
        try:
            kernels = kernel_lines(file)
            if line in kernels or line in _decorated(kernels, line):
                line = checked_line(file, line)
            else:
                raise UsageError("no kernel has this line; a Python debugger stops at it")
            options = {**options_of(asked), "file": file, "line": line}
        except UsageError as error:
            return Wanted([], line, str(error))
        return Wanted([(BreakKind.LINE, "", options)], line)

    def _function(self, asked: Mapping[str, Any]) -> Wanted:
        name = required(asked, "name", str)
        try:
            return Wanted([(BreakKind.FUNCTION, name, options_of(asked))])
        except UsageError as error:
            return Wanted([], problem=str(error))

    def _data(self, asked: Mapping[str, Any]) -> Wanted:
        data = required(asked, "dataId", str)
        try:
            options = options_of(asked)
            if data.startswith(_VARIABLE):
                return Wanted([(BreakKind.CHANGE, data.removeprefix(_VARIABLE), options)])
            if not data.startswith(_ELEMENT):
                raise UsageError(f"dataId {data!r} is unknown")
            kinds = _ACCESSES.get(optional(asked, "accessType", "write"))
            if kinds is None:
                raise UsageError(f"accessType is {asked['accessType']!r}")
            return Wanted([(kind, data.removeprefix(_ELEMENT), options) for kind in kinds])
        except UsageError as error:
            return Wanted([], problem=str(error))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A breakpoint of the client: the engine's breakpoints for it, or why there are none."""

    parts: list[tuple[BreakKind, str, dict[str, Any]]]
    line: int | None = None
    problem: str = ""


def data_of_variable(text: str) -> str:
    """The `dataId` of a variable of a kernel, or of an expression."""
    return _VARIABLE + text


def data_of_element(text: str) -> str:
    """The `dataId` of an element of a tensor, `out[3, 17]`."""
    return _ELEMENT + text


def _decorated(kernels: Mapping[int, str], line: int) -> tuple[int, ...]:
    """(`line`,) if a kernel's line is right after it, as after a decorator; else ()."""
    return (line,) if line + 1 in kernels else ()


def options_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Condition, hits and log text, as the engine has them.

    Raises:
        UsageError: the hit condition is no number.
    """
    options: dict[str, Any] = {}
    if condition := optional(asked, "condition", "").strip():
        options["condition"] = condition
    if hits := optional(asked, "hitCondition", "").strip():
        found = _HITS.fullmatch(hits)
        if found is None or not int(found[1]):
            raise UsageError(f"hit condition {hits!r}: expected a number of hits, such as 3")
        options["ignored"] = int(found[1]) - 1
    if log := optional(asked, "logMessage", ""):
        options["log"] = log
    return options


def _answer(wanted: Wanted, made: Sequence[Breakpoint], problem: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"verified": not problem}
    if made:
        answer["id"] = made[0].number
    if problem:
        answer |= {"message": problem, "reason": "failed"}
    if wanted.line is not None:
        answer["line"] = wanted.line
    return answer
