"""Capabilities of the adapter, as clients ask for them (Debug Adapter Protocol, `Capabilities`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tkdebug.debugger.dap.wire import optional
from tkdebug.errors import UsageError

FAULTS = "faults"
EXCEPTION_FILTERS = [
    {
        "filter": FAULTS,
        "label": "Faults of kernels",
        "description": "Stop where an access leaves its tensor, an assertion fails, …",
        "default": True,
    }
]


CAPABILITIES: dict[str, Any] = {
    "exceptionBreakpointFilters": EXCEPTION_FILTERS,
    "completionTriggerCharacters": ["."],
    **dict.fromkeys(
        (
            "supportsBreakpointLocationsRequest",
            "supportsCompletionsRequest",
            "supportsConditionalBreakpoints",
            "supportsConfigurationDoneRequest",
            "supportsDataBreakpoints",
            "supportsDisassembleRequest",
            "supportsEvaluateForHovers",
            "supportsExceptionInfoRequest",
            "supportsFunctionBreakpoints",
            "supportsGotoTargetsRequest",
            "supportsHitConditionalBreakpoints",
            "supportsInstructionBreakpoints",
            "supportsLogPoints",
            "supportsRestartFrame",
            "supportsSetExpression",
            "supportsSetVariable",
            "supportsStepBack",
            "supportsSteppingGranularity",
            "supportsTerminateRequest",
            "supportTerminateDebuggee",
            "supportsVariablePaging",
        ),
        True,
    ),
}


def capabilities_for(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to `initialize`, which is the same for all clients.

    Raises:
        UsageError: the client counts lines, or writes paths, otherwise than the adapter.
    """
    for name in ("linesStartAt1", "columnsStartAt1"):
        if not optional(arguments, name, True):
            raise UsageError(f"{name} is false, expected true")
    if optional(arguments, "pathFormat", "path") != "path":
        raise UsageError(f"pathFormat is {arguments['pathFormat']!r}, expected 'path'")
    return CAPABILITIES
