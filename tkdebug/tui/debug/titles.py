"""The rows above the Debug pane: where a launch is stopped, or why none is."""

from __future__ import annotations

from typing import Literal

from rich.text import Text

from tkdebug.debugger.remote.records import View
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.session.snapshot import ScriptState

_LONGEST_REASON = 60
# The exit status of a run that found faults and ended well otherwise.
_FAULTS_FOUND = 3


def stop_line(view: View, ahead: int = 0) -> Text:
    """Why it is stopped, which launch, how many programs are where.

    Args:
        view: of the stop.
        ahead: commands that wait for the next one.
    """
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("■ ", style=palette.FAULT)
    reason = "; ".join(view.reasons)
    if is_long(view):
        reason = f"{view.reasons[0]} (below)"
    if reason:
        text.append(f"{display.shown(reason, 200)}  ", style=palette.WARNING)
    if not view.kernel:
        text.append("the script's own lines", style=palette.STRONG)
        if view.launch:
            text.append(f", behind launch {view.launch}")
        text.append(_waiting(ahead), style=palette.WARNING)
        return text
    if not view.frames:
        text.append("ended  ", style=palette.WARNING)
    kernel = f"{display.shown(view.kernel, 60)} {display.grid(view.grid)}"
    text.append(f"launch {view.launch} of {kernel}", style=palette.STRONG)
    selected = "" if view.selection == "all programs" else f"{view.selection}; "
    text.append(f"  {selected}{display.shown(view.census, 300)}")
    text.append(_waiting(ahead), style=palette.WARNING)
    return text


def is_long(view: View) -> bool:
    """Whether the reasons of a stop would leave no room for where it is."""
    return sum(map(len, view.reasons)) > _LONGEST_REASON


def frames_line(view: View) -> Text:
    """The chain of calls, innermost first, the one that is looked at bright."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("in ", style=palette.MUTED)
    for depth, place in enumerate(reversed(view.frames)):
        text.append(" ← " if depth else "", style=palette.MUTED)
        style = palette.STRONG if depth == view.frame else palette.MUTED
        text.append(f"{display.shown(place.function, 60)}:{place.line}", style=style)
    text.append("   u d", style=palette.MUTED)
    return text


def why_nothing(
    phase: Literal["none", "before", "running", "stopped", "gone"],
    script: ScriptState,
    view: View | None,
    ahead: int = 0,
) -> Text:
    """Why no launch is stopped.

    Args:
        phase: how the debugger stands.
        script: how the script stands.
        view: the last stop; None where there was none.
        ahead: commands that wait for the next one.
    """
    match phase:
        case "running":
            said = f"running; P stops it{_waiting(ahead)}"
        case "gone" if script.phase == "signalled":
            said = f"the script was killed by signal {script.number}"
        case "gone" if not script.going_on and script.number not in (None, 0, _FAULTS_FOUND):
            said = f"the script has ended with exit status {script.number}; 4 Output says why"
        case "gone" if not script.going_on:
            said = "the script has ended"
        case "gone":
            said = "the debugger has gone: nothing stops any more"
        case "none":
            said = "a recorded run"
        case _:
            said = "nothing has stopped yet"
    if phase == "gone" and view is not None:
        said += "; below is where it was stopped last"
    return Text(said, style=palette.MUTED)


def _waiting(ahead: int) -> str:
    if not ahead:
        return ""
    return f"; {ahead} command{'s' * (ahead != 1)} for the next stop, Esc forgets"
