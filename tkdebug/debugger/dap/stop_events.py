"""The `stopped` event of a stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.programs import Census
from tkdebug.debugger.stops import Reason, Stop

_REASONS = {
    Reason.ENTRY: "entry",
    Reason.STEP: "step",
    Reason.BREAKPOINT: "breakpoint",
    Reason.WATCH: "data breakpoint",
    Reason.CALL: "breakpoint",
    Reason.FAULT: "exception",
    Reason.PAUSE: "pause",
    Reason.ARRIVED: "goto",
    Reason.BEGINNING: "step",
    Reason.END: "step",
}
_BY_KIND = {
    BreakKind.FUNCTION: "function breakpoint",
    BreakKind.FAULT: "exception",
    BreakKind.WRITE: "data breakpoint",
    BreakKind.READ: "data breakpoint",
}
_DESCRIPTIONS = {
    Reason.ENTRY: "the launch begins",
    Reason.BEGINNING: "the beginning of the launch",
    Reason.END: "the launch has ended",
    Reason.CALL: "breakpoint() in the kernel",
}


def stopped_event(
    stop: Stop, thread: int, kinds: Sequence[BreakKind], census: Census
) -> dict[str, Any]:
    """The body of the event.

    Args:
        stop: the stop.
        thread: the protocol's number of the thread to look at.
        kinds: the kinds of the breakpoints that were met.
        census: the places of the programs.
    """
    reason = next((_BY_KIND[kind] for kind in kinds if kind in _BY_KIND), _REASONS[stop.reason])
    text = "\n".join((*stop.detail, census.text()))
    body: dict[str, Any] = {
        "reason": reason,
        "description": _DESCRIPTIONS.get(stop.reason, f"stopped: {reason}"),
        "text": text,
        "threadId": thread,
        "allThreadsStopped": True,
    }
    if stop.breakpoints:
        body["hitBreakpointIds"] = list(stop.breakpoints)
    return body
