"""The viewer of profiles: sums, derived metrics, what is left out, and the text."""

import json
import math

import pytest

from tkdebug.instrument.profiling import ProfileError
from tkdebug.instrument.profiling.viewer import (
    derive,
    frame_name,
    keep_places,
    max_bps,
    max_flops,
    metric_lines,
    read_profile,
    sorted_lines,
    tree_lines,
)

GPU = {
    "arch": "90",
    "num_sms": 114,
    "clock_rate": 1755e3,
    "memory_clock_rate": 1e6,
    "bus_width": 4000,
}


def frame(name, children=(), **metrics):
    named = {key.replace("_ns", " (ns)"): value for key, value in metrics.items()}
    kind = {"name": name, "type": "function"}
    return {"frame": kind, "metrics": named, "children": list(children)}


def kernel(name, time_ns, count=1, **metrics):
    device = {"device_id": "0", "device_type": "CUDA"}
    return frame(name, time_ns=time_ns, count=count, **device, **metrics)


@pytest.fixture
def profile(tmp_path):
    asked = frame("__proton_launch_metadata", [kernel("reduce", 7)])
    tree = frame(
        "ROOT",
        [
            frame("bench", [kernel("slow", 3000, 2, flops16=6e6), kernel("fast", 1000)]),
            # Work of torch's, whose time is not known.
            frame("torch", flops16=1e9),
            frame("idle"),
            frame("asking", [asked]),
        ],
        time_ns=0,
        count=0,
        flops16=0,
    )
    path = tmp_path / "p.hatchet"
    path.write_text(json.dumps([tree, {"CUDA": {"0": GPU}}]))
    return read_profile(str(path))


def values(profile, name):
    return {place.name: place.number(name) for place in profile.root.walk()}


def test_inclusive_metrics_are_summed_and_empty_places_left_out(profile):
    times = values(profile, "time (ns)")
    assert math.isnan(times.pop("torch"))
    assert times == {"ROOT": 4000, "bench": 4000, "slow": 3000, "fast": 1000}
    assert list(metric_lines(profile)) == [
        "Available inclusive metrics:",
        "- time",
        "- count",
        "- flops16",
        "Available exclusive metrics:",
        "- device_id",
        "- device_type",
    ]


def test_times_and_shares(profile):
    assert derive(profile, ["time/us", "avg_time/us", "time/%", "COUNT"]) == [
        "time/us (inc)",
        "avg_time/us (inc)",
        "time/% (inc)",
        "count (inc)",
    ]
    assert values(profile, "time/us (inc)")["bench"] == pytest.approx(4)
    assert values(profile, "avg_time/us (inc)")["slow"] == pytest.approx(1.5)
    assert values(profile, "time/% (inc)")["slow"] == pytest.approx(75)


def test_rates_do_not_count_work_whose_time_is_not_known(profile):
    (name,) = derive(profile, ["tflop16/s"])
    rates = values(profile, name)
    assert rates["slow"] == pytest.approx(6e6 / 3e-6 / 1e12)
    assert rates["bench"] == rates["ROOT"] == pytest.approx(6e6 / 4e-6 / 1e12)
    assert math.isnan(rates["torch"])


def test_util_is_of_the_devices_peak(profile):
    (name,) = derive(profile, ["util"])
    peak = max_flops("CUDA", "90", 16, 114, 1755e3)
    assert peak == pytest.approx(1513e12 / 2)
    assert values(profile, name)["slow"] == pytest.approx(6e6 / peak / 3e-6)
    assert math.isnan(values(profile, name)["bench"])
    assert max_bps("CUDA", "90", 4000, 1e6) == pytest.approx(1e12)
    with pytest.raises(ProfileError, match="Unsupported device type: CPU"):
        max_flops("CPU", "interpret", 16, 1, 1)


@pytest.mark.parametrize(
    ("include", "exclude", "threshold", "left"),
    [
        ("sl", None, None, ["ROOT", "bench", "slow"]),
        ("ben", None, None, ["ROOT", "bench", "slow", "fast"]),
        (None, "slow|torch", None, ["ROOT", "bench", "fast"]),
        (None, None, 2.0, ["ROOT", "bench", "slow"]),
    ],
)
def test_places_are_chosen_by_name_and_value(profile, include, exclude, threshold, left):
    (name,) = derive(profile, ["time/us"])
    keep_places(profile, include, exclude, threshold, name)
    assert [place.name for place in profile.root.walk()] == left


def test_text(profile):
    names = derive(profile, ["time/us", "count"])
    assert list(tree_lines(profile, names, 3, None)) == [
        "4.000 3.000 ROOT",
        "├─ 4.000 3.000 bench",
        "│  ├─ 3.000 2.000 slow",
        "│  └─ 1.000 1.000 fast",
        "└─ nan nan torch",
    ]
    assert len(list(tree_lines(profile, names, 2, None))) == 3
    ordered = [line.split()[0] for line in sorted_lines(profile, names[0])][1:]
    assert ordered == ["bench", "slow", "fast"]


def test_calls_are_named_by_the_parts_asked_for():
    call = "/a/b/file.py:12@function"
    assert frame_name(call, "full") == call
    assert frame_name(call, "file_function_line") == "file.py:12@function"
    assert frame_name(call, "function_line") == "12@function"
    assert frame_name(call, "file_function") == "file.py@function"


def test_names_cannot_move_the_cursor(tmp_path):
    path = tmp_path / "p.hatchet"
    tree = frame("ROOT", [kernel("evil\x1b[2J", 5)], time_ns=0)
    path.write_text(json.dumps([tree, {}]))
    read = read_profile(str(path))
    lines = list(tree_lines(read, derive(read, ["time/ns"]), 9, None))
    assert lines[1] == "└─ 5.000 evil\\x1b[2J"


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '[{"frame": 1}]', "[" * 100_000])
def test_what_is_no_profile_is_reported(tmp_path, text):
    path = tmp_path / "p.hatchet"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"p\.hatchet: is not a profile"):
        read_profile(str(path))


def test_missing_file_metric_and_unit_are_reported(profile, tmp_path):
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(str(tmp_path / "nosuch.hatchet"))
    with pytest.raises(ProfileError, match="Metric bytes is not found; the profile has time, cou"):
        derive(profile, ["gbyte/s"])
    with pytest.raises(ProfileError, match="Unsupported unit kg of metric time/kg"):
        derive(profile, ["time/kg"])
