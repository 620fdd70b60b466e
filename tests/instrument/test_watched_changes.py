"""`tkdebug compare` of runs with watched values."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.comparison import compare
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.renderers.comparison_formats import comparison_json, comparison_text
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.watches.records import WatchedValue

VALUE = WatchedValue(
    watch="k.py:3:x",
    kernel="kernel",
    name="x",
    type="fp32[4]",
    frames=(Frame("k.py", 3, "kernel"),),
    launch_id=5,
    program_id=(0, 0, 0),
    iteration=0,
    shape=(4,),
    nan=0,
    inf=0,
    zeros=1,
    minimum=-2.0,
    maximum=4.0,
    mean=0.5,
    histogram=((1, 3),),
)


@pytest.fixture
def recorded(tmp_path):
    def recorded(name, *values):
        recorder = Recorder(tmp_path / name, script="k.py", argv=())
        recorder.start()
        for value in values:
            HOOKS.record(value)
        recorder.stop(0)
        return tmp_path / name

    return recorded


def compared(before, after):
    with Session.open(before) as old, Session.open(after) as new:
        comparison = compare(old, new)
        text = "".join(comparison_text(comparison, old, new))
        data = json.loads("".join(comparison_json(comparison, old, new)))
    return comparison.watched, text, data["watched_values"]


def test_values_that_are_the_same_in_other_launches(recorded):
    nan = replace(VALUE, program_id=(1, 0, 0), minimum=math.nan, maximum=math.nan, mean=math.nan)
    before = recorded("a.tkd", VALUE, nan)
    after = recorded("b.tkd", replace(VALUE, launch_id=9), replace(nan, launch_id=9))
    (change,), text, (data,) = compared(before, after)
    assert (change.compared, change.different, change.before) == (2, 0, None)
    assert "k.py:3 x of kernel: 2 values, the same in both" in text
    assert (data["different"], data["program_id"]) == (0, None)


def test_largest_difference_is_reported_with_its_place(recorded):
    later = replace(VALUE, iteration=1)
    before = recorded("a.tkd", VALUE, later)
    after = recorded("b.tkd", replace(VALUE, maximum=4.002), replace(later, mean=0.7))
    (change,), text, (data,) = compared(before, after)
    assert change.largest == pytest.approx(0.05)
    assert "2 of 2 values differ by up to 0.05 of their largest magnitude" in text
    assert "after:  launch 5, program 0, iteration 1: min -2, max 4, mean 0.7" in text
    assert (data["different"], data["iteration"]) == (2, 1)


def test_nan_in_one_run_alone_differs_most(recorded):
    before = recorded("a.tkd", VALUE, replace(VALUE, iteration=1))
    after = recorded("b.tkd", replace(VALUE, mean=9.0), replace(VALUE, iteration=1, nan=1))
    (change,), text, (data,) = compared(before, after)
    assert (change.largest, change.after.iteration) == (math.inf, 1)
    assert "2 of 2 values differ in NaNs or infinities" in text
    assert data["largest"] == "inf"


def test_variables_of_one_run_alone_are_left_out(recorded):
    assert compared(recorded("a.tkd"), recorded("b.tkd", VALUE))[0] == ()
