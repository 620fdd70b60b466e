"""What the adapter can do, as clients ask it (Debug Adapter Protocol, `Capabilities`)."""

from __future__ import annotations

from typing import Any

from tkdebug.debugger.dap.exception_filters import EXCEPTION_FILTERS

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
