"""Faults of interpreted kernels on their way to the hooks: dropped, ignored, known."""

import os
import re
from functools import partial
from pathlib import Path

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.checks import CHECK_NAMES
from tkdebug.findings.baseline import identity, pieces
from tkdebug.findings.reporting import kinds_looked_for, report
from tkdebug.findings.source import IgnoreComment
from tkdebug.knobs import KNOBS, scope
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS, Hook


@tkdebug.jit
def load_at(x, offsets):
    return tl.load(x + offsets)


@tkdebug.jit
def reads_past(x, out, n: tl.constexpr):
    offsets = tl.arange(0, n)
    tl.store(out + offsets, tl.load(x + offsets))


@tkdebug.jit
def ignores(x, out, n: tl.constexpr):
    offsets = tl.arange(0, n)
    a = tl.load(x + offsets)  # tkdebug: ignore[oob-load, race]
    b = load_at(x, offsets)  # tkdebug: ignore[oob-load]
    tl.store(out + offsets, a + b)  # tkdebug: ignore[oob-store]


@tkdebug.jit
def ignores_wrongly(x, out, n: tl.constexpr):
    offsets = tl.arange(0, n)
    tl.store(out + offsets, tl.load(x + offsets))  # tkdebug: ignore[oob-laod]


@tkdebug.jit
def counts(out):
    tl.store(out, tl.load(out) + tl.program_id(0))


def launch(kernel, length=6):
    with tkdebug.mode("interpret"):
        kernel[(1,)](torch.ones(length), torch.empty(8), 8)


def race():
    with tkdebug.mode("interpret"):
        counts[(4,)](torch.zeros(1))


def test_faults_are_open_unless_something_is_said(heard):
    launch(reads_past)
    assert [(fault.kind, fault.state) for fault in heard[0]] == [("oob-load", "open")]


def test_comment_at_the_line_or_at_the_call_ignores(heard):
    launch(ignores)
    assert [fault.state for fault in heard[0]] == ["ignored", "ignored"]


def test_comments_of_a_launched_kernel_are_recorded_with_kinds_looked_for(heard):
    launch(ignores, 7)
    comments = [record for record in heard[1] if isinstance(record, IgnoreComment)]
    assert [comment.kinds for comment in comments] == [("oob-load",), ("oob-load",), ("oob-store",)]
    with scope(checks=("race",)):
        launch(ignores, 7)
        launch(ignores, 7)
    assert heard[1][3].kinds == ("oob-load", "race")
    assert len(heard[1]) == 6


def test_each_recorder_gets_the_comments():
    got = []
    for _ in range(8):  # a hook that is gone leaves its address to the next one
        records = []
        hook = Hook(fault=lambda fault: None, record=records.append)
        HOOKS.add(hook)
        launch(ignores, 7)
        HOOKS.remove(hook)
        got.append(len(records))
        del hook
    assert got == [3] * 8


def test_wrong_comment_is_reported_where_nobody_records(capsys):
    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    launch(ignores_wrongly)
    launch(ignores_wrongly, 5)
    HOOKS.remove(hook)
    assert [fault.state for fault in faults] == ["open", "open"]
    printed = [line for line in capsys.readouterr().err.splitlines() if "oob-laod" in line]
    assert len(printed) == 1
    assert printed[0].endswith(
        "ignore[oob-laod]: there is no such kind of fault; did you mean oob-load?"
    )


def test_ignored_kinds_are_not_reported(heard):
    with scope(ignored_kinds="oob-load,nan"):
        launch(reads_past)
    assert heard[0] == []


def test_check_of_an_ignored_kind_is_not_made(heard, monkeypatch):
    with scope(checks=("race",)):
        race()
        assert [fault.kind for fault in heard[0]] == ["race"]
        monkeypatch.setattr(
            "tkdebug.interpreter.checks.selection.observer_class", lambda name: pytest.fail("made")
        )
        with scope(ignored_kinds="race"):
            race()
    assert len(heard[0]) == 1


