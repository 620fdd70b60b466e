"""Reading a `.hatchet` file back, deriving further metrics, and its tree as text.

Responsible for sums towards the root, for choosing and deriving metrics by upstream's names
(`time/ms`, `tflop16/s`, `gbyte/s`, `util`, `time/%`…), and for leaving places out. In the text a
place is a line, its metrics before its name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tkdebug.instrument.profiling import ProfileError
from tkdebug.instrument.profiling.profiler import METADATA_STATE
from tkdebug.process.named_files import read_text
from tkdebug.terminal.text import visible

Devices = dict[str, dict[str, dict[str, Any]]]
_MAX_BYTES = 1 << 30
INCLUSIVE = " (inc)"
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_RATE = re.compile(r"([gt]?)(flop(?:8|16|32|64)?|byte)/s")
_TIME = re.compile(r"(avg_)?(cpu_)?time/(s|ms|us|ns)")
_PREFIX = {"": 1.0, "g": 1e9, "t": 1e12}
FRAME_FORMATS = ("full", "file_function_line", "function_line", "file_function")
_MAX_NAME_CHARS = 100


@dataclass(slots=True)
class ViewedPlace:
    """A place of a profile that was read.

    Attributes:
        values: its metrics in the file, then those that `derive` adds.
        children: the places below.
    """

    name: str
    values: dict[str, Any]
    children: list[ViewedPlace]

    def walk(self) -> Iterator[ViewedPlace]:
        """This place and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def number(self, name: str) -> float:
        """The value of a metric, NaN if it has none."""
        value = self.values.get(name)
        return float(value) if isinstance(value, (int, float)) else math.nan


@dataclass(slots=True)
class ViewedProfile:
    """A profile that was read.

    Attributes:
        inclusive: names of the metrics that add up towards the root.
        exclusive: names of the others.
        devices: facts by device type and index.
    """

    root: ViewedPlace
    inclusive: list[str]
    exclusive: list[str]
    devices: Devices

    def named(self, metric: str) -> str:
        """Return the name in the file of a metric given with or without its unit, in any case.

        Raises:
            ProfileError: there is no such metric.
        """
        wanted = metric.lower()
        for name in (*self.inclusive, *self.exclusive):
            if wanted in (name, bare_name(name)):
                return name
        names = ", ".join(map(bare_name, (*self.inclusive, *self.exclusive)))
        raise ProfileError(f"Metric {metric} is not found; the profile has {names or 'none'}")


def bare_name(name: str) -> str:
    """A metric's name in small letters and without its unit."""
    return name.split("(")[0].strip().lower()


def read_profile(path: str) -> ViewedProfile:
    """The profile in the file `path`, its inclusive metrics summed up.

    Raises:
        ProfileError: it cannot be read, or is not a profile.
    """
    root, devices = read_places(path)
    inclusive = list(root.values)
    names = dict.fromkeys(name for place in root.walk() for name in place.values)
    root.values = {}
    _sum_up(root, inclusive)
    return ViewedProfile(root, inclusive, [n for n in names if n not in inclusive], devices)


def read_places(path: str) -> tuple[ViewedPlace, Devices]:
    """The places of the profile in the file `path`, unchanged, and its devices.

    Raises:
        ProfileError: it cannot be read, or is not a profile.
    """
    try:
        database = json.loads(read_text(path, _MAX_BYTES))
        root = _place(database[0])
        devices = database[1] if len(database) > 1 else {}
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ProfileError(
            f"{path}: is not a profile ({type(error).__name__}: {error}); expected a .hatchet file"
        ) from error
    if root is None:
        raise ProfileError(f"{path}: nothing was measured")
    return root, devices


def _place(frame: dict[str, Any]) -> ViewedPlace | None:
    """Return a place and those below it; None if it holds nothing or only asks for metadata."""
    name, values = str(frame["frame"]["name"]), dict(frame["metrics"])
    given = frame.get("children", [])
    if name == METADATA_STATE or not (values or given):
        return None
    children = [child for child in map(_place, given) if child is not None]
    if given and not children:
        return None
    return ViewedPlace(name, values, children)


def _sum_up(place: ViewedPlace, inclusive: Sequence[str]) -> None:
    for child in place.children:
        _sum_up(child, inclusive)
    for name in inclusive:
        values = [p.number(name) for p in (place, *place.children)]
        known = [value for value in values if not math.isnan(value)]
        if known:
            place.values[name] = sum(known)


def derive(profile: ViewedProfile, metrics: Sequence[str]) -> list[str]:
    """Put `metrics` into each place, and return their names there.

    Raises:
        ProfileError: one does not follow from the profile's metrics.
    """
    return [_derive(profile, metric) for metric in metrics]


