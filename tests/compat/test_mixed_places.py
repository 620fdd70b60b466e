"""Host tensors beside CUDA tensors: refused as on a GPU, though the interpreter could read both."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

import tkdebug
import tkdebug.language as tl
from tkdebug import compat
from tkdebug.compat.cuda_standin import cuda_usable
from tkdebug.runtime.errors import PointerError


@tkdebug.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


class Calls(TorchFunctionMode):
    """Notes which functions of torch are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def stand_in():
    if cuda_usable():
        pytest.skip("a CUDA device is there")
    with compat.install("interpret"):
        yield


def test_host_tensor_beside_cuda_tensors_is_refused(stand_in):
    x, out = torch.ones(16), torch.zeros(16, device="cuda")
    with pytest.raises(PointerError, match=r"`x_ptr` is on cpu, `out_ptr` on cuda: .*\.to\('cuda'"):
        copy[(1,)](x, out, 16, BLOCK=16)
    with pytest.raises(ValueError, match="`out_ptr` is on cpu"):
        copy[(1,)](x.cuda(), torch.zeros(16), 16, BLOCK=16)


def test_tensors_of_one_place_and_pinned_ones_are_taken(stand_in):
    for x, out in (
        (torch.ones(16), torch.zeros(16)),
        (torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")),
        (torch.ones(16).pin_memory(), torch.zeros(16, device="cuda")),
        (torch.ones(16, device="cuda")[2:].view(7, 2), torch.zeros(16).cuda()),
    ):
        copy[(1,)](x, out, 14, BLOCK=16)
        assert out[:14].tolist() == [1.0] * 14
    copy[(1,)](torch.ones(0), torch.zeros(4, device="cuda"), 0, BLOCK=16)


def test_a_launch_asks_no_mode_about_its_tensors(stand_in):
    x, out = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
    copy[(1,)](x, out, 16, BLOCK=16)

    with Calls() as calls:
        copy[(1,)](x, out, 16, BLOCK=16)
        assert calls.names == []
        x.numel()
    assert calls.names == ["numel"]
