"""Kernels that lose precision in a known way: the line and the cause come first."""

from __future__ import annotations

import inspect

import numerics_stories
import pytest
import torch

import tkdebug
from tkdebug.precision.error_causes import CAUSES


def measured(name):
    torch.manual_seed(0)
    with tkdebug.mode("interpret"), tkdebug.numerics() as found:
        getattr(numerics_stories, f"launch_{name}")()
    (kernel,) = found.kernels
    return kernel


def marked_line(name):
    lines, first = inspect.getsourcelines(getattr(numerics_stories, name).fn)
    return next(first + place for place, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize("name", numerics_stories.STORIES)
def test_the_first_finding_is_the_line_and_its_cause(name):
    finding = measured(name).findings[0]
    assert (finding.line, finding.cause) == (marked_line(name), numerics_stories.STORIES[name])


def test_the_stories_have_every_cause_but_plain_rounding():
    assert set(numerics_stories.STORIES.values()) == set(CAUSES) - {"rounding"}


@pytest.mark.parametrize("name", numerics_stories.STORIES)
def test_shares_of_lines_add_up_to_the_error(name):
    for output in measured(name).outputs:
        if output.error > 1e-12 or output.not_finite:
            assert output.explained == pytest.approx(1.0, abs=0.1)


def test_an_accumulator_in_fp32_is_measured():
    finding = measured("half_product").findings[0]
    assert finding.as_fp32 is not None
    assert finding.as_fp32 < measured("half_product").outputs[0].error / 100
