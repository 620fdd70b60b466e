"""Operators whose kernels a script registers for CUDA."""

import pytest
import torch

from tkdebug.compat import cuda_standin

pytestmark = [
    pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here"),
    pytest.mark.filterwarnings("ignore:.*Overriding a previously registered kernel"),
]
CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed:
        yield installed


@pytest.fixture
def aten():
    library = torch.library.Library("aten", "IMPL")
    yield library
    library._destroy()


def test_own_operators_run_their_kernel_for_cuda():
    library = torch.library.Library("tkdebug_own", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    heard = []

    def doubled(x):
        heard.append((x.device, torch.empty_like(x).device))
        return x * 2

    library.impl("doubled", doubled, "CUDA")
    made = torch.ops.tkdebug_own.doubled(torch.ones(3, device="cuda"))
    assert (made.device, made.tolist(), heard) == (CUDA, [2, 2, 2], [(CUDA, CUDA)])
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        torch.ops.tkdebug_own.doubled(torch.ones(3))


def test_operators_have_a_kernel_for_each_device():
    library = torch.library.Library("tkdebug_both", "FRAGMENT")
    library.define("place(Tensor x) -> int")
    for key, place in (("CPU", 0), ("CUDA", 1)):
        library.impl("place", lambda x, place=place: place, key)
    assert torch.ops.tkdebug_both.place(torch.ones(1)) == 0
    assert torch.ops.tkdebug_both.place(torch.ones(1, device="cuda")) == 1


def test_torch_operators_are_replaced_for_cuda_alone(aten):
    x = torch.full((2,), 5.0, device="cuda")
    aten.impl("add.Tensor", lambda a, b, alpha=1: a - b, "CUDA")
    assert (x + x).tolist() == [0, 0]
    assert torch.add(x, x).is_cuda
    assert (x.cpu() + x.cpu()).tolist() == [10, 10]


def test_replaced_operators_make_tensors_on_cuda(aten):
    heard = []

    def zeros(size, *, dtype=None, layout=None, device=None, pin_memory=None):
        heard.append(device)
        return torch.full(size, 7.0, device=device)

    aten.impl("zeros", zeros, "CUDA")
    made = torch.zeros(2, device="cuda")
    assert (made.tolist(), made.device, heard) == ([7, 7], CUDA, [torch.device("cuda")])
    assert torch.zeros(2).tolist() == [0, 0]


def test_replaced_products_get_their_operands_in_halves(aten):
    heard = []

    def mm(a, b):
        heard.append((a.dtype, b.dtype))
        return a.new_zeros(a.shape[0], b.shape[1])

    aten.impl("mm", mm, "CUDA")
    x = torch.ones(2, 2, dtype=torch.float16, device="cuda")
    assert (x @ x).tolist() == [[0, 0], [0, 0]]
    assert heard == [(torch.float16, torch.float16)]


def test_replaced_operators_are_differentiated_with_replaced_ones(aten):
    heard = []

    def backward(grad, out, dim, dtype):
        heard.append((grad.device, out.device))
        return out * 0 + 3

    aten.impl("_softmax_backward_data", backward, "CUDA")
    x = torch.ones(2, device="cuda", requires_grad=True)
    x.softmax(0).sum().backward()
    assert (x.grad.device, x.grad.tolist()) == (CUDA, [3, 3])
    assert heard == [(CUDA, CUDA)]


def test_functions_made_of_operators_hand_cuda_tensors_on(aten):
    heard = []

    def gather(x, dim, index, sparse_grad=False):
        heard.append(index.device)
        return x.new_zeros(index.shape)

    aten.impl("gather", gather, "CUDA")
    torch.quantile(torch.ones(3, device="cuda"), 0.5)
    assert set(heard) == {CUDA}


def test_gradients_stay_where_they_are_beside_replaced_operators(aten):
    aten.impl("neg", lambda x: x.clone(), "CUDA")
    x = torch.randn(3, requires_grad=True)
    x.cuda().square().sum().backward()
    assert x.grad.device == CPU


def test_kernels_go_with_their_library():
    library = torch.library.Library("aten", "IMPL")
    library.impl("neg", lambda x: x.clone(), "CUDA")
    x = torch.ones(2, device="cuda")
    assert (-x).tolist() == [1, 1]
    del library
    assert (-x).tolist() == [-1, -1]
