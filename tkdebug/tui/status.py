"""The status line: the script, its state, the number of records."""

from __future__ import annotations

import signal
import time

from rich.text import Text

from tkdebug.tui.drawing import display, palette
from tkdebug.tui.session.snapshot import ScriptState, Snapshot


def status_line(
    snapshot: Snapshot | None,
    state: ScriptState,
    failure: str,
    waits: str = "",
    *,
    is_stopped: bool = False,
) -> Text:
    """Return the status line.

    Args:
        snapshot: the records so far, None before the session is there.
        state: the state of the script.
        failure: why the session cannot be read, empty when it can.
        waits: what to do when the script waits for it, empty if it does not.
        is_stopped: whether the debugger has stopped it.
    """
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append("tkdebug ", style=palette.STRONG)
    if snapshot is not None:
        line.append(f"{display.file_name(snapshot.run.script)}  ")
    if failure:  # what else is known of it is old
        line.append(f"✖ cannot be read: {failure}", style=palette.FAULT)
        return line
    bad = 0 if snapshot is None else snapshot.failing
    if bad and state.phase == "ended" and state.number == 0:
        # A recorded run has the script's own status, which knows nothing of faults.
        line.append("✖ ended, faults (the script: exit 0)", style=palette.FAULT)
    elif is_stopped and state.going_on:
        line.append("■ stopped in the debugger", style=palette.WARNING)
    elif waits:
        line.append(f"▶ {waits}", style=palette.WARNING)
    else:
        line.append(*state_text(state))
    if snapshot is not None:
        elapsed_ns = (snapshot.run.end_ns or time.time_ns()) - snapshot.run.start_ns
        if state.going_on or snapshot.run.end_ns is not None:
            line.append(f" {display.duration(elapsed_ns)}", style=palette.MUTED)
        line.append(f"  {_plural(snapshot.launch_count, 'launch', 'launches')}")
        line.append("  ")
        line.append(
            _plural(bad, "fault", "faults", snapshot.more), style=palette.FAULT if bad else ""
        )
        if snapshot.warnings:
            line.append(
                f"  {_plural(snapshot.warnings, 'warning', 'warnings')}", style=palette.WARNING
            )
        line.append(f"  {display.shown(snapshot.run.mode, 20)}", style=palette.MUTED)
    else:
        line.append(
            "   waiting for the recording to begin"
            if state.going_on
            else "   nothing was recorded",
            style=palette.MUTED,
        )
    return line


def state_text(state: ScriptState) -> tuple[str, str]:
    """Return the state of the script in words, and its colour."""
    match state.phase:
        case "starting":
            return "◌ starting", palette.MUTED
        case "running":
            where = f" (process {state.process})" if state.process is not None else ""
            return f"▶ running{where}", palette.RUNNING
        case "signalled":
            return f"✖ killed by signal {state.number}{_signal_name(state.number)}", palette.FAULT
        case "unended":
            return "✖ no end recorded: it was killed or crashed", palette.FAULT
        case "ended":
            return _ended(state.number)


def _ended(number: int | None) -> tuple[str, str]:
    if number is None:
        return "■ ended", palette.MUTED
    if number == 0:
        return "✓ ended (exit 0)", palette.GOOD
    if number == 130:
        return "■ interrupted (exit 130)", palette.WARNING
    if number == 3:
        return "✖ ended, faults (exit 3)", palette.FAULT
    return f"✖ failed (exit {number})", palette.FAULT


def _signal_name(number: int | None) -> str:
    try:
        return f" ({signal.Signals(number or 0).name})"
    except ValueError:
        return ""


def _plural(number: int, one: str, many: str, more: str = "") -> str:
    return f"{display.count(number)}{more} {one if number == 1 and not more else many}"
