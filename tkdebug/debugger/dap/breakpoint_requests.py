"""Requests that set breakpoints, or ask where some can be."""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.dap.debuggee import Debuggee
from tkdebug.debugger.dap.wire import optional, required, texts
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.dap.breakpoints import Breakpoints
    from tkdebug.debugger.dap.variables import Shown
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.inspection import Inspection

_SPECIAL = ("pid", "program", "grid", "launch", "kernel", "torch", "tl")
Body = Mapping[str, Any] | None


class BreakpointRequests:
    """Sets breakpoints as a client asks.

    Args:
        debuggee: the process whose launches they stop.
    """

    def __init__(self, debuggee: Debuggee) -> None:
        self._debuggee = debuggee
        self.requests: dict[str, Callable[[Mapping[str, Any]], Body]] = {
            "setBreakpoints": self._set_breakpoints,
            "setFunctionBreakpoints": self._set_function_breakpoints,
            "setDataBreakpoints": self._set_data_breakpoints,
            "setExceptionBreakpoints": self._set_exception_breakpoints,
            "breakpointLocations": self._breakpoint_locations,
            "dataBreakpointInfo": self._data_breakpoint_info,
        }

    @cached_property
    def _breakpoints(self) -> Breakpoints:
        from tkdebug.debugger.dap.breakpoints import Breakpoints

        return Breakpoints(self._debuggee.debugger)

    def _set_breakpoints(self, arguments: Mapping[str, Any]) -> Body:
        source: dict[str, Any] = required(arguments, "source", dict)
        file = os.path.abspath(required(source, "path", str))
        empty: list[Any] = []
        asked = _objects(optional(arguments, "breakpoints", empty), "breakpoints")
        return {"breakpoints": self._breakpoints.at_lines(file, asked)}

    def _set_function_breakpoints(self, arguments: Mapping[str, Any]) -> Body:
        asked = _objects(required(arguments, "breakpoints", list), "breakpoints")
        return {"breakpoints": self._breakpoints.at_functions(asked)}

    def _set_data_breakpoints(self, arguments: Mapping[str, Any]) -> Body:
        asked = _objects(required(arguments, "breakpoints", list), "breakpoints")
        return {"breakpoints": self._breakpoints.at_data(asked)}

    def _set_exception_breakpoints(self, arguments: Mapping[str, Any]) -> Body:
        return {"breakpoints": self._breakpoints.at_faults(texts(arguments, "filters"))}

    def _breakpoint_locations(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.lines import kernel_lines, statement_lines

        source: dict[str, Any] = required(arguments, "source", dict)
        file = os.path.abspath(required(source, "path", str))
        first = required(arguments, "line", int)
        last = optional(arguments, "endLine", first)
        kernels = kernel_lines(file)
        lines = sorted(n for n in statement_lines(file) if n in kernels and first <= n <= last)
        return {"breakpoints": [{"line": line} for line in lines]}

    def _data_breakpoint_info(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.dap.breakpoints import data_of_element, data_of_variable

        name = required(arguments, "name", str)
        reference = optional(arguments, "variablesReference", 0)
        if not reference:
            return self._info_of_text(name.strip(), optional(arguments, "frameId", 0))
        shown = self._part_named(reference, name)
        if shown is None or shown.place is None:
            return _no_data(f"{name} is neither a variable nor an element")
        variable, indices = shown.place
        text = f"{variable}[{', '.join(map(str, indices))}]" if indices else variable
        if not shown.is_memory or not indices:
            return _changes(data_of_variable(text), text)
        if shown.length:
            return _no_data(f"{text} is several elements: unfold it, or watch all of {variable}")
        return _accesses(data_of_element(text), text)

    def _info_of_text(self, text: str, number: int) -> Body:
        """Return the information on typed text: an element, a variable or an expression."""
        from tkdebug.debugger.dap.breakpoints import data_of_element, data_of_variable
        from tkdebug.debugger.elements import find_element, names_variable
        from tkdebug.debugger.expressions import EvaluationError, compile_expression

        try:
            compile_expression(text)
        except EvaluationError as error:
            return _no_data(str(error))
        if self._debuggee.stop is None:
            return _changes(data_of_variable(text), text)
        at = self._debuggee.at(number) if number else None

        def look(debugger: Debugger) -> Body:
            inspection = debugger.at_stop
            frame = max(at.frame, 0) if at is not None else 0
            if names_variable(inspection, text, frame):
                return self._info_of_expression(inspection, text, frame)
            try:
                element = str(find_element(inspection, text, frame))
            except UsageError:
                return self._info_of_expression(inspection, text, frame)
            return _accesses(data_of_element(element), element)

        return self._debuggee.at_stop(look)

    def _info_of_expression(self, inspection: Inspection, text: str, frame: int) -> Body:
        from tkdebug.debugger.dap.breakpoints import data_of_variable

        try:
            inspection.evaluate(text, frame)
        except UsageError as error:  # what has no value yet may have one later, an index never
            if isinstance(error.__cause__, IndexError):
                return _no_data(str(error))
        if not _is_known(inspection, text):
            return _no_data(f"{text} is neither a variable nor an element")
        return _changes(data_of_variable(text), text)

    def _part_named(self, reference: int, name: str) -> Shown | None:
        references = self._debuggee.references
        found = self._debuggee.at_stop(lambda _: references.parts(reference, 0, 0))
        return next((part for part in found if part.name == name), None)


def _is_known(inspection: Inspection, text: str) -> bool:
    """Whether all names of an expression are variables, arguments, globals or builtins."""
    from tkdebug.debugger.elements import argument_named

    code, arguments = inspection.code, inspection.launch.arguments
    variables = {name for mark in code.variables.marks for name in mark.names}
    known = {*variables, *_SPECIAL, *code.outside, *vars(builtins)}
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return all(name in known or argument_named(name, arguments) is not None for name in names)


def _no_data(why: str) -> Body:
    return {"dataId": None, "description": why}


def _changes(data: str, text: str) -> Body:
    """Return the answer for a variable or an expression, which can be watched for a change."""
    return {
        "dataId": data,
        "description": f"{text} changes",
        "accessTypes": ["write"],
        "canPersist": True,
    }


def _accesses(data: str, text: str) -> Body:
    """Return the answer for an element of a tensor, whose accesses can be watched."""
    return {
        "dataId": data,
        "description": text,
        "accessTypes": ["write", "read", "readWrite"],
        "canPersist": True,
    }


def _objects(items: Sequence[Any], name: str) -> list[Mapping[str, Any]]:
    for place, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise UsageError(f"`{name}[{place}]` is no object")
    return list(items)
