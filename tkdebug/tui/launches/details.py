"""The details of a launch as text: options, arguments with their types and shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from tkdebug.instrument.records import SCOPE_SEPARATOR, Launch
from tkdebug.records.events import ArgumentInfo, AutotuneChoice
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.session.snapshot import FaultGroup

MAX_SHOWN_ITEMS = 200
MAX_SHOWN_TUNINGS = 20
MAX_SHOWN_FAULTS = 5
_TIME_SOURCES = {
    "cupti": "by CUPTI",
    "events": "by CUDA events, less what an empty kernel takes between them",
    "events-at-most": "by CUDA events: at most, since the GPU waited for the host",
    "host": "of the host",
    "none": "none: it was made part of a CUDA graph, or no record of it came",
}


def launch_text(
    launch: Launch,
    tunings: Sequence[AutotuneChoice] = (),
    faults: Sequence[FaultGroup] = (),
    inside: Sequence[str] = (),
) -> Text:
    """The details of a launch.

    Args:
        launch: the launch.
        tunings: the choices of its kernel's autotuner, the latest first.
        faults: its kernel's faults, if it had any.
        inside: lines of where its time went, if it has timelines.
    """
    text = Text(overflow="fold")
    text.append(display.shown(launch.kernel, 200), style=palette.STRONG)
    programs = launch.grid[0] * launch.grid[1] * launch.grid[2]
    plural = "" if programs == 1 else "s"
    text.append(f"  launch {launch.id}  grid {display.grid(launch.grid)}", style=palette.LABEL)
    text.append(f" ({display.count(programs)} program{plural})", style=palette.MUTED)
    if launch.duration_ns is not None:
        text.append(f"  {display.duration(launch.duration_ns)}")
    text.append("\n")
    if launch.scopes:
        path = SCOPE_SEPARATOR.join(launch.scopes)
        text.append("in ", style=palette.LABEL)
        text.append(f"{display.shown(path, 1000)}\n")
    if launch.error is not None:
        text.append(f"{display.shown(launch.error, 2000)}\n", style=palette.FAULT)
    for group in faults[:MAX_SHOWN_FAULTS]:
        _append_fault(text, group)
    if len(faults) > MAX_SHOWN_FAULTS:
        text.append(f"… and {display.count(len(faults) - MAX_SHOWN_FAULTS)} more\n")
    if faults:
        text.append("x: all about it\n\n", style=palette.MUTED)
    append_arguments(text, launch)
    if inside:
        text.append("\ninside\n", style=palette.STRONG)
        for line in inside:
            text.append(f"{display.shown(line, 300)}\n")
    text.append("\noptions\n", style=palette.STRONG)
    for label, value in _options(launch):
        text.append(f"{label:<14}", style=palette.LABEL)
        text.append(f"{value}\n")
    for tuning in list(reversed(tunings))[:MAX_SHOWN_TUNINGS]:
        _append_tuning(text, tuning)
    if len(tunings) > MAX_SHOWN_TUNINGS:
        left = display.count(len(tunings) - MAX_SHOWN_TUNINGS)
        text.append(f"… and for {left} more keys\n", style=palette.MUTED)
    return text


def append_arguments(text: Text, launch: Launch) -> None:
    """Append a line for each argument: name, type, and value or shape."""
    if not launch.arguments:
        text.append("no arguments\n", style=palette.MUTED)
    width = min(24, max((len(a.name) for a in launch.arguments), default=0))
    for argument in launch.arguments[:MAX_SHOWN_ITEMS]:
        text.append(f"{display.shown(argument.name, 24):<{width}}  ", style=palette.LABEL)
        text.append(f"{_argument(argument)}\n")
    if len(launch.arguments) > MAX_SHOWN_ITEMS:
        text.append(f"… and {len(launch.arguments) - MAX_SHOWN_ITEMS} more\n", style=palette.MUTED)


def _append_fault(text: Text, group: FaultGroup) -> None:
    fault = group.first.event
    mark, style = palette.mark_of(fault)
    text.append(f"{mark} {display.shown(fault.kind, 30)}", style=style)
    if fault.frames:
        text.append(f"  {display.place(fault.frames[-1])}", style=palette.STRONG)
    text.append(f"  {display.shown(fault.message, 300)}\n")


def _append_tuning(text: Text, tuning: AutotuneChoice) -> None:
    text.append("\nautotuned", style=palette.STRONG)
    text.append(f" for {display.shown(tuning.key, 200)}\n")
    if not tuning.timings_ms:
        text.append(f"{display.shown(tuning.config, 300)}  ")
        text.append("not timed: interpreted\n", style=palette.MUTED)
    for config, time_ns in tuning.ranked[:MAX_SHOWN_ITEMS]:
        time = display.duration(time_ns) if math.isfinite(time_ns) else "failed"
        chosen = config == tuning.config
        text.append(f"{'✓' if chosen else ' '} {time:>8}  ", style=palette.GOOD if chosen else "")
        text.append(f"{display.shown(config, 300)}\n")


def _options(launch: Launch) -> Iterator[tuple[str, str]]:
    for name, value in list(launch.options.items())[:MAX_SHOWN_ITEMS]:
        yield display.shown(name, 30), display.shown(str(value), 200)
    if launch.time_source is not None:
        yield "time", _TIME_SOURCES.get(launch.time_source, display.shown(launch.time_source, 40))
    yield "mode", display.shown(launch.mode, 40)
    yield "process", f"{launch.process}  rank {launch.rank}  stream {launch.stream}"


def _argument(argument: ArgumentInfo) -> str:
    kind = display.shown(argument.type, 60)
    if argument.shape is None:
        return f"{kind} = {display.shown(argument.value, 200)}"
    shape = ", ".join(map(str, argument.shape))
    text = f"{kind} [{shape}]"
    if argument.strides is not None and not _contiguous(argument.shape, argument.strides):
        text += f" strides [{', '.join(map(str, argument.strides))}]"
    if argument.value and not argument.value.startswith("a tensor of "):  # the type says so
        text += f"  {argument.value}"
    return display.shown(text, 300)


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
