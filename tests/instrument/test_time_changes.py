import random

import pytest
from launching import launch

from tkdebug.advice.records import LaunchCost, Remark
from tkdebug.cli import main
from tkdebug.instrument.analyses.comparison import compare, student_quantile, time_changes
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.records.events import ArgumentInfo
from tkdebug.records.hook_chain import HOOKS

COST = LaunchCost(
    "k", "hash of k", 1, "k.py", 1, (4, 1, 1), "sm_90a", "H100", "", 1, 1, 1, 0, 0, 100.0,
    100.0, 50.0, "memory", 1.0, 50.0, ("warps",), True, {},
)  # fmt: skip


def record(path, times, mode="native", remarks=()):
    recorder = Recorder(path, script="k.py", output=False).start()
    for kernel, durations in times.items():
        for duration_ns in durations:
            launch(kernel, mode=mode, duration_ns=duration_ns, device_ns=_ns(duration_ns))
    for remark in remarks:
        HOOKS.record(remark)
    recorder.stop(0)
    return path


def _ns(duration_ns):
    return lambda wait=False: duration_ns


def noisy(mean_ns, count, seed):
    random_ = random.Random(seed)
    return [round(mean_ns * random_.lognormvariate(0, 0.03)) for _ in range(count)]


@pytest.fixture
def runs(tmp_path):
    before = {"slow": noisy(10_000, 40, 1), "same": noisy(10_000, 40, 2), "few": [10_000, 10_100]}
    after = {"slow": noisy(11_000, 40, 3), "same": noisy(10_000, 40, 4), "few": [20_000, 20_100]}
    return record(tmp_path / "a.tkd", before), record(tmp_path / "b.tkd", after)


def test_only_a_difference_beyond_the_noise_is_one(runs):
    with Session.open(runs[0]) as before, Session.open(runs[1]) as after:
        changes = time_changes(before, after)
    assert {name: change.verdict for name, change in changes.items()} == {
        "slow": "slower",
        "same": "same",
        "few": "unknown",
    }
    slow = changes["slow"]
    assert 1.05 < slow.low < slow.ratio < slow.high < 1.15


def test_equal_runs_are_seldom_called_different(tmp_path):
    called = 0
    for trial in range(20):
        one = record(tmp_path / f"{trial}a.tkd", {"k": noisy(5_000, 10, 100 + trial)})
        two = record(tmp_path / f"{trial}b.tkd", {"k": noisy(5_000, 10, 900 + trial)})
        with Session.open(one) as before, Session.open(two) as after:
            called += time_changes(before, after)["k"].verdict != "same"
    assert called <= 1


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 4.604), (9, 3.250), (30, 2.750)])
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, rel=0.02)


def test_a_slowdown_beyond_what_is_allowed_fails(runs, capfd):
    before, after = map(str, runs)
    assert main(["compare", before, after]) == 0
    assert "slow: slower, 1." in capfd.readouterr().out
    assert main(["compare", before, after, "--max-slowdown", "20"]) == 0
    assert main(["compare", before, after, "--max-slowdown", "2"]) == 3
    assert "slow: slower than before by more than 2 %" in capfd.readouterr().err


def record_shapes(path, launches):
    """Launches of one kernel: rows of its tensor, and how long each of so many took."""
    recorder = Recorder(path, script="k.py", output=False).start()
    for rows, durations in launches:
        tensor = ArgumentInfo("x_ptr", "*fp32", "cuda", (rows, 8), (8, 1))
        for duration_ns in durations:
            launch(
                "k", mode="native", duration_ns=duration_ns, device_ns=_ns(duration_ns),
                make_arguments=lambda tensor=tensor: (tensor,),
            )  # fmt: skip
    recorder.stop(0)
    return path


