"""Functions and models under torch.compile, each compared with itself run eagerly.

A script for `tkdebug run`: names of cases as arguments; a line for each that agrees. Of cases after
`--native` the kernels are compiled for a GPU as well, and given to Inductor's launchers.
"""

import sys
import traceback

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn


class Cases(dict):
    """Functions by name; a decorator adds them."""

    def __call__(self, function):
        self[function.__name__] = function
        return function


case = Cases()


def rand(*shape):
    return torch.randn(*shape, device="cuda")


def check(function, *arguments, tolerance=1e-4, **options):
    wanted = function(*arguments)
    got = torch.compile(function, **options)(*arguments)
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)
    first = got[0] if isinstance(got, tuple | list) else got
    assert first.device.type == "cuda"


@case
def pointwise():
    x, y = rand(33, 70), rand(33, 70)
    check(lambda x, y: torch.relu(x) * torch.tanh(y) + (x - y).sigmoid(), x, y)


@case
def broadcast():
    check(lambda x, y: (x + y).exp() * 2, rand(33, 1), rand(1, 70))


@case
def half():
    check(lambda x: F.gelu(x.bfloat16()) + 1, rand(64), tolerance=2e-2)


@case
def transposed():
    check(lambda x: (x.t() + 1).contiguous(), rand(33, 70))


@case
def views():
    check(lambda x: (x.view(4, 2).t()[1] * 3, x[::2] + 1), rand(8))


@case
def in_place():
    def change(x):
        x = x.clone()
        x.add_(1)
        x[2:5] = 0
        return x

    check(change, rand(8))


@case
def created_on_the_device():
    check(lambda x: x + torch.arange(8, device="cuda") + torch.zeros(8).to(x.device), rand(8))


@case
def reduction():
    check(lambda x: x.sum(-1), rand(40, 3000), tolerance=1e-3)


@case
def whole_reductions():
    check(lambda x: (x.mean(), x.var(), x.amax()), rand(20000), tolerance=1e-3)


@case
def argmax():
    check(lambda x: x.argmax(-1), rand(40, 300))


@case
def softmax():
    check(lambda x: F.softmax(x, -1), rand(40, 300))


@case
def cross_entropy():
    check(F.cross_entropy, rand(40, 300), torch.randint(0, 300, (40,), device="cuda"))


@case
def layer_norm():
    check(nn.LayerNorm(300).to("cuda"), rand(40, 300))


@case
def rms_norm():
    def norm(x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w

    check(norm, rand(40, 300), rand(300))


@case
def scan():
    check(lambda x: x.cumsum(-1), rand(10, 500), tolerance=1e-3)


@case
def split_scan():
    check(lambda x: x.cumsum(0), rand(100000), tolerance=1e-1)


@case
def sort():
    check(lambda x: x.sort(-1).values, rand(10, 64))


@case
def embedding():
    indices = torch.randint(0, 100, (7, 9), device="cuda")
    check(nn.Embedding(100, 64).to("cuda"), indices)


@case
def index_add():
    indices = torch.randint(0, 10, (30,), device="cuda")
    check(
        lambda x, i: torch.zeros(10, 20, device=x.device).index_add(0, i, x),
        *(rand(30, 20), indices),
        tolerance=1e-3,
    )


@case
def matmul():
    check(lambda x, w: F.relu(x @ w), rand(64, 32), rand(32, 48), tolerance=1e-2)


@case
def matmul_template():
    check(
        lambda x, w: F.relu(x @ w),
        *(rand(64, 32), rand(32, 48)),
        tolerance=1e-2,
        mode="max-autotune-no-cudagraphs",
    )


@case
def mlp():
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16)).to("cuda")
    check(model, rand(20, 32), tolerance=1e-2)


@case
def mlp_backward():
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16))
    model, x = model.to("cuda"), rand(20, 32)
    model(x).square().mean().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.compile(model)(x).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-3)
        assert parameter.grad.is_cuda


@case
def convolution():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
    check(nn.Sequential(*layers).to("cuda").eval(), rand(2, 3, 16, 16), tolerance=1e-3)