def test_only_the_named_kernels_are_checked(heard):
    with scope(only_kernels=("cou*",), checks=("race",)):
        launch(reads_past)
        race()
    assert [fault.kernel for fault in heard[0]] == ["counts"]


def test_kernel_that_is_not_checked_computes_the_same(heard):
    x, out = torch.arange(6.0), torch.full((8,), -1.0)
    with scope(only_kernels=("other",)), tkdebug.mode("interpret"):
        reads_past[(1,)](x, out, 8)
    assert out.tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
    assert heard == ([], [])


@pytest.fixture
def baseline(tmp_path, heard):
    """Write the faults so far into a baseline."""
    path = tmp_path / "faults.json"

    def write():
        path.write_text("".join(pieces(identity(fault, tmp_path) for fault in heard[0])))
        heard[0].clear()
        return path

    return write


def test_fault_of_the_baseline_is_known(heard, baseline):
    launch(reads_past)
    with scope(baseline=baseline()):
        launch(reads_past, 5)
        launch(ignores_wrongly, 5)
    assert [(f.kernel, f.state) for f in heard[0]] == [
        ("reads_past", "known"),
        ("ignores_wrongly", "open"),
    ]


def test_baseline_that_has_gone_is_reported_once_and_faults_count(heard, tmp_path, capsys):
    with scope(baseline=tmp_path / "none.json"):
        launch(reads_past)
        launch(reads_past)
    assert [fault.state for fault in heard[0]] == ["open", "open"]
    assert capsys.readouterr().err.count("none.json") == 1


def test_end_of_a_launch_can_be_known_but_not_ignored(heard, baseline):
    crash = partial(report, Fault("assert", "k", (), "boom"), is_end=True)
    with scope(only_kernels=("other",), ignored_kinds="assert"):
        crash()
        report(Fault("compile-error", "k", (), "no"))
    assert [fault.kind for fault in heard[0]] == ["assert", "compile-error"]
    with scope(baseline=baseline()):
        crash()
    assert heard[0][0].state == "known"


def test_kinds_looked_for_follow_the_checks():
    assert not set(CHECK_NAMES) & set(kinds_looked_for())
    with scope(checks=CHECK_NAMES, ignored_kinds="oob-load"):
        assert set(CHECK_NAMES) <= set(kinds_looked_for())
        assert "oob-load" not in kinds_looked_for()
        assert "plugin-check" not in kinds_looked_for()
    with scope(checks=("mine",)):
        assert "plugin-check" in kinds_looked_for()


def test_relative_baseline_is_the_one_of_the_start(monkeypatch):
    monkeypatch.setenv("TKDEBUG_BASELINE", "faults.json")
    assert Path.cwd() / "faults.json" == KNOBS.baseline


def test_install_sets_the_knobs_of_this_process_and_of_its_children(heard, baseline):
    launch(reads_past)
    path = baseline()
    with tkdebug.install(mode="interpret", only="r*", ignore=["nan", "race"], baseline=path):
        launch(reads_past)
        launch(ignores_wrongly)
        assert os.environ["TKDEBUG_ONLY"] == "r*"
        assert os.environ["TKDEBUG_IGNORE"] == "nan,race"
        assert os.environ["TKDEBUG_BASELINE"] == str(path)
    assert [fault.state for fault in heard[0]] == ["known"]
    assert (KNOBS.only_kernels, KNOBS.ignored_kinds, KNOBS.baseline) == ((), (), None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ignore": "nann"}, "'nann' is not one; did you mean nan?"),
        ({"baseline": "none.json"}, "none.json: there is no such baseline"),
    ],
)
def test_install_refuses_what_is_wrong(options, words):
    with pytest.raises(tkdebug.TkError, match=re.escape(words)):
        tkdebug.install(**options)