def _derive(profile: ViewedProfile, metric: str) -> str:
    rate, time = _RATE.fullmatch(metric), _TIME.fullmatch(metric)
    if metric == "util":
        seconds = _seconds_of(profile, "time")
        return _put(profile, metric, lambda p: _ratio(_least_seconds(profile, p), seconds(p)))
    if rate is not None:
        amount = profile.named("bytes" if rate[2] == "byte" else rate[2].replace("flop", "flops"))
        seconds, factor = _seconds_of(profile, "time"), _PREFIX[rate[1]]
        return _put(
            profile,
            metric + INCLUSIVE,
            lambda p: _ratio(_timed(p, amount, seconds), seconds(p)) / factor,
        )
    if time is not None:
        seconds, factor = _seconds_of(profile, f"{time[2] or ''}time"), _SECONDS[time[3]]
        if not time[1]:
            return _put(profile, metric + INCLUSIVE, lambda p: seconds(p) / factor)
        count = profile.named("count")
        return _put(
            profile, metric + INCLUSIVE, lambda p: _ratio(seconds(p), p.number(count)) / factor
        )
    return _share_or_plain(profile, metric)


def _timed(place: ViewedPlace, amount: str, seconds: Callable[[ViewedPlace], float]) -> float:
    """Return an inclusive metric of a place, without the share of places that have no time.

    Scopes around kernels of torch have none: their work would count without its time.
    """
    if math.isnan(seconds(place)):
        return math.nan
    left_out = 0.0
    for child in place.children:
        whole, timed = child.number(amount), _timed(child, amount, seconds)
        if not math.isnan(whole):
            left_out += whole - (0.0 if math.isnan(timed) else timed)
    return place.number(amount) - left_out


def _share_or_plain(profile: ViewedProfile, metric: str) -> str:
    base, slash, unit = metric.partition("/")
    name = profile.named(base)
    suffix = INCLUSIVE if name in profile.inclusive else ""
    if not slash:
        return _put(profile, name + suffix, lambda p: p.number(name))
    if unit != "%":
        raise ProfileError(f"Unsupported unit {unit} of metric {metric}; there is %")
    if suffix:
        total = profile.root.number(name)
    else:
        values = [place.number(name) for place in profile.root.walk()]
        total = sum(value for value in values if not math.isnan(value))
    return _put(profile, metric + suffix, lambda p: _ratio(p.number(name), total) * 100)


def _put(profile: ViewedProfile, name: str, compute: Callable[[ViewedPlace], float]) -> str:
    for place in profile.root.walk():
        place.values[name] = compute(place)
    return name


def _seconds_of(profile: ViewedProfile, metric: str) -> Callable[[ViewedPlace], float]:
    """Return a function that returns a metric of time at a place, in seconds."""
    name = profile.named(metric)
    unit = name.partition("(")[2].rstrip(")")
    factor = _SECONDS.get(unit, 1.0)
    return lambda place: place.number(name) * factor


def _ratio(value: float, by: float) -> float:
    return value / by if by else math.nan


def _least_seconds(profile: ViewedProfile, place: ViewedPlace) -> float:
    """Return the seconds of a place at the peak rates of its device; NaN for a scope."""
    kind, index = place.values.get("device_type"), place.values.get("device_id")
    facts = profile.devices.get(str(kind), {}).get(str(index))
    if facts is None:
        return math.nan
    flops_s = 0.0
    for width in WIDTHS:
        flops = place.number(f"flops{width}")
        if not math.isnan(flops):
            peak = max_flops(str(kind), facts["arch"], width, facts["num_sms"], facts["clock_rate"])
            flops_s += flops / peak
    moved = place.number("bytes")
    rate = max_bps(str(kind), facts["arch"], facts["bus_width"], facts["memory_clock_rate"])
    return max(flops_s, 0.0 if math.isnan(moved) else moved / rate)


def keep_places(
    profile: ViewedProfile,
    include: str | None,
    exclude: str | None,
    threshold: float | None,
    metric: str,
) -> None:
    """Drop places that are on no path through `include`, or are at or below `exclude`.

    Args:
        profile: changed in place.
        include: regular expression that names match from their beginning; None for all places.
        exclude: another such expression; a match removes the place and all below it.
        threshold: the minimum of `metric`, None or 0 for none; ancestors of places that reach it
            stay, too.
        metric: a derived metric.
    """
    root = profile.root
    if include:
        found = re.compile(include)
        root.children = _kept(root, lambda p: bool(found.match(p.name)), whole=True)
    if exclude:
        avoided = re.compile(exclude)
        for place in list(root.walk()):
            place.children = [c for c in place.children if not avoided.match(c.name)]
    if threshold:
        least = threshold
        root.children = _kept(root, lambda p: p.number(metric) >= least, whole=False)


def _kept(
    place: ViewedPlace, wanted: Callable[[ViewedPlace], bool], whole: bool
) -> list[ViewedPlace]:
    """Return the children that are wanted (`whole`: with all below) or are above wanted ones."""
    kept = []
    for child in place.children:
        is_wanted = wanted(child)
        if not (is_wanted and whole):
            child.children = _kept(child, wanted, whole)
        if is_wanted or child.children:
            kept.append(child)
    return kept


