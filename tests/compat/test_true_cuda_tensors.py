"""CUDA tensors of the stand-in are CUDA tensors to all of torch."""

import io

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tkdebug.compat import cuda_standin
from tkdebug.compat.cuda_standin import support
from tkdebug.errors import UnsupportedError

pytestmark = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed:
        yield installed


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, y: x + y, "found at least two devices, cuda:0 and cpu!"),
        (lambda x, y: torch.cat([x, y]), "same device"),
        (lambda x, y: torch.mm(x, y), r"in method wrapper_CUDA_mm\)"),
        (lambda x, y: torch.mm(y, x), r"in method wrapper_CUDA_mm\)"),
        (lambda x, y: x.index_select(0, y[0].long()), "method wrapper_CUDA__index_select"),
        (lambda x, y: y[x[0].long()], "indices should be either on cpu or on the same device"),
    ],
)
def test_tensors_on_two_devices_are_refused_as_by_a_gpu(function, text):
    x, y = torch.zeros(2, 2, device="cuda"), torch.zeros(2, 2)
    with pytest.raises(RuntimeError, match=text):
        function(x, y)


def test_numbers_on_the_host_go_with_tensors_on_the_device():
    x = torch.ones(2, device="cuda", dtype=torch.float16)
    assert (x + torch.tensor(1.0)).tolist() == [2, 2]
    for result, dtype in (
        (x * 2.5, torch.float16),
        (x[0] * 2.5, torch.float16),
        (x.long() + 0.5, torch.float32),
        (x.int()[0] + 1, torch.int32),
    ):
        assert (result.dtype, result.is_cuda) == (dtype, True)


def test_generators_of_the_device_are_apart_from_the_cpus():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = torch.rand(100, device="cuda")
    assert torch.equal(torch.rand(3), expected)
    torch.nn.functional.dropout(first, 0.5)
    torch.cuda.manual_seed(5)
    assert torch.equal(torch.rand(100, device="cuda"), first)
    state = torch.cuda.get_rng_state()
    drawn = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.randn(3, device="cuda"), drawn)
    generator = torch.Generator("cuda")
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.randn(4, generator=generator)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.randn(4, generator=torch.Generator(), device="cuda")


def test_dispatch_modes_and_traces_see_the_device():
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(args[0].device.type)
            return func(*args, **(kwargs or {}))

    x = torch.ones(3, device="cuda", requires_grad=True)
    with Watch():
        x.sin().sum().backward()
    assert set(seen) == {"cuda"}
    traced = make_fx(lambda v: v + torch.ones(3, device=v.device))(x)
    assert "cuda" in traced.code
    assert torch.device(0) == x.device


def test_storages_are_on_the_device_and_move():
    storage = torch.ones(4, device="cuda").untyped_storage()
    assert storage.is_cuda
    assert torch.UntypedStorage(8, device="cuda").is_cuda
    assert not storage.cpu().is_cuda
    file = io.BytesIO()
    torch.save(torch.arange(3.0), file)
    file.seek(0)
    loaded = torch.load(file, map_location=lambda storage, location: storage.cuda())
    assert (loaded.device.type, loaded.tolist()) == ("cuda", [0, 1, 2])


def test_conjugate_and_negative_views_are_computed_with():
    x = torch.tensor([[1 + 2j, 3 - 1j]], device="cuda")
    assert (x.conj() @ x.T).tolist() == [[15]]
    assert (x.conj().imag + 0).tolist() == [[-2, 1]]
    assert x.conj().clone().cpu().tolist() == [[1 - 2j, 3 + 1j]]


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_are_trained_as_on_the_cpu(layer):
    of_cpu, of_cuda = layer(3, 4, 2, bidirectional=True), layer(3, 4, 2, bidirectional=True).cuda()
    of_cuda.load_state_dict(of_cpu.state_dict())
    x = torch.randn(5, 2, 3)
    for model, given in ((of_cpu, x), (of_cuda, x.cuda())):
        model(given)[0].square().sum().backward()
    for one, other in zip(of_cpu.parameters(), of_cuda.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def test_outputs_grow_and_stay_the_tensors_that_were_given():
    out = torch.empty(0, device="cuda")
    assert torch.add(torch.ones(3, device="cuda"), 1, out=out) is out
    assert out.tolist() == [2, 2, 2]
    out.resize_(5)[3:] = 7
    assert out.tolist() == [2, 2, 2, 7, 7]


def test_operators_of_the_cpu_alone_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="aten::histogram"):
        torch.histogram(torch.ones(3, device="cuda"), 2)


def test_a_torch_that_is_not_known_is_refused_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr(support._Checked, "is_so", False)
    monkeypatch.setattr(support, "_verdict_paths", lambda: [tmp_path / "torch" / "key"])
    monkeypatch.setattr(support, "_TEST", "raise SystemExit('its tables are others')")
    with pytest.raises(UnsupportedError, match=r"its tables are others.*install torch 2\.6"):
        support.check_installed_torch()
    monkeypatch.setattr(support, "_TEST", "")
    support.check_installed_torch()
    assert (tmp_path / "torch" / "key").read_text("utf-8") == "passed"
