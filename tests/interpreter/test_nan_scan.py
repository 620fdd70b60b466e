"""Sums that show whether a tensor has a NaN or an Inf."""

import math

import pytest
import torch

from tkdebug.interpreter.checks.stored_values import all_finite
from tkdebug.interpreter.numerics.scans import has_nan, quick_sum_of, sum_of

FLOATS = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)


@FLOATS
def test_one_element_shows(dtype):
    values = torch.full((4096,), 30_000.0).to(dtype)
    assert math.isfinite(sum_of(values))  # which fp16 has no number for
    assert all_finite(values)
    assert not has_nan(values)
    values[77] = math.inf
    assert not all_finite(values)
    assert not has_nan(values)
    values[78] = -math.inf
    assert not all_finite(values)
    assert not has_nan(values)
    values[79] = math.nan
    assert math.isnan(quick_sum_of(values))
    assert has_nan(values)
