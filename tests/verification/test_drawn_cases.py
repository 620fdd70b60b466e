"""Cases that Hypothesis draws: random ones, and those by which a failing one becomes smaller."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tkdebug.verification.drawing import first_of
from tkdebug.verification.explain import smallest
from tkdebug.verification.inputs import Example
from tkdebug.verification.plan import Plan, Sizes
from tkdebug.verification.records import Case, Finding, Request
from tkdebug.verification.worker import examine

KERNELS = Path(__file__).with_name("verified_kernels.py")


@pytest.fixture
def plan():
    example = Example([torch.rand(48, 64), torch.rand(48, 64), 2.5])
    sizes = Sizes.learn(example.case(), lambda case: case.shapes[0] == case.shapes[1])
    return Plan(example, example.case(), sizes, 0)


@pytest.fixture
def failing(plan):
    return plan.given.renamed(
        "all is odd",
        shapes=((96, 129),) * 2,
        numbers=(0.0,),
        dtypes=("float16",) * 2,
        layouts=("transposed", "every-other"),
        values="large",
        weights="random",
        way="reversed",
    )


def shrunk(plan, failing, is_wrong, share=lambda: 0.0):
    """Return the smallest case of a kernel that is wrong where a predicate says so, and all run."""
    ran = []

    def run(case):
        ran.append(case)
        finding = Finding("wrong-value", "", True, case) if is_wrong(case) else None
        return SimpleNamespace(status="right" if finding is None else "wrong", finding=finding)

    search = SimpleNamespace(
        share=share, request=SimpleNamespace(seed=0), runner=SimpleNamespace(run=run)
    )
    finding = smallest(search, Finding("wrong-value", "", True, failing), plan, 0.5)
    return finding.case, ran


def drawn(plan, number, seed="0 1/1"):
    cases = []
    first_of(plan.drawn(), lambda case: bool(cases.append(case)), number, seed)
    return cases


def test_same_seed_draws_the_same_cases(plan):
    cases = drawn(plan, 60)
    assert len(cases) == 60
    assert cases == drawn(plan, 60)
    assert cases != drawn(plan, 60, "1 1/1")
    assert all(Case.of_text(case.as_text()) == case for case in cases)


def test_all_components_are_drawn_together_and_sizes_also_equal(plan):
    cases = drawn(plan, 200)
    assert any(
        case.dtypes[0] != "float32" and "contiguous" not in case.layouts and case.values == "large"
        for case in cases
    )
    assert any(case.shapes[0][0] == case.shapes[0][1] > 1 for case in cases)
    assert all(case.shapes[0] == case.shapes[1] for case in cases)


def test_only_what_makes_a_case_fail_is_left(plan, failing):
    case, _ = shrunk(plan, failing, lambda case: True)
    assert case == plan.given.renamed(failing.name, shapes=((1, 1),) * 2, values="integers")


@pytest.mark.parametrize(
    ("is_wrong", "left"),
    [
        (
            lambda c: c.layouts[0] != "contiguous" and c.shapes[0][1] > 30,
            {"shapes": ((1, 31),) * 2, "layouts": ("transposed", "contiguous")},
        ),
        (
            lambda c: "float16" in c.dtypes and c.values == "large",
            {"dtypes": ("float16",) * 2, "values": "large"},
        ),
        (
            lambda c: c.shapes[0][0] > 1 < c.shapes[0][1] and c.way != "checked",
            {"shapes": ((2, 2),) * 2, "way": "reversed"},
        ),
        (lambda c: c.numbers[0] == 0.0, {"numbers": (0.0,)}),
    ],
)
def test_components_that_fail_only_together_are_left_together(plan, failing, is_wrong, left):
    case, _ = shrunk(plan, failing, is_wrong)
    plain = plan.given.renamed(failing.name, shapes=((1, 1),) * 2, values="integers")
    assert case == replace(plain, **left)


def test_sizes_that_must_be_equal_become_smaller_together(plan, failing):
    square = replace(failing, shapes=((96, 96),) * 2)
    case, _ = shrunk(plan, square, lambda c: c.shapes[0][0] == c.shapes[0][1] > 8)
    assert case.shapes == ((9, 9),) * 2


def test_no_case_runs_twice_nor_after_the_time(plan, failing):
    calls = count()
    case, ran = shrunk(plan, failing, lambda case: True, lambda: 0.06 * next(calls))
    assert len(ran) == len(set(ran)) <= 0.5 / 0.06 + 1
    assert case in ran
    assert shrunk(plan, failing, lambda case: True, lambda: math.inf) == (failing, [])


def test_nothing_is_written_to_the_working_folder(tmp_path):
    here, cache = tmp_path / "here", tmp_path / "cache"
    here.mkdir()
    code = (
        "from hypothesis import configuration, strategies; "
        "from tkdebug.verification.drawing import first_of; "
        "first_of(strategies.integers(0, 1 << 30), lambda number: False, 200, '0'); "
        "print(configuration.storage_directory('of', 'others').path)"
    )
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "TKDEBUG_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code]
    text = subprocess.check_output(command, cwd=here, env={**os.environ, **paths}, text=True)
    assert text.strip() == str(here / ".hypothesis" / "of" / "others")
    assert (cache / "hypothesis").is_dir()
    assert not [*here.iterdir()]


def test_random_cases_are_divided_among_shards(monkeypatch):
    monkeypatch.setattr(Plan, "planned", lambda plan: iter(()))
    request = Request(str(KERNELS), "right", "verified_references:triple", cases=13, seconds=120.0)
    counts = []
    for part in ((1, 2), (2, 2)):
        records = []
        examine(replace(request, shard=part), records.append)
        counts.append([one["at"]["name"] for one in records if "at" in one].count("random"))
    assert counts == [7, 6]
