"""Programs of many kinds on a CUDA device, each of which says what it expects of one.

A script as `compiled_models` beside it: names of cases as arguments, a line for each that ends
well. What is expected is what a GPU does.
"""

import contextlib
import copy
import io
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from compiled_models import Cases, main, rand
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

case = Cases()
CUDA = torch.device("cuda", 0)


def close(got, wanted, tolerance=1e-4):
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def raises(kind, *words):
    """Return a context that takes one error of a kind, whose text has the words."""

    @contextlib.contextmanager
    def expected():
        try:
            yield
        except kind as error:
            text = str(error)
        else:
            raise AssertionError(f"no {kind.__name__}")
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing[0]!r} is not in {text[:200]!r}"

    return expected()


def small_model():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


# Where tensors are


@case
def results_say_where_they_are():
    x = rand(3, 4)
    indices = torch.tensor([0, 2], device="cuda")
    made = [x + 1, x.t(), x[0], x @ x.t(), x.sum(), x.half(), x[indices], x.nonzero(), x.unique()]
    made += [*x.topk(2), *x.sort(), x.new_zeros(2), torch.zeros_like(x), x.to("cpu").to("cuda:0")]
    made += [torch.stack([x, x]), torch.tensor(x.tolist(), device="cuda"), *x.chunk(2), x.detach()]
    made += [torch.from_numpy(np.ones(2)).cuda(), torch.as_tensor(np.ones(2), device="cuda")]
    for tensor in made:
        assert tensor.is_cuda
        assert not tensor.is_cpu
        assert tensor.device == CUDA
        assert tensor.get_device() == 0
    assert "device='cuda:0'" in repr(x)
    assert x.cpu().get_device() == -1
    assert x.type() == "torch.cuda.FloatTensor"
    assert isinstance(x, torch.cuda.FloatTensor)


@case
def defaults_and_contexts():
    assert torch.device(0) == CUDA
    torch.set_default_device("cuda")
    try:
        made = [torch.zeros(3), nn.Linear(2, 2).weight, torch.arange(3), torch.tensor([1])]
        assert all(tensor.is_cuda for tensor in [*made, torch.randn(2), torch.eye(2)])
    finally:
        torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.full((2,), 1.0).is_cuda
    with torch.device("meta"):
        layer = nn.Linear(3, 4)
    assert layer.to_empty(device="cuda").weight.is_cuda
    assert not torch.zeros(1).is_cuda


@case
def numpy_is_refused():
    x = torch.ones(2, device="cuda")
    text = "can't convert cuda:0 device type tensor to numpy"
    for convert in (x.numpy, lambda: np.asarray(x), lambda: np.array([1.0, 2.0]) + np.array(x)):
        with raises(TypeError, text):
            convert()
    assert x.cpu().numpy().sum() == 2
    assert x.tolist() == [1.0, 1.0]
    assert x.__cuda_array_interface__["shape"] == (2,)
    assert x.__dlpack_device__()[0] == 2
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()


# Operands of both devices

OTHER = "Expected all tensors to be on the same device"
MIXED = {
    "add": lambda x, y: x + y,
    "add_": lambda x, y: x.add_(y),
    "add_ of the cpu": lambda x, y: y.add_(x),
    "mm": lambda x, y: x @ y,
    "linear": lambda x, y: F.linear(x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "embedding": lambda x, y: F.embedding(torch.tensor([0, 1]), x),
    "gather": lambda x, y: x.gather(0, torch.zeros(1, 4, dtype=torch.long)),
    "cross_entropy": lambda x, y: F.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[0]),
    "index_add": lambda x, y: x.index_add(0, torch.tensor([0, 1, 2, 3]), x),
    "comparison": lambda x, y: x == y,
    "conv": lambda x, y: F.conv1d(x[None], torch.ones(2, 4, 3)),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "scatter_add": lambda x, y: x.scatter_add(0, torch.zeros(1, 4, dtype=torch.long), x),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
}


