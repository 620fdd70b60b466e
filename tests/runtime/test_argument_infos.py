"""Facts of arguments that hooks get, and when they are computed again."""

import gc
import weakref

import pytest
import torch

from tkdebug.records.events import ArgumentInfo
from tkdebug.runtime.arguments.argument_infos import ArgumentInfos
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

SIGNATURE = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}


@pytest.fixture
def infos():
    return ArgumentInfos(SIGNATURE, ("BLOCK",))


def test_names_types_shapes_and_values(infos):
    assert infos.of((torch.zeros(4, 6)[:, ::2], 7, 64)) == (
        ArgumentInfo("x", "*fp32", "a tensor of torch.float32", (4, 3), (6, 2)),
        ArgumentInfo("n", "i32", "7"),
        ArgumentInfo("BLOCK", "constexpr", "64"),
    )


def test_alike_arguments_are_described_once(infos):
    assert infos.of((torch.zeros(3), 7, 64)) is infos.of((torch.ones(3), 7, 64))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (None, 0),
        (torch.zeros(4, 4), torch.zeros(4, 4).t()[:, :4].clone().t()),
        (torch.zeros(4), torch.zeros(4, dtype=torch.int32)),
        (torch.zeros(4), torch.zeros(8)[::2]),
        (torch.zeros(4), (torch.zeros(4),)),
    ],
    ids=str,
)
def test_what_looks_different_is_described_anew(infos, one, other):
    first, second = (infos.of((x, 7, 64))[0] for x in (one, other))
    shown = [(info.value, info.shape, info.strides) for info in (first, second)]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        assert second.strides == other.stride()
        assert str(other.dtype) in second.value
    else:
        assert shown[0] != shown[1]


def test_tuples_and_descriptors_are_described_each_time(infos):
    base = torch.zeros(8, 8)
    for size in (2, 4):
        descriptor = TensorDescriptor(base, [size, 8], [8, 1], [2, 8])
        assert infos.of((descriptor, (base, size), 64))[:2] == (
            ArgumentInfo("x", "*fp32", "a tensor of torch.float32", (size, 8), (8, 1)),
            ArgumentInfo("n", "i32", f"(a tensor of torch.float32, {size})"),
        )


def test_no_tensor_is_kept(infos):
    tensor = torch.zeros(3)
    infos.of((tensor, 7, 64))
    reference = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert reference() is None


def test_what_is_kept_is_bounded(infos):
    for n in range(2000):
        assert infos.of((None, n, 64))[1].value == str(n)
    assert len(infos._kept) <= 256