@case
def convolution_backward():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
    model, x = nn.Sequential(*layers).to("cuda"), rand(2, 3, 16, 16)
    model(x).square().sum().backward()
    wanted = model[0].weight.grad.clone()
    model.zero_grad()
    torch.compile(model)(x).square().sum().backward()
    torch.testing.assert_close(model[0].weight.grad, wanted, rtol=1e-2, atol=1e-2)


@case
def attention():
    def attend(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v

    check(attend, *(rand(2, 4, 32, 64) for _ in range(3)), tolerance=1e-2)


@case
def fused_attention():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    check(attend, *(rand(2, 4, 32, 64) for _ in range(3)), tolerance=1e-2)


@case
def flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(batch, head, query, key):
        return query >= key

    def bias(score, batch, head, query, key):
        return score + (query - key) * 0.01

    mask = create_block_mask(causal, None, None, 128, 128, device="cuda")
    q, k, v = (rand(1, 2, 128, 64) for _ in range(3))
    got = torch.compile(flex_attention)(q, k, v, score_mod=bias, block_mask=mask)
    places = torch.arange(128, device="cuda")
    distance = places[:, None] - places[None, :]
    scores = (q @ k.transpose(-1, -2) / 8 + distance * 0.01).masked_fill(distance < 0, -torch.inf)
    torch.testing.assert_close(got, scores.softmax(-1) @ v, rtol=1e-2, atol=1e-2)


@case
def gru_cell():
    check(nn.GRUCell(16, 32).to("cuda"), rand(4, 16), rand(4, 32), tolerance=1e-3)


@case
def dynamic_shapes():
    function = torch.compile(lambda x: (x * 2).sum(-1), dynamic=True)
    for extent in (5, 17, 130):
        x = rand(extent, extent + 3)
        torch.testing.assert_close(function(x), (x * 2).sum(-1), rtol=1e-4, atol=1e-4)


@case
def shapes_that_change():
    function = torch.compile(lambda x: F.softmax(x, -1))
    for extent in (5, 17, 130):
        x = rand(extent, extent + 3)
        torch.testing.assert_close(function(x), F.softmax(x, -1))


@case
def graph_break():
    def broken(x):
        y = x * 2
        z = torch.ones(4, device="cuda")
        return (y + z).sum() + float(y.sum().item())

    check(broken, rand(4))


@case
def dropout():
    ones = torch.ones(4000, device="cuda")
    dropped = torch.compile(lambda x: F.dropout(x, 0.5))(ones)
    assert 0.4 < (dropped == 0).float().mean() < 0.6


@case
def random_numbers():
    drawn = torch.compile(torch.rand_like)(torch.ones(4000, device="cuda"))
    assert 0.4 < drawn.mean() < 0.6


@case
def reduce_overhead():
    check(lambda x: torch.sin(x) + 1, rand(100), mode="reduce-overhead")


@case
def autocast():
    def multiply(x, w):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return x @ w

    check(multiply, rand(32, 32), rand(32, 32), tolerance=5e-2)


@case
def optimizer():
    parameter = nn.Parameter(rand(100))
    parameter.grad = rand(100)
    other = nn.Parameter(parameter.detach().clone())
    other.grad = parameter.grad.clone()
    torch.compile(torch.optim.SGD([parameter], lr=0.1).step)()
    torch.optim.SGD([other], lr=0.1).step()
    torch.testing.assert_close(parameter, other)


@triton.jit
def add_kernel(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i, mask=i < n) + tl.load(Y + i, mask=i < n), mask=i < n)


def added(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 64)
    return out


@case
def kernel_of_the_user():
    check(lambda x, y: added(x * 2, y).sin() + x, rand(200), rand(200))


@torch.library.triton_op("tkdebug_tests::add", mutates_args={})
def library_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = torch.library.wrap_triton(add_kernel)
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 64)
    return out


library_add.register_autograd(lambda context, gradient: (gradient, gradient))


