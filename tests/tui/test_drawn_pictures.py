"""Pictures of faults in cells, with colours and without."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "instrument"))

from test_home_model import EXTENT

from tkdebug.instrument.home.pictures import fault_pictures, mismatch_picture
from tkdebug.tui.drawing import palette
from tkdebug.tui.home.pictures import beside, picture_rows

PICTURES = fault_pictures(EXTENT, "b_ptr", 130_000, (4, 0), (0, 0, 0), (4, 1, 1))


def text(rows):
    return "\n".join(row.plain.rstrip() for row in rows)


def test_pictures_without_colour_tell_what_is_bad_by_shade():
    drawn = beside([picture_rows(picture, 16, is_plain=True) for picture in PICTURES])
    assert text(drawn) == (
        "    0        500     0          64  program_id(0) →\n"
        "  0 ░░░░░░░░░░░░   4 ◆████████████  ◆◆◆◆████████████\n"
        "    ░░░░░░░░░░░░     █████████████  ◆◆◆◆████████████\n"
        "    ░░░░░░░░░░░░     █████████████\n"
        "    ░░░░░░░░░░░░     █████████████\n"
        "260 ████████████  32 █████████████"
    )


def test_pictures_in_colour_have_two_pixels_in_a_cell():
    tensor = picture_rows(PICTURES[0], 16, is_plain=False)
    assert {character for row in tensor[1:] for character in row.plain[4:]} <= set("█▀▄ ")
    styles = {str(span.style) for row in tensor for span in row.spans}
    assert f"{palette.FRAME} on {palette.BAD}" in styles
    assert max(row.cell_len for row in tensor) <= 16


def test_mismatch_is_drawn_as_it_lies_in_the_tensor():
    picture = mismatch_picture(["........", "..##....", "..##..++"])
    assert picture is not None
    wrong = picture_rows(picture, 16, is_plain=True)
    assert [row.plain for row in wrong] == [
        "░░░░░░░░░░░░░░░░",
        "░░░░████░░░░░░░░",
        "░░░░████░░░░████",
    ]


def test_a_picture_needs_some_columns():
    assert picture_rows(PICTURES[0], 5, is_plain=True) == []
