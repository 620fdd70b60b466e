"""The files that profiling sessions leave behind, in Proton's formats.

`hatchet` is a JSON list of two: the tree of places (frame, metrics, children), whose root names the
metrics that add up towards the root, and the devices. `chrome_trace` is Google's "Trace Event
Format". Both as `proton-viewer` and Perfetto read them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tkdebug.instrument.profiling import ProfileError
from tkdebug.instrument.profiling.profile import ROOT_NAME, Place, Profile
from tkdebug.instrument.profiling.profiler import DeviceFacts
from tkdebug.instrument.text_forms import json_text
from tkdebug.process.named_files import write_whole

FORMAT_OF_DATA: Mapping[str, str] = {"tree": "hatchet", "trace": "chrome_trace"}
TIME, COUNT, DEVICE_INDEX, DEVICE_TYPE = "time (ns)", "count", "device_id", "device_type"
# Interpreted launches ran on no device whose peak rate is known.
_NO_DEVICE = {
    "arch": "interpret",
    "clock_rate": 0,
    "memory_clock_rate": 0,
    "bus_width": 0,
    "num_sms": 0,
}


def check_format(profile: Profile, output_format: str) -> str:
    """The format that `profile` is written in.

    Raises:
        ProfileError: it cannot be written in `output_format`.
    """
    fitting = FORMAT_OF_DATA[profile.kind]
    if output_format in ("", fitting):
        return fitting
    if output_format in FORMAT_OF_DATA.values():
        raise ProfileError(
            f"session {profile.name!r} was started with data={profile.kind!r}, which is written as "
            f"{fitting!r}; got output_format={output_format!r}"
        )
    raise ProfileError(
        f"Unknown output format: {output_format}; there are {', '.join(FORMAT_OF_DATA.values())}"
    )


def write_profile(profile: Profile, output_format: str, devices: DeviceFacts) -> None:
    """Write what `profile` measured into a file of its name, or on stdout for the name `-`.

    Raises:
        ProfileError: the file cannot be written.
    """
    if output_format == "hatchet":
        text = f"\n{json_text(hatchet(profile.tree, devices), indent=4, sort_keys=True)}\n"
    else:
        text = json_text(chrome_trace(profile)) + "\n"
    if profile.name in ("", "-"):
        sys.stdout.write(text)
        return
    path = Path(f"{profile.name}.{output_format}")
    try:
        write_whole(path, [text])
    except OSError as error:
        raise ProfileError(
            f"{path}: profile cannot be written ({error.strerror}); give proton.start another name"
        ) from error


def hatchet(tree: Place, devices: DeviceFacts) -> list[dict[str, object]]:
    """The tree and its devices, as a `.hatchet` file has them."""
    inclusive: set[str] = set()
    root = _frame(tree, inclusive)
    used = {place.device for place in tree.walk() if place.device is not None}
    root["metrics"] = {**_metrics(tree, inclusive), **dict.fromkeys(sorted(inclusive), 0)}
    facts: dict[str, object] = {}
    for kind in sorted({device.type for device in used}):
        facts[kind] = {
            device.index: _NO_DEVICE if kind == "CPU" else dict(devices(int(device.index)))
            for device in used
            if device.type == kind
        }
    return [root, facts]


def _frame(place: Place, inclusive: set[str]) -> dict[str, object]:
    return {
        "frame": {"name": place.name, "type": "function"},
        "metrics": _metrics(place, inclusive),
        "children": [_frame(place.children[name], inclusive) for name in sorted(place.children)],
    }


def _metrics(place: Place, inclusive: set[str]) -> dict[str, object]:
    metrics: dict[str, object] = {}
    if place.device is not None:
        metrics = {
            COUNT: place.launches,
            TIME: place.time_ns,
            DEVICE_INDEX: place.device.index,
            DEVICE_TYPE: place.device.type,
        }
        inclusive |= {COUNT, TIME}
    for metric in place.metrics.values():
        value = metrics[metric.name] = metric.value()
        # Viewers add up what is called inclusive, and can add up numbers only.
        if metric.inclusive and isinstance(value, (int, float)):
            inclusive.add(metric.name)
    return metrics


def chrome_trace(profile: Profile) -> dict[str, object]:
    """The launches as a Chrome trace: a track per stream, times since the first in microseconds.

    When a kernel began is not measured: it is taken to begin when it was launched, or when the one
    before it on its stream was done.
    """
    free_ns: dict[int, int] = {}
    first_ns = min((event.start_ns for event in profile.events), default=0)
    events: list[dict[str, object]] = []
    for event in profile.events:
        start_ns = max(event.start_ns, free_ns.get(event.stream, 0))
        free_ns[event.stream] = start_ns + event.duration_ns
        events.append(
            {
                "name": event.path[-1],
                "cat": "kernel",
                "ph": "X",
                "ts": (start_ns - first_ns) / 1e3,
                "dur": event.duration_ns / 1e3,
                "tid": event.stream,
                "args": {"call_stack": [ROOT_NAME, *event.path]},
            }
        )
    return {"displayTimeUnit": "us", "traceEvents": events}