@case
def operands_of_both_devices_are_refused():
    for name, call in MIXED.items():
        try:
            call(rand(4, 4), torch.randn(4, 4))
        except RuntimeError as error:
            text = str(error).lower()
        else:
            raise AssertionError(f"{name}: no error")
        assert "device" in text or "cuda" in text, f"{name}: {text}"
    with raises(RuntimeError, OTHER, "cuda:0", "cpu"):
        rand(4, 4) + torch.randn(4, 4)
    with raises(RuntimeError, OTHER, "mat2"):
        rand(4, 4) @ torch.randn(4, 4)
    with raises(RuntimeError, "indices should be either on cpu or on the same device"):
        torch.ones(2)[torch.tensor([0], device="cuda")]
    layer = nn.Linear(4, 4)
    with raises(RuntimeError, OTHER):
        layer(rand(2, 4))
    weight = nn.Parameter(torch.ones(2))
    with raises(RuntimeError, "device"):
        weight.grad = torch.ones(2, device="cuda")


@case
def operands_of_both_devices_that_are_taken():
    x = torch.arange(4.0, device="cuda")
    assert (x + torch.tensor(1.0)).is_cuda
    assert (torch.tensor(2.0) * x).tolist() == [0, 2, 4, 6]
    assert x[torch.tensor([1, 3])].tolist() == [1, 3]
    assert x[torch.tensor([True, False, False, True])].is_cuda
    x[torch.tensor([0])] = 7.0
    x[1] = torch.tensor(5.0)
    x.copy_(x.cpu() + 1)
    assert x.tolist() == [8, 6, 3, 4]
    assert torch.ones(4).copy_(x).tolist() == [8, 6, 3, 4]
    assert x.masked_fill(x > 5, torch.tensor(0.0)).tolist() == [0, 0, 3, 4]
    assert torch.zeros(2, device="cuda").fill_(torch.tensor(3.0)).tolist() == [3, 3]


@case
def operators_without_a_cuda_kernel_are_refused():
    x = rand(8)
    with raises(NotImplementedError, "aten::histogram", "CUDA"):
        torch.histogram(x, 3)


# Gradients


@case
def gradients_before_compile():
    torch.manual_seed(0)
    model = small_model().cuda()
    x = rand(5, 4)
    model(x).sum().backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    torch.compile(model)(x).sum().backward()
    for parameter, grad in zip(model.parameters(), before, strict=True):
        assert parameter.grad.is_cuda
        close(parameter.grad, 2 * grad, 1e-3)


@case
def hooks_see_the_device():
    seen = []
    x = rand(3).requires_grad_()
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad.device))
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.device))
    layer = nn.Linear(3, 3).cuda()
    layer.register_full_backward_hook(lambda m, i, o: seen.extend([i[0].device, o[0].device]))
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        z = layer(y).exp()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (seen.append(t.device), t.cpu())[1], lambda t: t.cuda()
    ):
        z = z.sin()
    z.sum().backward()
    assert len(seen) == 5
    assert set(seen) == {CUDA}
    assert x.grad.is_cuda


@case
def gradients_of_gradients():
    x = rand(4).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: (x.sin() * x).cumsum(0), (x,))
    assert torch.autograd.gradgradcheck(lambda x: x.sin() * x.sum(), (x,))
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    close(second, 6 * x.detach())
    got = torch.autograd.functional.hessian(lambda x: (x**3).sum(), x.detach())
    close(got, torch.diag(6 * x.detach()))


@case
def function_of_the_user():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            assert x.is_cuda
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            assert grad.is_cuda
            assert x.is_cuda
            return grad * 2

    x = rand(3).requires_grad_()
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    results = []
    thread = threading.Thread(
        target=lambda: results.extend(torch.autograd.grad(Double.apply(x).sum(), x))
    )
    thread.start()
    thread.join()
    assert results[0].device == CUDA


@case
def checkpointing():
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    layers = nn.Sequential(
        *(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh()) for _ in range(3))
    ).cuda()
    x = rand(4, 8).requires_grad_()

    def gradient(run):
        torch.manual_seed(1)
        x.grad = None
        run(x).sum().backward()
        return x.grad

    def in_parts(reentrant):
        def run(x):
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

        return run

    wanted = gradient(layers)
    assert wanted.is_cuda
    for reentrant in (False, True):
        close(gradient(in_parts(reentrant)), wanted)
    checkpoint_sequential(layers, 2, x, use_reentrant=False).sum().backward()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = checkpoint(layers[0], x, use_reentrant=False)
    y.float().sum().backward()


