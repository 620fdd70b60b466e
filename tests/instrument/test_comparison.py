import pytest
from answer_schemas import valid
from launching import fault, launch

from tkdebug.instrument.analyses.comparison import compare
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.renderers.comparison_formats import comparison_json, comparison_text
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS


def record(path, during):
    recorder = Recorder(path, script="k.py", output=False).start()
    during()
    recorder.stop(0)
    return path


@pytest.fixture
def runs(tmp_path):
    """Two runs: one kernel faster, one gone, one new; a fault that stays on a line that moved."""
    source = tmp_path / "k.py"

    def earlier():
        for duration_ns in (1_000, 3_000):
            launch("kept", duration_ns=duration_ns)
        launch("old", duration_ns=7_000)
        HOOKS.fault(fault(frames=()))
        HOOKS.fault(fault(source, line=2, tensor="gone_ptr"))
        HOOKS.fault(fault(source, line=3, tensor="kept_ptr"))

    def later():
        launch("kept", duration_ns=500)
        launch("new", duration_ns=9_000)
        HOOKS.fault(fault(source, line=4, tensor="kept_ptr"))
        HOOKS.fault(fault(source, line=4, tensor="new_ptr"))

    source.write_text("first\nsecond\nthird\n")
    before = record(tmp_path / "before.tkd", earlier)
    source.write_text("first\nsecond\n# one line more\n    third\n")
    return before, record(tmp_path / "after.tkd", later)


def compared(runs, renderer=None):
    with Session.open(runs[0]) as before, Session.open(runs[1]) as after:
        comparison = compare(before, after)
        if renderer is None:
            return comparison
        return "".join(renderer(comparison, before, after))


def test_kernels_are_matched_by_name(runs):
    changes = {change.kernel: change for change in compared(runs).kernels}
    assert list(changes) == ["new", "kept", "old"]
    assert (changes["kept"].mean_ratio, changes["kept"].min_ratio) == (0.25, 0.5)
    assert changes["new"].before is None
    assert changes["new"].mean_ratio is None
    assert changes["old"].after is None


def test_faults_are_matched_though_their_line_has_moved(runs):
    comparison = compared(runs)
    assert [merged.fault.tensor for merged in comparison.new_faults] == ["new_ptr"]
    assert [merged.fault.tensor for merged in comparison.gone_faults] == ["x_ptr", "gone_ptr"]
    assert comparison.kept_faults == 1


def test_run_compared_with_itself_has_no_difference(runs):
    comparison = compared((runs[0], runs[0]))
    assert {change.mean_ratio for change in comparison.kernels} == {1.0}
    assert (comparison.new_faults, comparison.gone_faults) == ((), ())
    assert comparison.kept_faults == 3


def test_comparison_as_text(runs):
    text = compared(runs, comparison_text)
    assert "interpreted kernels: the times are the interpreter's, not a GPU's\n" in text
    kept = next(line for line in text.splitlines() if line.startswith("kept"))
    assert kept.split(maxsplit=1)[1].split("  ") == [
        "2 -> 1",
        "2.00 µs -> 500 ns",
        "-75.0 %",
        "1.00 µs -> 500 ns",
        "-50.0 %",
    ]
    assert "\n1 new fault, 2 gone, 1 in both\n" in text
    assert "\nnew: " in text
    assert text.count("\ngone: ") == 2


def test_comparison_as_json(runs):
    data = valid("compare", compared(runs, comparison_json))
    assert data["schema"] == 1
    assert [kernel["kernel"] for kernel in data["kernels"]] == ["new", "kept", "old"]
    assert data["kernels"][1]["after"]["min_ns"] == 500
    assert data["kernels"][0]["before"] is None
    assert [f["tensor"] for f in data["new_faults"]] == ["new_ptr"]
    assert data["kept_faults"] == 1