@torch.library.custom_op("tkdebug_tests::subtract", mutates_args=(), device_types="cuda")
def library_subtract(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return added(x, -y)


@library_subtract.register_fake
def _(x, y):
    return torch.empty_like(x)


@case
def operators_of_a_library():
    x, y = rand(100).requires_grad_(), rand(100)
    torch.compile(lambda a, b: library_add(a, b) * 2)(x, y).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
    check(lambda a, b: library_subtract(a, b).sin(), x.detach(), y)


@case
def transforms():
    from torch.func import functional_call, grad, vmap

    model, x = nn.Linear(16, 4).to("cuda"), rand(8, 16)
    check(vmap(lambda row: row.sin().sum()), x)

    def loss(weight):
        return functional_call(model, {"weight": weight}, (x,)).square().sum()

    assert grad(loss)(model.weight.detach()).is_cuda


@case
def exported():
    model, x = nn.Sequential(nn.Linear(16, 8), nn.ReLU()).to("cuda"), rand(4, 16)
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))


def check_alignments():
    """Inputs that are not aligned are copied, also where Inductor looks at them unnoted."""
    from torch._inductor import utils

    from tkdebug.compat.inductor.native import look_unnoted
    from tkdebug.compat.replacements import Replacements

    look_unnoted(Replacements())
    x = torch.arange(8.0)
    inputs = [x, x[1:], 5]
    assert utils.copy_misaligned_inputs(inputs, [0], {0}) == ([], [])
    (old,), (new,) = utils.copy_misaligned_inputs(inputs, [0, 1], {1})
    assert inputs[0] is x
    assert old.data_ptr() == x[1:].data_ptr()
    assert new is inputs[1]
    assert torch.equal(new, old)
    assert new.data_ptr() % utils.ALIGNMENT == 0


def compile_natively_too():
    """Have each kernel compiled for a GPU, too, and a launch of it prepared as on one."""
    import tkdebug
    from tkdebug.compat.cuda_standin import compiling
    from tkdebug.compat.inductor.compiles import CodePool, Wanted, wanted_for
    from tkdebug.records.hook_chain import HOOKS

    check_alignments()
    interpret, pool, seen = compiling.run_interpreted, CodePool(2), []

    def run(self, *arguments, stream=None, **keywords):
        if not any(self is each for each in seen):
            seen.append(self)
            with tkdebug.mode("native"), wanted_for(Wanted(bool(self.custom_kernel))):
                pool.submit(lambda load: load(), lambda: self).result()
                results = [self._precompile_config(config) for config in self.configs]
            submitted = []
            for kernel in (result.kernel for result in results):
                kernel.function, kernel.submit = 1, lambda *passed: submitted.append(passed)
            # A recorder would time the launches.
            hooks, HOOKS.launch = HOOKS.launch, None
            for result in results:
                result.make_launcher()(*arguments, stream=7, **keywords)
            HOOKS.launch = hooks
            tensors = {each.data_ptr() for each in arguments if isinstance(each, torch.Tensor)}
            for _, _, _, on, *passed in submitted:
                assert on == 7
                assert tensors <= set(passed)
        return interpret(self, *arguments, stream=stream, **keywords)

    compiling.run_interpreted = run


def main(cases):
    """Run the cases that are named on the command line, or all.

    `--native` has those after it compiled for a GPU, too; after `--keep-going` the first line of a
    case's error is printed, and others follow.
    """
    torch.manual_seed(0)
    options = {"--native", "--keep-going"}
    given, keeps_going = sys.argv[1:], False
    for name in given if {*given} - options else [*given, *cases]:
        if name == "--native":
            compile_natively_too()
        elif name == "--keep-going":
            keeps_going = True
        else:
            torch._dynamo.reset()
            try:
                cases[name]()
                print(name, flush=True)
            except Exception as error:
                if not keeps_going:
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                line = traceback.extract_tb(error.__traceback__)[1].lineno
                print(f"{name}: {reason} (line {line})", flush=True)


if __name__ == "__main__":
    main(case)
