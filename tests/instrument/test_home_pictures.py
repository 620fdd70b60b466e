"""Pictures of kernels: layouts as the compiler defines them, warps in time, roofs."""

from dataclasses import replace

import pytest
from test_home_model import EXTENT

from tkdebug.advice.records import LaunchCost
from tkdebug.compiler.layouts import LinearLayout
from tkdebug.errors import Frame
from tkdebug.instrument.analyses.timelines import LaunchTimeline
from tkdebug.instrument.home.kernel_pictures import (
    layout_picture,
    layouts_of,
    roofline,
    warps_picture,
)
from tkdebug.instrument.home.pictures import Box, Dot, Text, fault_pictures
from tkdebug.timelines import ClockSite, WarpTimeline

# The accumulator of mma.sync m16n8 over 32 by 8 elements (PTX ISA, "Matrix Fragments for mma").
MMA = (
    "#layout3 = #ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], "
    "[4, 0]], warp = [[16, 0]], block = []}>"
)
COST = LaunchCost(
    *("k", "h", 1, "k.py", 1, (1, 1, 1), "sm_90a", "H100", "by its data sheet"),
    *(1000, 1000, 0, 4000, 0, 10.0, 20.0, 5.0, "memory", 0.9, 50.0, ("registers",), True, {}),
    ceilings_per_s={"memory": 2e12, "fp32": 8e12},
)


def test_a_layout_gives_each_element_the_lane_that_holds_it():
    (layout,) = layouts_of(MMA)
    assert layout.shape == (32, 8)
    owners = {place: (warp, lane) for place, warp, lane, _ in layout.owners()}
    # A lane has two neighbours of a row, and the same eight rows below.
    assert owners[0, 0] == owners[0, 1] == owners[8, 0] == (0, 0)
    assert owners[0, 2] == (0, 1)
    assert owners[1, 0] == (0, 4)
    assert owners[16, 0] == (1, 0)
    assert len(owners) == 32 * 8


def test_a_layout_is_that_of_the_compiler():
    (layout,) = layouts_of(MMA)
    bases = {"register": layout.register, "lane": layout.lane, "warp": layout.warp}
    made = LinearLayout.of(bases, {"rows": 32, "columns": 8})
    for place, warp, lane, register in layout.owners():
        found = made.apply({"register": register, "lane": lane, "warp": warp})
        assert tuple(found.values()) == place


def test_a_layout_is_drawn_by_warp_and_lane():
    picture = layout_picture(next(layouts_of(MMA)))
    boxes = [mark for mark in picture.marks if isinstance(mark, Box)]
    assert {box.role for box in boxes} == {"a"}  # the first 16 rows are one warp's
    assert boxes[0].title == "[0, 0]: warp 0, lane 0, 2 registers from 0"
    assert "A thread holds 4 elements, 2 next to each other." in picture.caption


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tt.func @k",
        MMA.replace("[0, 1]", "[0, -1]"),
        MMA.replace("[0, 1]", "[0]"),
        MMA.replace("[0, 1]", "[0, 99999999999]"),
        MMA.replace("[[16, 0]]", "[" + ", ".join(["[0, 0]"] * 30) + "]"),
        MMA.replace("[[16, 0]]", "[[16, 0"),
        MMA.replace("linear", "shared_linear"),
    ],
)
def test_definitions_that_are_no_layouts_are_left_out(text):
    assert list(layouts_of(text)) == []


def warp(number, *marks, end=1000):
    sites = tuple(ClockSite("tt.load", 0, (Frame("k.py", line, "k"),)) for line in (3, 7))
    return WarpTimeline("k", 1, (1, 1, 1), 0, number, 0, 0, 1000, 0, end, sites, marks, 0)


def test_warps_are_drawn_by_the_line_that_takes_most_of_a_pixel():
    timeline = LaunchTimeline(1, 1, "k", (warp(0, (100, 0), (600, 1)), warp(1, (500, 1))), 0, 1.0)
    picture = warps_picture(timeline)
    boxes = [mark for mark in picture.marks if isinstance(mark, Box) and mark.title]
    assert [(box.title, round(box.width)) for box in boxes] == [
        ("before its first op", 36),
        ("line 3", 180),
        ("line 7", 144),
        ("before its first op", 180),
        ("line 7", 180),
    ]
    assert [m.text for m in picture.marks if isinstance(m, Text)][-2:] == [
        "1,000 cycles",
        "program.warp",
    ]


def test_a_roof_is_that_of_the_prediction_s_ceilings():
    picture = roofline(COST, "k", None)
    assert picture is not None
    # 2 flops a byte at 2 TB/s allow 4 TFLOP/s; 4,000 flops in 20 ns are 0.2.
    assert picture.caption.startswith(
        "5 % of its roof, predicted: 0.2 of 4 TFLOP/s at 2 flop a byte"
    )
    assert any(isinstance(mark, Dot) for mark in picture.marks)
    assert roofline(replace(COST, ceilings_per_s={}), "k", None) is None


def test_a_tensor_of_one_axis_is_a_row_of_elements():
    extent = replace(
        EXTENT,
        shape=(1000,),
        strides=(1,),
        allocation_elems=4000,
        low=1000,
        high=1023,
        tile=(256,),
        tile_start=768,
        tile_steps=(1,),
        boxes=(((232, 256),),),
        bad_elems=24,
        programs=((3, 1, 24),),
        bad_programs=1,
        rounds=(),
    )
    tensor, tile, grid = fault_pictures(extent, "x", 1000, (232,), (3, 0, 0), (4, 1, 1))
    assert tensor.caption == (
        "Elements 1,000 to 1,023 are past its end, in its allocation of 4,000 elements all the "
        "same."
    )
    assert tile.caption == "24 of 256 elements are outside: 232 to 255."
    assert grid.caption == "1 of 4 programs: the last."


def test_columns_and_elements_before_the_first_are_named():
    columns = replace(EXTENT, boxes=(((0, 32), (60, 64)),), bad_elems=128, rounds=())
    before = replace(EXTENT, low=-500, high=-1, tile_start=-500)
    (_, tile, _), (tensor, *_) = (
        fault_pictures(extent, "b", extent.low, (0, 60), (0, 0, 0), (4, 1, 1))
        for extent in (columns, before)
    )
    assert tile.caption == "4 of 64 columns are outside: 60 to 63."
    assert tensor.caption == "Rows -1 to -1 are before its beginning."


def test_a_large_grid_is_drawn_by_blocks_of_programs():
    extent = replace(EXTENT, programs=((0, 1_000_000, 3),), bad_programs=1_000_000, rounds=())
    *_, grid = fault_pictures(extent, "b", 130_000, (4, 0), (0, 0, 0), (1000, 1000, 1))
    assert len(grid.marks) <= 64 * 64 + 2
    assert grid.caption == "All 1,000,000 programs."
