"""Programs of many kinds under torch.compile, each compared with itself run eagerly.

A script as `compiled_models` beside it, whose cases are one function or layer each. These are what
programs are made of: training steps, kernels of the user's in graphs, shapes that change, graphs
that break. Run with an empty cache of Inductor's, no graph of theirs may run uncompiled.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from compiled_models import Cases, check, main, rand
from compiled_models import case as models
from torch import nn

case = Cases()


def close(got, wanted, tolerance=1e-3):
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def check_training(model, *inputs, tolerance=1e-3, **options):
    """Compare the gradients of all parameters."""

    def gradients(function):
        model.zero_grad()
        out = function(*inputs)
        (out * torch.arange(out.numel(), device="cuda").view(out.shape)).mean().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    close(gradients(torch.compile(model, **options)), gradients(model), tolerance)
    assert all(parameter.grad.is_cuda for parameter in model.parameters())


@case
def version_of_triton():
    from torch.utils import _triton

    assert _triton.has_triton()
    assert _triton.get_triton_version() == tuple(map(int, triton.__version__.split(".")[:2]))


# Layers and losses, also of sizes for which Inductor considers padding.


@case
def linear_of_odd_sizes():
    check(nn.Linear(80, 160).cuda().eval(), rand(33, 80))
    check(nn.Linear(77, 161).cuda().half().eval(), rand(33, 77).half(), tolerance=3e-2)


@case
def products_of_odd_sizes():
    check(torch.bmm, rand(3, 65, 513), rand(3, 513, 129), tolerance=1e-2)
    check(lambda a, b: a @ b + 1, rand(129, 515), rand(515, 259), tolerance=1e-2)


@case
def losses():
    def total(x, y, target, chance):
        log = F.log_softmax(x, -1)
        return (
            F.mse_loss(x, y) + F.huber_loss(x, y) + F.nll_loss(log, target),
            F.kl_div(log, F.softmax(y, -1), reduction="batchmean"),
            F.binary_cross_entropy_with_logits(x, chance),
            F.cosine_similarity(x, y).mean() + F.triplet_margin_loss(x, y, x + 1),
        )

    target = torch.randint(0, 30, (20,), device="cuda")
    check(total, rand(20, 30), rand(20, 30), target, torch.rand(20, 30, device="cuda"))


@case
def loss_backward():
    target = torch.randint(0, 30, (20,), device="cuda")

    def loss(x):
        return F.cross_entropy(x, target, label_smoothing=0.1) + F.smooth_l1_loss(x, x.detach() + 1)

    x = rand(20, 30).requires_grad_()
    y = x.detach().clone().requires_grad_()
    torch.compile(loss)(x).backward()
    loss(y).backward()
    close(x.grad, y.grad)


@case
def convolutional_network():
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=8), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 5)),
    )
    check_training(model.cuda(), rand(2, 3, 16, 16), tolerance=1e-2)


@case
def convolution_of_channels_last():
    for dtype in (torch.float32, torch.bfloat16):
        layer = nn.Conv2d(4, 8, 3).to("cuda", dtype, memory_format=torch.channels_last).eval()
        x = rand(2, 4, 8, 8).to(dtype).to(memory_format=torch.channels_last)
        check(lambda x, layer=layer: F.relu(layer(x)), x, tolerance=5e-2)


@case
def transformer_layer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).cuda()
    check_training(layer, rand(2, 10, 32), tolerance=1e-2)
    check(layer.eval(), rand(2, 10, 32))


@case
def fused_attention_backward():
    tensors = [rand(2, 4, 16, 32).requires_grad_() for _ in range(3)]

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).sum()

    wanted = torch.autograd.grad(attend(*tensors), tensors)
    close(torch.autograd.grad(torch.compile(attend)(*tensors), tensors), wanted, 1e-2)


@case
def recurrent_network():
    check(nn.LSTM(8, 16, 2, batch_first=True).cuda().eval(), rand(2, 5, 8))


@case
def embedding_backward():
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 8)).cuda()
    check_training(model, torch.randint(0, 50, (6, 4), device="cuda"))


@case
def embedding_bag():
    check(nn.EmbeddingBag(50, 16, mode="mean").cuda(), torch.randint(0, 50, (6, 4), device="cuda"))


@case
def mixture_of_experts():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(16, 4)
            self.weights = nn.Parameter(torch.randn(4, 16, 16) * 0.1)

        def forward(self, x):
            shares, chosen = self.gate(x).softmax(-1).topk(2)
            each = torch.einsum("ti,tkio->tko", x, self.weights[chosen])
            return (each * shares[..., None]).sum(1)

    check_training(Mixture().cuda(), rand(7, 16), tolerance=1e-2)


# Training.


def trained(make, *, is_compiled, is_whole=False):
    torch.manual_seed(1)
    model = nn.Linear(8, 8).cuda()
    optimizer, x = make(model.parameters()), torch.arange(32.0, device="cuda").view(4, 8) / 32

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    if is_compiled and not is_whole:
        optimizer.step = torch.compile(optimizer.step)
    run = torch.compile(step) if is_compiled and is_whole else step
    for _ in range(3):
        run()
    return model.weight.detach()


@case
def adam():
    def make(parameters):
        return torch.optim.Adam(parameters, lr=0.01)

    close(trained(make, is_compiled=True), trained(make, is_compiled=False))


@case
def other_optimizers():
    for make in (
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, capturable=True),
        lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9),
    ):
        close(trained(make, is_compiled=True), trained(make, is_compiled=False))


@case
def whole_training_step():
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    wanted = trained(make, is_compiled=False)
    close(trained(make, is_compiled=True, is_whole=True), wanted)


@case
def recomputed_activations():
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x):
            hidden = checkpoint(lambda y: self.first(y).tanh(), x, use_reentrant=False)
            return self.last(hidden)

    check_training(Model().cuda(), rand(5, 16))


@case
def hooks_and_buffers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            self.calls.add_(1)
            return self.layer(x) * self.calls

    model, seen = Model().cuda(), []
    model.layer.weight.register_hook(lambda gradient: seen.append(gradient.is_cuda))
    torch.compile(model)(rand(2, 4)).sum().backward()
    assert (seen, model.calls.item()) == ([True], 1)


@case
def dropout_backward():
    x = torch.ones(4000, device="cuda", requires_grad=True)
    y = torch.compile(lambda x: F.dropout(x, 0.25))(x)
    y.sum().backward()
    close(y.detach(), x.grad)


@case
def seeds():
    draw, x = torch.compile(torch.rand_like), rand(100)
    torch.manual_seed(3)
    first = draw(x)
    torch.manual_seed(3)
    close(draw(x), first)


# Kernels and operators of the user's.


@triton.autotune(
    [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"]
)
@triton.jit
def scale_kernel(X, OUT, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i, mask=i < n) * factor, mask=i < n)


def scaled(x, factor):
    out = torch.empty_like(x)
    n = x.numel()
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, factor)
    return out


@case
def tuned_kernel():
    check(lambda x: scaled(x.sin(), 2.5) + 1, rand(1000))


@case
def tuned_kernel_of_many_shapes():
    function = torch.compile(lambda x: scaled(x + 1, 2.0), dynamic=True)
    for n in (10, 100, 1000):
        x = rand(n)
        close(function(x), (x + 1) * 2)


@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def increment_kernel(X, OUT, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None if EVEN else i < n
    tl.store(OUT + i, tl.load(X + i, mask=mask) + 1, mask=mask)


@case
def kernel_with_heuristics():
    def increment(x):
        out = torch.empty_like(x)
        increment_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out * 2

    check(increment, rand(100))
    check(increment, rand(128))


@triton.jit
def shift_kernel(X, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + i, tl.load(X + i, mask=i < n) + by, mask=i < n)


@case
def kernel_that_changes_its_input():
    def shift(x):
        shift_kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), 1.5, BLOCK=64, num_warps=2)
        return x.sum()

    x = rand(100)
    y = x.clone()
    close(torch.compile(shift)(x), shift(y))
    close(x, y)


@triton.jit
def copy_kernel(source, target, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    target.store([row, 0], source.load([row, 0]) * 2)


@case
def kernel_with_descriptors():
    from triton.tools.tensor_descriptor import TensorDescriptor

    def double(x):
        y = x + 1
        out = torch.empty_like(y)
        described = (TensorDescriptor.from_tensor(each, [16, 32]) for each in (y, out))
        copy_kernel[(4,)](*described, BLOCK=16)
        return out

    check(double, rand(64, 32))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scaled(x, factor)

    @staticmethod
    def backward(ctx, gradient):
        return scaled(gradient.contiguous(), ctx.factor), None


@case
def kernels_of_an_autograd_function():
    x = rand(10, 10).requires_grad_()
    torch.compile(lambda x: (Scale.apply(x, 3.0) * x).sum())(x).backward()
    close(x.grad, 6 * x.detach())


@torch.library.custom_op("tkdebug_tests::raise_by", mutates_args={"x"})
def raise_by(x: torch.Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("tkdebug_tests::with_sum", mutates_args=())
def with_sum(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, x.sum(-1)


@with_sum.register_fake
def _(x):
    return torch.empty_like(x), x.new_empty(x.shape[:-1])


@case
def operators_that_change_tensors():
    def use(x):
        y = x * 2
        raise_by(y, 1.0)
        more, total = with_sum(y)
        return more.relu() + total[:, None]

    check(use, rand(8, 9))


# Shapes, control flow, graph breaks.


@case
def shapes_and_gradients_that_change():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    compiled = torch.compile(model, dynamic=True)
    for rows in (3, 7, 12):
        x, weight = rand(rows, 8), model[0].weight
        (wanted,) = torch.autograd.grad(model(x).sum(), weight)
        close(torch.autograd.grad(compiled(x).sum(), weight)[0], wanted)


@case
def numbers_out_of_tensors():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        function = torch.compile(lambda x, n: x + n.item())
        # A kernel takes 1 as any other number.
        for number in (5, 1):
            x = rand(5)
            close(function(x, torch.tensor(number, device="cuda")), x + number)


@case
def sizes_out_of_tensors():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(lambda x: (x[x > 0] * 2).sum(), rand(50))


@case
def broken_graphs():
    def broken(x):
        y = x + 1
        y = y * 2 if y.sum() > 0 else y - 3
        torch._dynamo.graph_break()
        for step in range(3):
            y = y + step
            torch._dynamo.graph_break()
        return y.cos() + float(y.cpu().numpy().sum())

    check(broken, rand(8))


@case
def control_flow():
    from torch._higher_order_ops.associative_scan import associative_scan

    check(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), rand(8))
    x = rand(6, 10)
    scan = torch.compile(lambda x: associative_scan(torch.add, x, 0))
    close(scan(x), x.cumsum(0))


@case
def copies_between_devices():
    host, device = torch.randn(8), rand(8)
    for x, function in (
        (host, lambda x: (x.cuda() + 1).cpu() * 2),
        (device, lambda x: (x + 1).to("cpu") * 2),
        (host, lambda x: (x + 1).to(torch.zeros(1, device="cuda")) * 2),
        (device, lambda x: (x + 1).to(torch.zeros(1), copy=True).cuda().half()),
    ):
        close(torch.compile(function)(x), function(x), 1e-2)


@case
def streams():
    def forked(x):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            y = x + 1
        torch.cuda.current_stream().wait_stream(stream)
        return y * 2

    check(forked, rand(8))


# Operations.


@case
def inputs_changed_in_place():
    def change(cache, row, place):
        cache.index_copy_(1, place, row)
        view = cache.view(2, -1)
        view[:, 1:3].mul_(2)
        return view.t(), cache.sum(1)

    cache, row, place = rand(2, 16, 8), rand(2, 1, 8), torch.tensor([3], device="cuda")
    other = cache.clone()
    close(torch.compile(change)(cache, row, place), change(other, row, place))
    close(cache, other)


@case
def reductions_and_scans():
    def reduce(x):
        return (
            *torch.var_mean(x, -1),
            *(x.norm(), torch.logsumexp(x, -1), x.argmin(0), (x * 0.1).prod(-1)),
            *((x > 3).any(-1), x.std(0, correction=0), x.aminmax(dim=0).max, x.nansum()),
            *((x * 0.5).cumprod(-1), torch.cummax(x, -1).values, torch.logcumsumexp(x, -1)),
            *(x.topk(3).values, x.sort(descending=True).values, x.median(-1).values),
        )

    check(reduce, rand(20, 30))


@case
def gathers_and_scatters():
    index = torch.randint(0, 10, (10, 20), device="cuda")

    def move(x):
        zeros = torch.zeros_like(x)
        return (
            *(x.gather(1, index), zeros.scatter_add(1, index, x), x.index_select(0, index[0])),
            *(zeros.scatter_reduce(1, index, x, "amax"), x.roll(2, -1), x.flip(0)),
            torch.bincount(index.view(-1), minlength=10),
        )

    check(move, rand(10, 20))


@case
def integers():
    a = torch.randint(-50, 50, (100,), device="cuda")
    b = torch.randint(1, 9, (100,), device="cuda")
    check(
        lambda a, b: (a // b, a % b, a << 1, a ^ b, a.float() / b, torch.fmod(a, b), a.clamp(-3)),
        *(a, b),
    )


@case
def complex_numbers():
    angles = torch.polar(torch.ones(8, 16, device="cuda"), rand(8, 16))

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * angles[:, None]).flatten(3), torch.fft.rfft(x).abs()

    check(rotate, rand(2, 8, 4, 32))


@case
def images():
    def change(x):
        return (
            *(F.interpolate(x, scale_factor=2, mode="bilinear"), F.pixel_shuffle(x, 2)),
            *(F.pad(x, (1, 2, 3, 0), mode="reflect"), F.adaptive_avg_pool2d(x, 3), F.unfold(x, 3)),
            F.group_norm(x, 2),
        )

    check(change, rand(2, 4, 8, 8))


@case
def linear_algebra():
    a = rand(5, 5)
    a = a @ a.T + 5 * torch.eye(5, device="cuda")
    check(lambda a, b: (torch.linalg.cholesky(a), torch.linalg.solve(a, b)), a, rand(5, 2))


@case
def options_of_the_compiler():
    def matrices(x, w, b):
        return F.gelu(torch.addmm(b, x, w))

    inputs = rand(64, 48), rand(48, 80), rand(80)
    check(matrices, *inputs, tolerance=1e-2, mode="max-autotune")
    check(lambda x: x.sum(-1), rand(40, 300), options={"coordinate_descent_tuning": True})
    with torch.inference_mode():
        check(nn.Linear(16, 16).cuda(), rand(4, 16), fullgraph=True)


if __name__ == "__main__":
    main(case | models)
