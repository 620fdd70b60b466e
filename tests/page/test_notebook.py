"""Runs in notebooks: what their HTML says, that it is harmless, and the magic of a cell."""

import pytest
from hostile_session import CLOSING, MARKUP, TEXT, record
from launching import fault, launch

import tkdebug
from tkdebug.errors import Frame, UsageError
from tkdebug.instrument.home.kernel_pictures import tile_values_picture
from tkdebug.instrument.home.pictures import Box
from tkdebug.instrument.notebook import FoundFault, Kernel, Run, Timeline, to_svg
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.hook_chain import HOOKS
from tkdebug.watches.records import WatchedValue, packed

CELL = """\
import torch, triton, triton.language as tl

@triton.jit
def scale(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + offs, tl.load(x_ptr + offs) * 2, mask=offs < n)
"""
LAUNCH = """\
%%tkdebug -o PAGE
x = torch.rand(100, device="cuda"); o = torch.empty_like(x)
scale[(4,)](x, o, 100, BLOCK=32)
"""


@pytest.fixture
def run(tmp_path):
    return Run(record(tmp_path / "run.tkd", tmp_path / "k.py"))


def test_a_run_shows_its_verdict_its_source_and_its_faults(run):
    html = run._repr_html_()
    assert "1 comparison failed, 1 fault" in html
    assert "x = load(p)" in html
    assert html.count("tkd-flt") >= 2
    assert "<script" not in html
    assert repr(run) == "<Run of k.py: 1 comparison failed, 1 fault, 3 launches>"


def test_kernels_faults_and_time_have_html_of_their_own(run):
    shown = [*run.kernels, *run.faults, run.timeline]
    assert {type(one) for one in shown} == {Kernel, FoundFault, Timeline}
    for one in shown:
        assert one._repr_html_().startswith('<div class="tkd">')
    assert "100 %" in run.kernel("add_kernel")._repr_html_()
    assert run.timeline._repr_html_().count("<rect") == 3
    with pytest.raises(UsageError, match=r"add_kernell: no such kernel.*add_kernel"):
        run.kernel("add_kernell")


def test_hostile_words_are_text_in_a_notebook(tmp_path):
    run = Run(record(tmp_path / "run.tkd", tmp_path / "k.py", TEXT))
    for one in (run, *run.kernels, *run.faults, run.timeline):
        html = one._repr_html_()
        assert MARKUP not in html
        assert CLOSING not in html
    assert "{{7*7}}" in run._repr_html_()


def test_a_watched_tile_is_drawn_and_one_that_was_not_kept_is_named(tmp_path):
    path = tmp_path / "run.tkd"
    frames = (Frame("k.py", 3, "k"),)
    with Recorder(path, script="k.py", output=False):
        one = launch()
        values = (0.0, -1.0, float("nan"), 4.0)
        HOOKS.record(
            WatchedValue(
                *("k.py:3:x", "add_kernel", "x", "fp32[2, 2]", frames, one.id, (1, 0, 0), 2),
                *((2, 2), 1, 0, 1, -1.0, 4.0, 1.0, ((0, 1),), packed(values)),
            )
        )
    run = Run(path)
    html = run.tile("x", (1,), 2)._repr_html_()
    assert html.count("<rect") == 4
    assert "1 NaN" in html
    with pytest.raises(UsageError, match=r"no tile of program .0, 0, 0. and iteration 0"):
        run.tile("x")


def test_large_tiles_are_drawn_by_blocks_and_nan_stays():
    values = [1.0] * (200 * 300)
    values[7] = float("nan")
    picture = tile_values_picture("x", (200, 300), values, "min 1")
    assert len(picture.marks) <= 48 * 64
    assert [mark.role for mark in picture.marks if isinstance(mark, Box)].count("bad") == 1
    assert "blocks of 5" in picture.caption
    assert "NaN" not in to_svg(picture)


def test_a_fault_is_shown_at_the_line_of_each_specialisation_that_had_it(tmp_path):
    from launching import compiled

    script = tmp_path / "k.py"
    script.write_text("def add_kernel():\n    x = load(p)\n")
    path = tmp_path / "run.tkd"
    with Recorder(path, script="k.py", output=False):
        for hash_ in ("a", "b"):
            HOOKS.compiled(
                compiled(script, hash=hash_, signature=f"(x: {hash_})", source=script.read_text())
            )
            one = launch(kernel_hash=hash_)
            HOOKS.fault(fault(script, line=2, launch_id=one.id))
    (kernel,) = Run(path).kernels
    assert [[line.faults for line in v.lines if line.faults] for v in kernel.model.variants] == [
        [(0,)],
        [(0,)],
    ]


@pytest.mark.parametrize("options", ["--nonsense", "--watch", "-o"])
def test_mistaken_options_of_a_cell_are_one_line(options, capsys):
    from tkdebug.compat.interactive import run_cell

    assert run_cell(None, options, "") is None
    assert "tkdebug: %%tkdebug: " in capsys.readouterr().err


def test_a_cell_shows_the_annotated_source_and_the_fault_below_it(monkeypatch, tmp_path):
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    page = tmp_path / "cell.html"
    cells = ["%load_ext tkdebug", CELL, LAUNCH.replace("PAGE", str(page))]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [one.data for one in notebook.cells[2].outputs if "data" in one]
    html = "".join(data.get("text/html", "") for data in shown)
    assert "1 fault" in html
    assert "Cell In[2]:6" in html
    assert "def scale(" in html
    assert "x_ptr[100]" in html
    assert "tkdebug debug" not in html  # which takes no cell
    assert page.read_text().startswith("<!doctype html>")


def test_the_package_names_the_run():
    assert tkdebug.Run is Run
