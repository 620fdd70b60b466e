"""`triton.tools.mxfp`: tensors of e2m1 elements and e8m0 scales."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compat.triton_api.microscaled import MXFP4Tensor, MXScaleTensor
from tkdebug.errors import UsageError

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_every_element_has_its_value_and_comes_back():
    tensor = MXFP4Tensor(size=16)
    tensor.data = torch.arange(16, dtype=torch.uint8)
    values = tensor.to(torch.float32)
    assert values.tolist() == E2M1 + [-value for value in E2M1]
    assert torch.signbit(values[8])
    assert torch.equal(MXFP4Tensor(data=values).data, tensor.data)


@pytest.mark.parametrize(
    ("value", "rounded"),
    # Halfway between neighbours the one with mantissa 0 wins.
    [
        *[(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)],
        *[(0.26, 0.5), (5.01, 6.0), (100.0, 6.0), (torch.inf, 6.0), (torch.nan, 6.0)],
        *[(-2.4, -2.0), (-0.0, -0.0)],
    ],
)
def test_rounding(value, rounded):
    assert MXFP4Tensor(data=torch.tensor([value])).to(torch.float32).tolist() == [rounded]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=20))
def test_rounding_is_to_the_nearest(values):
    given_values = torch.tensor(values)
    kept = MXFP4Tensor(data=given_values).to(torch.float32)
    best = (given_values.abs()[:, None] - torch.tensor(E2M1)).abs().min(1).values
    assert torch.equal((given_values - kept).abs(), best)


@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (2, 3, 7)])
def test_packing_and_unpacking(shape):
    tensor = MXFP4Tensor(size=shape).random()
    for dim in range(len(shape)):
        packed = tensor.to_packed_tensor(dim)
        assert packed.shape[dim] == (shape[dim] + 1) // 2
        first = tensor.data.select(dim, 0) | (tensor.data.select(dim, 1) << 4)
        assert torch.equal(packed.select(dim, 0), first)
        assert torch.equal(tensor.unpack_packed_tensor(packed, dim, shape), tensor.data)
    with pytest.raises(UsageError, match="within the range of tensor dimensions: got 9, exp"):
        tensor.to_packed_tensor(9)


def test_scales():
    values = torch.tensor([1.0, 2.0, 3.0, 0.5, 2.0**-127, torch.inf, 0.0, -1.0, torch.nan])
    scales = MXScaleTensor(data=values)
    assert scales.data.tolist() == [127, 128, 128, 126, 0, 255, 255, 255, 255]
    back = scales.to(torch.float32)
    assert back[:5].tolist() == [1.0, 2.0, 2.0, 0.5, 2.0**-127]
    assert back[5:].isnan().all()


def test_random_scales_are_in_their_range():
    scales = MXScaleTensor(size=(64,)).random(low=1 / 4, high=8).to(torch.float32)
    assert 1 / 4 <= scales.min()
    assert scales.max() <= 8
    assert not MXScaleTensor(size=(500,)).random().to(torch.float32).isnan().any()
    with pytest.raises(UsageError, match="low 8 above high 1"):
        MXScaleTensor(size=4).random(low=8, high=1)


def test_what_they_cannot_do_is_reported():
    with pytest.raises(ValueError, match="Either parameter data or size"):
        MXFP4Tensor()
    with pytest.raises(UsageError, match=r"MXFP4Tensor\.to: got torch\.float16, expected"):
        MXFP4Tensor(size=4).random().to(torch.float16)