@case
def optimisers():
    def trained(device, kind, **options):
        torch.manual_seed(0)
        model = nn.Linear(4, 3).to(device)
        optimiser = kind(model.parameters(), lr=0.01, **options)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
        x = torch.linspace(0, 1, 8).view(2, 4).to(device)
        for _ in range(3):
            optimiser.zero_grad()
            model(x).square().sum().backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimiser.step()
            schedule.step()
        return [norm, model.weight.detach(), model.bias.detach()]

    adam, sgd = torch.optim.Adam, torch.optim.SGD
    kinds = [(sgd, {"momentum": 0.9}), (adam, {}), (torch.optim.AdamW, {"foreach": True})]
    kinds += [(adam, {"fused": True}), (sgd, {"fused": True}), (adam, {"amsgrad": True})]
    kinds += [(torch.optim.RMSprop, {}), (torch.optim.Adagrad, {})]
    for kind, options in kinds:
        wanted = trained("cpu", kind, **{k: v for k, v in options.items() if k != "fused"})
        for got, other in zip(trained("cuda", kind, **options), wanted, strict=True):
            assert got.is_cuda
            close(got.cpu(), other)
    capturable = trained("cuda", adam, capturable=True)
    close(capturable[1].cpu(), trained("cpu", adam)[1])


@case
def recurrent_networks():
    torch.backends.cudnn.allow_tf32 = False  # as it is by default on a GPU
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(0)
        here = kind(3, 4, num_layers=2, bidirectional=True)
        there = copy.deepcopy(here).cuda()
        x = torch.randn(5, 2, 3)
        wanted, got = here(x)[0], there(x.cuda())[0]
        assert got.is_cuda
        close(got.cpu(), wanted)
        wanted.square().sum().backward()
        got.square().sum().backward()
        for mine, other in zip(there.parameters(), here.parameters(), strict=True):
            close(mine.grad.cpu(), other.grad, 1e-3)
    close(nn.LSTMCell(3, 4).cuda()(rand(2, 3))[0].shape, torch.Size([2, 4]))
    close(nn.GRUCell(3, 4).cuda()(rand(2, 3)).shape, torch.Size([2, 4]))


# Numbers


@case
def halves_are_rounded_once():
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 1e-2)):
        a, b = torch.randn(64, 512).to(dtype), torch.randn(512, 64).to(dtype)
        got = (a.cuda() @ b.cuda()).cpu()
        torch.testing.assert_close(
            got, (a.double() @ b.double()).to(dtype), rtol=tolerance, atol=2e-2
        )
        x = torch.full((4097,), 0.1).to(dtype)
        assert x.cuda().sum().item() == x.double().sum().to(dtype).item()
        close(F.softmax(x.cuda(), 0).cpu(), F.softmax(x.double(), 0).to(dtype))
    assert torch.ones(3, dtype=torch.half, device="cuda").sum().dtype is torch.half
    assert (
        torch.ones(70000, dtype=torch.half, device="cuda").sum(dtype=torch.float32).item() == 70000
    )
    assert torch.ones(3, dtype=torch.int32, device="cuda").sum().dtype is torch.int64


@case
def autocast_and_its_scaler():
    a, b = rand(4, 4), rand(4, 4)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")
        assert (a @ b).dtype is torch.bfloat16
        assert F.linear(a, b).dtype is torch.bfloat16
        assert F.softmax(a.bfloat16(), -1).dtype is torch.float32
        assert (a.cpu() @ b.cpu()).dtype is torch.float32
        assert torch.cat([a, a.bfloat16()]).dtype is torch.float32
        with torch.autocast("cuda", enabled=False):
            assert (a @ b).dtype is torch.float32
    with torch.autocast("cuda"):
        assert (a @ b).dtype is torch.float16
    model = nn.Linear(4, 2).cuda()
    optimiser, scaler = (
        torch.optim.SGD(model.parameters(), 0.1),
        torch.amp.GradScaler("cuda", init_scale=1024.0),
    )
    before = model.weight.detach().clone()
    for scale in (1.0, float("inf")):
        optimiser.zero_grad()
        with torch.autocast("cuda"):
            loss = model(a).sum() * scale
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
    assert scaler.get_scale() == 512.0
    assert torch.isfinite(model.weight).all()
    assert not torch.equal(model.weight, before)