def test_launches_on_other_shapes_are_not_compared(tmp_path):
    small, large = noisy(1_000, 20, 1), noisy(100_000, 20, 2)
    one = record_shapes(tmp_path / "a.tkd", [(16, small), (1600, large)])
    two = record_shapes(tmp_path / "b.tkd", [(16, noisy(1_000, 20, 3)), (1600, large * 3)])
    other = record_shapes(tmp_path / "c.tkd", [(160, small)])
    with Session.open(one) as before, Session.open(two) as after, Session.open(other) as apart:
        more_large_ones = time_changes(before, after)["k"]
        nothing_alike = compare(before, apart)
    assert more_large_ones.verdict == "same"
    assert more_large_ones.launches == (40, 80)
    assert [change.time for change in nothing_alike.kernels] == [None]


def test_shapes_that_differ_much_hide_no_change(tmp_path):
    shapes = [(16, 1_000), (160, 10_000), (1600, 100_000)]
    one = [(rows, noisy(mean, 10, rows)) for rows, mean in shapes]
    two = [(rows, noisy(1.1 * mean, 10, rows + 1)) for rows, mean in shapes]
    paths = record_shapes(tmp_path / "a.tkd", one), record_shapes(tmp_path / "b.tkd", two)
    with Session.open(paths[0]) as before, Session.open(paths[1]) as after:
        change = time_changes(before, after)["k"]
    assert change.verdict == "slower"
    assert 1.05 < change.low < change.ratio < change.high < 1.15


class Timed:
    """A session of launches of one kernel, all timed in one way."""

    def __init__(self, source, durations):
        self._launches = [("k", duration_ns, source, ()) for duration_ns in durations]

    def launch_fields(self, names):
        assert names == ("kernel", "duration_ns", "time_source", "arguments")
        return iter(self._launches)


@pytest.mark.parametrize(("one", "other"), [("events-at-most",) * 2, ("events", "cupti")])
def test_times_that_say_another_thing_are_not_compared(one, other):
    assert time_changes(Timed(one, [1_000] * 9), Timed(other, [2_000] * 9)) == {}
    assert time_changes(Timed("cupti", [1_000] * 9), Timed("cupti", [2_000] * 9))["k"].low == 2


def test_what_is_not_judged_is_said(runs, tmp_path, capfd):
    before, after = map(str, runs)
    assert main(["compare", before, after, "--max-slowdown", "20"]) == 0
    out, err = capfd.readouterr()
    said = "few (fewer than 5 launches that are alike in a run)\n"
    assert f"not known whether slower or faster: {said}" in out
    assert err == f"tkdebug: --max-slowdown: not judged: {said}"
    assert main(["compare", before, after]) == 0
    assert capfd.readouterr().err == ""


def test_times_of_the_interpreter_fail_nothing(tmp_path, capfd):
    one = record(tmp_path / "a.tkd", {"k": noisy(5_000, 20, 1)}, "interpret")
    two = record(tmp_path / "b.tkd", {"k": noisy(9_000, 20, 2)}, "interpret")
    assert main(["compare", str(one), str(two), "--max-slowdown", "1"]) == 0
    assert "--max-slowdown: nothing is judged, as times of inter" in capfd.readouterr().err


def test_remarks_that_are_new_or_gone_are_reported(tmp_path):
    remark = Remark("k", "hash of k", 1, "k.py", 3, "uncoalesced", "columns", 100.0, 50.0)
    one = record(tmp_path / "a.tkd", {"k": [100]}, remarks=(COST,))
    two = record(tmp_path / "b.tkd", {"k": [100]}, remarks=(COST, remark))
    with Session.open(one) as before, Session.open(two) as after:
        there, back = compare(before, after), compare(after, before)
    assert [r.kind for r in there.new_remarks] == ["uncoalesced"]
    assert [r.kind for r in back.gone_remarks] == ["uncoalesced"]
    assert there.gone_remarks == back.new_remarks == ()


def test_remarks_are_not_new_where_the_earlier_run_was_not_advised(tmp_path):
    remark = Remark("k", "hash of k", 1, "k.py", 3, "uncoalesced", "columns", 100.0, 50.0)
    one = record(tmp_path / "a.tkd", {"k": [100]})
    two = record(tmp_path / "b.tkd", {"k": [100]}, remarks=(COST, remark))
    with Session.open(one) as before, Session.open(two) as after:
        assert compare(before, after).new_remarks == ()