def tree_lines(
    profile: ViewedProfile, metrics: Sequence[str], depth: int, frame_format: str | None
) -> Iterator[str]:
    """Yield the lines of the tree, up to `depth` levels."""
    yield visible(_line(profile.root, metrics, frame_format))
    yield from _branch(profile.root, metrics, depth - 1, frame_format, "")


def _branch(
    place: ViewedPlace, metrics: Sequence[str], depth: int, frame_format: str | None, indent: str
) -> Iterator[str]:
    if depth <= 0:
        return
    for number, child in enumerate(place.children, 1):
        is_last = number == len(place.children)
        line = _line(child, metrics, frame_format)
        yield visible(f"{indent}{'└─' if is_last else '├─'} {line}")
        below = indent + ("   " if is_last else "│  ")
        yield from _branch(child, metrics, depth - 1, frame_format, below)


def _line(place: ViewedPlace, metrics: Sequence[str], frame_format: str | None) -> str:
    values = " ".join(_number(place.number(metric)) for metric in metrics)
    return f"{values} {frame_name(place.name, frame_format)}"


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.3f}"


def frame_name(name: str, frame_format: str | None) -> str:
    """The name of a place; of a call (`file:line@function`), the parts that are asked for."""
    match frame_format:
        case "file_function_line":
            return name.split("/")[-1]
        case "function_line":
            return name.split(":")[-1]
        case "file_function":
            file, function = name.split("/")[-1].split(":")[0], name.split("@")[-1].split(":")[0]
            return f"{file}@{function}"
        case _:
            return name


def sorted_lines(profile: ViewedProfile, metric: str) -> Iterator[str]:
    """Yield a title, and a line for each place but the root that has the metric, highest first."""
    yield f"Sorted kernels by metric {metric}"
    places = [place for place in profile.root.walk() if place is not profile.root]
    known = [place for place in places if not math.isnan(place.number(metric))]
    for place in sorted(known, key=lambda p: p.number(metric), reverse=True):
        name = place.name
        if len(name) > _MAX_NAME_CHARS:
            name = name[:_MAX_NAME_CHARS] + "..."
        yield visible(f"{name:105} {place.number(metric):.4}")


def metric_lines(profile: ViewedProfile) -> Iterator[str]:
    """Yield the names of the metrics."""
    yield "Available inclusive metrics:"
    yield from (visible(f"- {bare_name(name)}") for name in profile.inclusive)
    yield "Available exclusive metrics:"
    yield from (visible(f"- {bare_name(name)}") for name in profile.exclusive)


# Peak rates of NVIDIA's GPUs with tensor cores, as their data sheets give them (dense).
WIDTHS = (8, 16, 32, 64)
_A100_FLOPS8 = 624e12
_L40_FLOPS8 = 330.3e12
# An H100 PCIe: 1513 TFLOP/s of fp8 with 114 multiprocessors at 1755 MHz.
_H100_FLOPS8, _H100_SMS, _H100_KHZ = 1513e12, 114, 1755e3
# fp8 operations that a multiprocessor of Blackwell makes in a cycle.
_BLACKWELL_FLOPS8 = 16384


def max_flops(device_type: str, arch: str, width: int, num_sms: int, clock_rate: float) -> float:
    """Return the most operations a second on numbers of `width` bits.

    Args:
        device_type: CUDA.
        arch: compute capability times ten, as text.
        width: the width of the numbers in bits.
        num_sms: multiprocessors.
        clock_rate: in kHz.

    Raises:
        ProfileError: no peak is known.
    """
    if device_type != "CUDA":
        raise ProfileError(f"Unsupported device type: {device_type}; peak rates are known of CUDA")
    match str(arch):
        case "80":
            flops8 = _A100_FLOPS8
        case "89":
            flops8 = _L40_FLOPS8
        case "90":
            flops8 = _H100_FLOPS8 * (num_sms / _H100_SMS) * (clock_rate / _H100_KHZ)
        case "100":
            flops8 = num_sms * _BLACKWELL_FLOPS8 * clock_rate * 1e3
        case _:
            raise ProfileError(
                f"Unsupported architecture: {arch}; peak rates are known of 80, 89, 90, 100"
            )
    return flops8 * 8 / width


def max_bps(device_type: str, arch: str, bus_width: int, memory_clock_rate: float) -> float:
    """Return the most bytes a second from memory.

    Args:
        device_type: CUDA.
        arch: compute capability times ten, as text.
        bus_width: the width of the memory bus in bits.
        memory_clock_rate: in kHz; two bits are moved on each line in a cycle.

    Raises:
        ProfileError: no peak is known.
    """
    if device_type != "CUDA":
        raise ProfileError(f"Unsupported device type: {device_type}; peak rates are known of CUDA")
    return 2 * bus_width * memory_clock_rate * 1e3 / 8