@case
def complex_and_spectra():
    x = torch.randn(4, 6, dtype=torch.complex64)
    y = x.cuda()
    for call in (
        *(lambda x: x.conj() * x, lambda x: x.abs(), lambda x: x.conj().T @ x, torch.fft.fft),
        *(lambda x: x.real + x.imag, lambda x: torch.view_as_real(x * 2), lambda x: x.angle()),
        *(lambda x: x.resolve_conj().sum(), lambda x: torch.fft.irfft(torch.fft.rfft(x.real))),
        *(lambda x: torch.linalg.svdvals(x), lambda x: x.imag.neg() + (-x.conj()).imag),
    ):
        got = call(y)
        assert got.is_cuda
        close(got.cpu(), call(x))
    assert y.conj().is_conj()


@case
def sparse_layouts():
    x = torch.eye(4) * torch.arange(1.0, 5.0)
    y = x.cuda()
    coo, csr = y.to_sparse(), y.to_sparse_csr()
    assert coo.is_cuda
    assert csr.is_cuda
    assert coo.indices().is_cuda
    close(coo.to_dense().cpu(), x)
    close(torch.sparse.mm(coo, y).cpu(), x @ x)
    close((csr @ y).cpu(), x @ x)
    close((coo + coo).coalesce().values().cpu(), 2 * x.diag())
    made = torch.sparse_coo_tensor([[0, 1], [1, 2]], [3.0, 4.0], (2, 3), device="cuda")
    assert made.to_dense().tolist() == [[0, 3, 0], [0, 0, 4]]
    weight = nn.Embedding(5, 2, sparse=True).cuda()
    weight(torch.tensor([1, 1], device="cuda")).sum().backward()
    assert weight.weight.grad.is_sparse
    assert weight.weight.grad.is_cuda


# Random numbers


