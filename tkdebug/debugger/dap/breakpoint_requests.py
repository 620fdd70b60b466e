"""Requests that set breakpoints, or ask where some can be."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.dap.arguments import optional, required, texts
from tkdebug.debugger.dap.debuggee import Debuggee
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.dap.breakpoints import Breakpoints

Body = Mapping[str, Any] | None


class BreakpointRequests:
    """Sets breakpoints as a client asks.

    Args:
        debuggee: whose launches they stop.
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
        place = self._place_named(optional(arguments, "variablesReference", 0), name)
        if place is None:
            return {"dataId": None, "description": f"{name} is neither a variable nor an element"}
        variable, indices = place
        if not indices:
            return {
                "dataId": data_of_variable(variable),
                "description": f"{variable} changes",
                "accessTypes": ["write"],
                "canPersist": True,
            }
        data = data_of_element(variable, indices)
        return {
            "dataId": data,
            "description": data.partition(":")[2],
            "accessTypes": ["write", "read", "readWrite"],
            "canPersist": True,
        }

    def _place_named(self, reference: int, name: str) -> tuple[str, tuple[int, ...]] | None:
        if not reference:
            return (name, ())
        for part in self._debuggee.at_stop(
            lambda _: self._debuggee.references.parts(reference, 0, 0)
        ):
            if part.name == name:
                return part.place
        return None


def _objects(items: Sequence[Any], name: str) -> list[Mapping[str, Any]]:
    for place, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise UsageError(f"`{name}[{place}]` is no object")
    return list(items)