@case
def generators():
    first = torch.Generator(device="cuda").manual_seed(3)
    assert first.device.type == "cuda"
    a = torch.randn(4, device="cuda", generator=first)
    again = torch.Generator(device="cuda").manual_seed(3)
    assert torch.equal(a, torch.randn(4, device="cuda", generator=again))
    assert first.initial_seed() == 3
    state = first.get_state()
    assert state.dtype is torch.uint8
    assert state.device.type == "cpu"
    b = torch.rand(3, device="cuda", generator=first)
    first.set_state(state)
    assert torch.equal(b, torch.rand(3, device="cuda", generator=first))
    with raises(RuntimeError, "Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.randn(4, generator=first)
    with raises(RuntimeError, "Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randn(4, device="cuda", generator=torch.Generator())
    x = torch.empty(5, device="cuda")
    x.normal_(generator=first)
    torch.randperm(5, device="cuda", generator=first)
    torch.multinomial(torch.ones(4, device="cuda"), 2, generator=first)
    torch.bernoulli(torch.full((4,), 0.5, device="cuda"), generator=first)
    assert first.clone_state().device == first.device


@case
def streams_of_random_numbers():
    torch.manual_seed(5)
    wanted, there = torch.rand(3), torch.rand(3, device="cuda")
    torch.manual_seed(5)
    assert torch.equal(there, torch.rand(3, device="cuda"))
    torch.rand(100, device="cuda")
    assert torch.equal(wanted, torch.rand(3))
    torch.cuda.manual_seed_all(1)
    assert torch.cuda.initial_seed() == 1
    state = torch.cuda.get_rng_state()
    a = F.dropout(torch.ones(100, device="cuda"))
    torch.rand(4)
    torch.cuda.set_rng_state(state)
    assert torch.equal(a, F.dropout(torch.ones(100, device="cuda")))
    torch.manual_seed(7)
    inside = torch.rand(2, device="cuda"), torch.rand(2)
    torch.manual_seed(7)
    with torch.random.fork_rng():
        torch.rand(7, device="cuda")
        torch.rand(7)
    assert torch.equal(inside[0], torch.rand(2, device="cuda"))
    assert torch.equal(inside[1], torch.rand(2))


# Files and processes


@case
def saved_and_loaded():
    model = small_model().cuda()
    optimiser = torch.optim.Adam(model.parameters())
    model(rand(5, 4)).sum().backward()
    optimiser.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, file)

    def loaded(**options):
        file.seek(0)
        return torch.load(file, **options)

    there = loaded()
    assert there["model"]["0.weight"].is_cuda
    assert there["optimiser"]["state"][0]["exp_avg"].is_cuda
    places = {"cpu": "cpu", CUDA: "cuda", "cuda:0": "cuda"}
    moves = [(where, name) for where, name in places.items()]
    moves += [({"cuda:0": "cpu"}, "cpu"), (lambda storage, place: storage, "cpu")]
    moves += [(lambda storage, place: storage.cuda(), "cuda"), (torch.device("cpu"), "cpu")]
    for where, name in moves:
        state = loaded(map_location=where)["model"]
        assert state["0.weight"].device.type == name, (where, state["0.weight"].device)
        close(state["0.weight"].cpu(), model[0].weight.detach().cpu())
    other = small_model().cuda()
    other.load_state_dict(there["model"])
    assert all(x.is_cuda for x in other.state_dict().values())
    assert pickle.loads(pickle.dumps(torch.ones(2, device="cuda"))).is_cuda
    x = torch.arange(6.0, device="cuda").view(2, 3)
    file = io.BytesIO()
    torch.save([x, x[1]], file)
    file.seek(0)
    whole, row = torch.load(file)
    row.zero_()
    assert whole[1].sum() == 0


@case
def storages():
    storage = torch.arange(4.0, device="cuda").untyped_storage()
    assert storage.is_cuda
    assert storage.device == CUDA
    assert storage.nbytes() == 16
    assert not storage.cpu().is_cuda
    assert storage.cpu().cuda().is_cuda
    assert storage.clone().is_cuda
    made = torch.UntypedStorage(8, device="cuda")
    assert made.is_cuda
    x = torch.empty(0, device="cuda")
    x.set_(storage.clone(), 0, (4,), (1,))
    x = torch.zeros(2, device="cuda").set_(x)
    assert x.tolist() == [0, 1, 2, 3]
    x.resize_(6)
    assert x.shape == (6,)
    assert x.is_cuda
    assert x[:4].tolist() == [0, 1, 2, 3]
    y = x.view(2, 3)
    y[0, 1] = 9
    assert x[1].item() == 9
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x.data = torch.ones(2, device="cuda")
    assert x.tolist() == [1, 1]


LOADER = """
import sys, torch
state = torch.load(sys.argv[1], map_location="cpu")
assert state["w"].device.type == "cpu", state["w"].device
print(state["w"].sum().item())
try:
    torch.load(sys.argv[1])
except RuntimeError as error:
    assert "map_location" in str(error)
else:
    assert torch.cuda.is_available()
"""


@case
def files_that_are_loaded_elsewhere():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        torch.save({"w": torch.ones(3, device="cuda")}, path)
        done = subprocess.run(
            [sys.executable, "-c", LOADER, str(path)], capture_output=True, text=True, check=False
        )
    assert done.stdout.strip() == "3.0", done.stderr


# What looks at calls


class Seen(TorchDispatchMode):
    """Notes the operator of each call, and the devices of all tensors."""

    def __init__(self):
        super().__init__()
        self.names, self.devices = [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        self.names.append(str(func))
        self.devices |= {x.device for x in tensors}
        return out


@case
def dispatch_modes():
    model, x = small_model().cuda(), rand(5, 4)
    with Seen() as seen:
        model(x).sum().backward()
        torch.zeros(3, device="cuda") + 1
    assert seen.devices == {CUDA}
    assert {"aten.addmm.default", "aten.relu.default", "aten.mm.default"} <= {*seen.names}
    with torch.overrides.BaseTorchFunctionMode():
        assert (x + 1).is_cuda


@case
def counted_flops():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        x = rand(4, 8).requires_grad_()
        (x @ rand(8, 16)).sum().backward()
        F.conv2d(rand(1, 3, 8, 8), rand(4, 3, 3, 3))
    assert counter.get_total_flops() == 2 * 4 * 8 * 16 * 2 + 2 * 4 * 3 * 9 * 36


@case
def traced_graphs():
    from torch.fx.experimental.proxy_tensor import make_fx

    w, x = rand(4, 4), rand(2, 4)

    def function(x, w):
        return (x @ w).relu() + torch.ones(4, device=x.device)

    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(function, tracing_mode=mode)(x, w)
        close(graph(x, w), function(x, w))
        assert "cuda" in graph.code
        assert "device(type='cpu')" not in graph.code
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    exported = torch.export.export(model, (x,))
    close(exported.module()(x), model(x))
    values = [n.meta["val"] for n in exported.graph.nodes if "val" in n.meta]
    assert {v.device for v in values} == {CUDA}
    exported.run_decompositions()
    close(torch.jit.trace(model, x)(x), model(x))
    close(torch.fx.symbolic_trace(model)(x), model(x))


@case
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        a = torch.empty(3, 4, device="cuda")
        b = (a @ a.t()).softmax(-1)
        assert b.device == CUDA
        assert b.is_cuda
        assert b.cpu().device.type == "cpu"
        with raises(RuntimeError, "device"):
            a + torch.empty(3, 4)
    assert FakeTensorMode().from_tensor(rand(2)).device == CUDA
    assert mode.from_tensor(rand(2)).is_cuda


@case
def transforms():
    from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap

    x, w = rand(5, 3), rand(3)
    got = vmap(grad(lambda w, x: (w * x).sin().sum()), in_dims=(None, 0))(w, x)
    close(got, (w * x).cos() * x)
    assert got.device == CUDA
    close(jacrev(torch.sin)(w), torch.diag(w.cos()))
    close(hessian(lambda w: (w**3).sum())(w), torch.diag(6 * w))
    close(jvp(torch.sin, (w,), (torch.ones_like(w),))[1], w.cos())
    models = [nn.Linear(3, 2).cuda() for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    out = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    close(out, torch.stack([model(x) for model in models]))
    noise = vmap(lambda x: F.dropout(x), randomness="different")(torch.ones(4, 50, device="cuda"))
    assert noise.is_cuda


class Wrapped(torch.Tensor):
    """A tensor that holds another, and knows nothing itself."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from torch.utils._pytree import tree_map_only

        args, kwargs = tree_map_only(cls, lambda x: x.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


@case
def subclasses():
    class Named(torch.Tensor):
        pass

    x = rand(3)
    named = x.as_subclass(Named)
    assert type(named + 1) is Named
    assert (named + 1).is_cuda
    wrapped = Wrapped(x)
    assert wrapped.device == CUDA
    assert wrapped.is_cuda
    total = (wrapped * 2).sum()
    assert type(total) is Wrapped
    close(total.inner, (x * 2).sum())
    close(wrapped.cpu().inner, x.cpu())
    assert not wrapped.cpu().is_cuda
    parameter = nn.Parameter(x)
    assert type(parameter) is nn.Parameter
    assert parameter.cuda() is parameter
    assert type(copy.deepcopy(parameter)) is nn.Parameter


@case
def operators_of_the_user():
    @torch.library.custom_op("device_programs::twice", mutates_args=(), device_types="cuda")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    twice.register_autograd(lambda ctx, grad: grad * 2)

    @torch.library.custom_op("device_programs::add_one", mutates_args=("x",))
    def add_one(x: torch.Tensor) -> None:
        x.add_(1)

    x = rand(3).requires_grad_()
    twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    with raises(NotImplementedError, "device_programs::twice"):
        twice(torch.ones(2))
    y = torch.zeros(2, device="cuda")
    add_one(y)
    assert y.tolist() == [1, 1]
    torch.library.opcheck(twice, (rand(10).requires_grad_(),))
    torch.library.opcheck(add_one, (rand(10),))


@case
def profiled():
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        with record_function("mine"):
            rand(4, 4) @ rand(4, 4)
    names = {event.key for event in recorded.key_averages()}
    assert {"mine", "aten::matmul", "aten::mm", "aten::randn"} <= names


# The device


@case
def streams_and_events():
    side = torch.cuda.Stream()
    assert side != torch.cuda.current_stream()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        x = rand(4) + 1
        x.record_stream(side)
        ended.record()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.current_stream().wait_event(ended)
    torch.cuda.synchronize()
    assert ended.query()
    assert begun.elapsed_time(ended) >= 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(0):
        assert rand(1).device == CUDA
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.accelerator.is_available()


@case
def cuda_graphs():
    x, w = rand(4, 4), rand(4, 4)
    out = x @ w
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (x @ w).relu()
    x.fill_(1)
    w.fill_(1)
    graph.replay()
    assert out.flatten().tolist() == [4.0] * 16
    called = torch.cuda.make_graphed_callables(nn.Linear(4, 2).cuda(), (rand(3, 4),))
    assert called(rand(3, 4)).is_cuda


@case
def pinned_memory():
    x = torch.ones(4).pin_memory()
    assert x.is_pinned()
    assert not torch.ones(4).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert not x.is_cuda
    y = x.to("cuda", non_blocking=True)
    assert y.is_cuda
    assert y.tolist() == [1, 1, 1, 1]
    assert x[1:].is_pinned()
    with raises(RuntimeError, "pin"):
        y.pin_memory()
    data = torch.utils.data.TensorDataset(torch.arange(6.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True):
        assert batch.is_pinned()


@case
def memory_in_use():
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1 << 20, device="cuda")
    view = x[5:]
    assert torch.cuda.memory_allocated() - before == 4 << 20
    y = x + 1
    del x
    assert torch.cuda.memory_allocated() - before == 8 << 20
    del view, y
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before == 8 << 20
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    with raises(torch.cuda.OutOfMemoryError, "out of memory"):
        torch.empty(1 << 48, device="cuda")


@case
def mappings_of_threads():
    results = []

    def work():
        x = rand(3).requires_grad_()
        (x * 2).sum().backward()
        results.append(x.grad.device)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [CUDA] * 3


# Compiled


def check(function, *arguments, tolerance=1e-4, **options):
    """Compare a compiled function with itself: values, and where they are."""
    wanted = function(*arguments)
    got = torch.compile(function, **options)(*arguments)
    for mine, other in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        if isinstance(other, torch.Tensor):
            assert mine.device == other.device
            close(mine, other, tolerance)
        else:
            assert mine == other


@case
def compiled_to_the_cpu_and_back():
    check(lambda x: (x.cpu() + 1, x.to("cuda") * 2), rand(4))
    check(lambda x: (x.cpu() * 2).cuda().sin(), rand(4))
    check(lambda x: x + torch.arange(4).to(x.device), rand(4))
    check(lambda x: (x, x.device.type, x.is_cuda), rand(4), fullgraph=True)
    check(lambda x, y: x.cpu() + y, rand(4), torch.ones(4))
    check(lambda x: x * torch.tensor(2.0), rand(4))


@case
def compiled_mixed_devices_are_refused():
    with raises(Exception, "device"):
        torch.compile(lambda x, y: x + y, fullgraph=True)(rand(4), torch.ones(4))


@case
def compiled_in_other_shapes():
    w = rand(16, 24)
    function = torch.compile(lambda x: torch.softmax((x @ w).relu() * x.shape[0], -1), dynamic=True)
    for n in (3, 7, 40):
        x = rand(n, 16)
        close(function(x), torch.softmax((x @ w).relu() * n, -1))
    check(lambda x: x.nonzero().sum(), (rand(20) > 0).int())
    check(lambda x: x[x > 0].sin(), rand(20))
    check(lambda x: x * x.sum().item(), rand(20))


@case
def compiled_random_numbers():
    function = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x) * 0)
    x = torch.ones(1000, device="cuda")
    torch.manual_seed(3)
    first = function(x)
    torch.manual_seed(3)
    assert torch.equal(first, function(x))
    assert 300 < (first == 0).sum().item() < 700
    assert not torch.equal(first, function(x))
    assert torch.compile(lambda: torch.randn(50, device="cuda"))().device == CUDA


@case
def compiled_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (rand(1, 2, 128, 16) for _ in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cuda")
    assert mask.kv_indices.is_cuda
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(flex_attention(q, k, v, block_mask=mask), wanted, 1e-3)
    close(torch.compile(flex_attention)(q, k, v, block_mask=mask), wanted, 1e-3)


@case
def compiled_checkpointing_and_transforms():
    from torch.utils.checkpoint import checkpoint

    layer, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).cuda(), rand(4, 8).requires_grad_()

    def gradient(wrap):
        x.grad = None
        wrap(lambda x: checkpoint(layer, x, use_reentrant=False).square().sum())(x).backward()
        return x.grad.clone()

    close(gradient(torch.compile), gradient(lambda f: f))
    check(torch.func.vmap(torch.func.grad(lambda x: x.sin().sum())), rand(4, 3))
    check(torch.func.jacrev(lambda x: x.sin()), rand(4))


@case
def compiled_by_other_backends():
    model, x = small_model().cuda().eval(), rand(5, 4)
    for backend in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
        torch._dynamo.reset()
        model.zero_grad()
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        y = compiled(x)
        close(y, model(x), 1e-3)
        y.sum().backward()
        assert model[0].weight.grad.device == CUDA
    exported = torch.export.export(model, (x,)).module()
    close(torch.compile(exported)(x), model(x), 1e-3)


@case
def compiled_autocast():
    layer, x = nn.Linear(16, 16).cuda(), rand(4, 16)

    def function(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return F.softmax(layer(x), -1), layer(x)

    got = torch.compile(function, fullgraph=True)(x)
    assert [y.dtype for y in got] == [torch.float32, torch.bfloat16]
    close(got, function(x), 3e-2)
    got[0].sum().backward()
    assert layer.weight.grad.is_cuda


@case
def compiled_control_flow():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    for x in (torch.ones(3, device="cuda"), -torch.ones(3, device="cuda")):
        check(function, x, fullgraph=True)

    def breaks(x):
        y = x.sin()
        return y + 1 if y.sum() > 0 else y - 1

    check(breaks, torch.ones(3, device="cuda"))
    check(breaks, -torch.ones(3, device="cuda"))


@case
def compiled_in_place():
    def function(x, y):
        x.add_(1)
        y[1:] = x[:-1]
        return x.sum()

    mine, other = ([rand(4).fill_(2), rand(4).fill_(3)] for _ in range(2))
    close(torch.compile(function)(*mine), function(*other))
    close(mine, other)

    @torch.compile
    def step():
        optimiser.step()

    model = nn.Linear(4, 4).cuda()
    optimiser = torch.optim.Adam(model.parameters(), foreach=True, capturable=True)
    again = copy.deepcopy(model)
    plain = torch.optim.Adam(again.parameters())
    for _ in range(2):
        model(mine[0]).sum().backward()
        again(mine[0]).sum().backward()
        step()
        plain.step()
    close(list(model.parameters()), list(again.parameters()))


@case
def compiled_operators_of_the_user():
    import triton
    import triton.language as tl

    @triton.jit
    def sine(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.sin(tl.load(x + i, mask=i < n)), mask=i < n)

    @torch.library.triton_op("device_programs::sine", mutates_args={})
    def sine_of(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        n = x.numel()
        torch.library.wrap_triton(sine)[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
        return y

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    sine_of.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=save)
    x = rand(100).requires_grad_()
    sine_of(x).sum().backward()
    close(x.grad, x.detach().cos())
    x.grad = None
    torch.compile(lambda x: (sine_of(x) * 2).sum(), fullgraph=True)(x).backward()
    close(x.grad, 2 * x.detach().cos())
    torch.library.opcheck(sine_of, (rand(10),))


@case
def compiled_subclasses_and_modes():
    class Named(torch.Tensor):
        pass

    check(lambda x: x.sin() + 1, rand(4).as_subclass(Named))
    x = rand(4)
    with Seen() as seen:
        torch.compile(lambda x: x.sin(), backend="eager")(x)
    assert seen.devices == {CUDA}
    with torch.device("cuda"):
        check(lambda x: x + torch.ones(4), x)
    for mode in ("reduce-overhead", "max-autotune-no-cudagraphs"):
        torch._dynamo.reset()
        check(lambda x: (x @ x.t()).relu(), rand(16, 16), mode=mode, tolerance=1e-3)


if __name__ == "__main__":
    main(case)
