"""Processor time of common eager operators on the CUDA device of machines without a GPU.

python bench/standin_costs.py              # all of them, the commonest first
python bench/standin_costs.py tolist item  # these
python bench/standin_costs.py --beside DIR # and of the checkout in DIR, in turn with this one
python bench/standin_costs.py --count      # count the calls of four kinds of programs

Figures are medians of blocks of calls, in one process and on one thread.

`COMMONEST` is the result of `--count`: the calls of torch that four kinds of programs make with a
CUDA tensor, each kind weighing the same. A call is one in the program's text or in the Python code
of a module or an optimiser; what it is made of below counts as part of it. The programs are three
training steps of a Llama of transformers, three of a diffusion model's blocks (convolutions, group
norms, attention), steps of SGD and Adam with and without `foreach` and of averaged weights, and
`examples/`, which test Triton kernels against torch.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import runpy
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tkdebug.compat import cuda_standin

CALLS, BLOCKS, WARM_UP = 50, 31, 50
MOST_US, MOST_TIMES = 40, 2
ROOT = Path(__file__).resolve().parent.parent
# Three share the last place: 1.64 % of the calls.
COMMONEST = (
    "mul_ add_ add mul linear float transpose getitem view sqrt div item empty_like _foreach_mul_ "
    "silu cat lerp_ addcmul_ addcdiv_ reshape randn isclose all bool"
).split()


def operators():
    """Return calls by name, of tensors so small that only the call costs."""
    x, y = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    square, one = torch.ones(16, 16, device="cuda"), torch.ones((), device="cuda")
    image = torch.ones(1, 4, 8, 8, device="cuda")
    indices = torch.zeros(4, dtype=torch.int64, device="cuda")
    is_set, half, weight = x > 0, x.half(), torch.ones(4, 4, 3, 3, device="cuda")
    of_host, chances = torch.ones(64), torch.full((64,), 0.5, device="cuda")
    one_head = torch.ones(1, 1, 8, 8, device="cuda")
    return {
        "mul_": lambda: x.mul_(y),
        "add_": lambda: x.add_(0),
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "linear": lambda: F.linear(square, square),
        "float": lambda: half.float(),
        "transpose": lambda: square.transpose(0, 1),
        "getitem": lambda: x[2:5],
        "view": lambda: x.view(8, 8),
        "sqrt": lambda: x.sqrt(),
        "div": lambda: x / 2,
        "item": lambda: one.item(),
        "empty_like": lambda: torch.empty_like(x),
        "silu": lambda: F.silu(x),
        "cat": lambda: torch.cat((x, y)),
        "lerp_": lambda: x.lerp_(y, 0.5),
        "addcmul_": lambda: x.addcmul_(y, y, value=0.5),
        "addcdiv_": lambda: x.addcdiv_(y, y, value=0.5),
        "reshape": lambda: square.reshape(4, 64),
        "randn": lambda: torch.randn(64, device="cuda"),
        "isclose": lambda: torch.isclose(x, y),
        "all": lambda: is_set.all(),
        "bool": lambda: bool(one),
        "x + 1": lambda: x + 1,
        "x > 0": lambda: x > 0,
        "abs": lambda: x.abs(),
        "neg": lambda: -x,
        "pow": lambda: x**2,
        "exp": lambda: x.exp(),
        "matmul": lambda: square @ square,
        "sum": lambda: x.sum(),
        "mean": lambda: square.mean(-1),
        "max": lambda: x.max(),
        "argmax": lambda: square.argmax(-1),
        "logsumexp": lambda: square.logsumexp(-1),
        "norm": lambda: x.norm(),
        "index": lambda: x[indices],
        "index_put_": lambda: x.index_put_((indices,), one),
        "masked_fill": lambda: x.masked_fill(is_set, 1.0),
        "gather": lambda: x.gather(0, indices),
        "scatter_add_": lambda: x.scatter_add_(0, indices, y),
        "topk": lambda: x.topk(4),
        "sort": lambda: x.sort(),
        "cumsum": lambda: x.cumsum(0),
        "embedding": lambda: F.embedding(indices, square),
        "clone": lambda: x.clone(),
        "copy_": lambda: x.copy_(y),
        "half": lambda: x.half(),
        "stack": lambda: torch.stack((x, y)),
        "repeat": lambda: x.repeat(2),
        "where": lambda: torch.where(is_set, x, y),
        "softmax": lambda: square.softmax(-1),
        "layer_norm": lambda: F.layer_norm(square, (16,)),
        "group_norm": lambda: F.group_norm(image, 2),
        "gelu": lambda: F.gelu(x),
        "conv2d": lambda: F.conv2d(image, weight),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "pad": lambda: F.pad(x, (1, 1)),
        "cross_entropy": lambda: F.cross_entropy(square, indices.repeat(4)),
        "attention": lambda: F.scaled_dot_product_attention(one_head, one_head, one_head),
        "_foreach_add_": lambda: torch._foreach_add_([x, y], [y, x]),
        "_foreach_mul_": lambda: torch._foreach_mul_([x, y], 1.0),
        "empty": lambda: torch.empty(64, device="cuda"),
        "zeros": lambda: torch.zeros(64, device="cuda"),
        "zeros_like": lambda: torch.zeros_like(x),
        "arange": lambda: torch.arange(64, device="cuda"),
        "tensor": lambda: torch.tensor([1.0, 2.0, 3.0], device="cuda"),
        "cuda": lambda: of_host.cuda(),
        "cpu": lambda: x.cpu(),
        "tolist": lambda: x.tolist(),
        "equal": lambda: torch.equal(x, y),
        "rand": lambda: torch.rand(64, device="cuda"),
        "randint": lambda: torch.randint(9, (64,), device="cuda"),
        "randn_like": lambda: torch.randn_like(x),
        "randperm": lambda: torch.randperm(64, device="cuda"),
        "uniform_": lambda: x.uniform_(),
        "uniform_ to a bound": lambda: x.uniform_(-1, 1),
        "normal_": lambda: x.normal_(),
        "normal_ of a deviation": lambda: x.normal_(0, 0.02),
        "bernoulli": lambda: torch.bernoulli(chances),
        "multinomial": lambda: torch.multinomial(chances, 1),
        "dropout": lambda: F.dropout(y, 0.5),
    }


def microseconds(run, calls=CALLS):
    """Return the processor time of each of some calls."""
    start = time.process_time_ns()
    for _ in range(calls):
        run()
    return (time.process_time_ns() - start) / calls / 1000


def time_here(names):
    """Print the times of operators."""
    runs = operators()
    for name in names or runs:
        for _ in range(WARM_UP):
            runs[name]()
        times = [microseconds(runs[name]) for _ in range(BLOCKS)]
        print(f"{name:24} {statistics.median(times):6.1f} us", flush=True)


def answer():
    """Answer each line on stdin, a name, by the time of a block of calls."""
    runs = operators()
    print(flush=True)
    for line in sys.stdin:
        print(microseconds(runs[line.strip()]), flush=True)


def time_beside(folder, names):
    """Print the times of this checkout and of another one, whose blocks alternate."""
    with contextlib.ExitStack() as stack:
        asked = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, "--answer"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env={"PYTHONPATH": str(checkout)},
                )
            )
            for checkout in (ROOT, folder)
        ]
        for each in asked:
            each.stdout.readline()
        for name in names or operators():
            times = [[], []]
            for _ in range(BLOCKS + 1):
                for each, kept in zip(asked, times, strict=True):
                    each.stdin.write(f"{name}\n")
                    each.stdin.flush()
                    kept.append(float(each.stdout.readline()))
            # The first block warms up.
            times = [kept[1:] for kept in times]
            here, there = map(statistics.median, times)
            # Of blocks next to each other: a busy machine slows both.
            ratio = statistics.median(one / other for one, other in zip(*times, strict=True))
            is_kept = ratio <= MOST_TIMES if name in COMMONEST else here <= MOST_US
            print(
                f"{name:24} {here:6.1f} us, {there:6.1f} us there: {ratio:4.2f} times"
                f"{'' if is_kept else ', too much'}",
                flush=True,
            )


class _Dispatched(TorchDispatchMode):
    """Counts the operators that take or return a CUDA tensor."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        values = tree_leaves((args, kwargs, result))
        self.count += any(isinstance(each, torch.Tensor) and each.is_cuda for each in values)
        return result


class _Calls(TorchFunctionMode):
    """Counts the calls of torch that run such operators, by name."""

    def __init__(self, dispatched):
        super().__init__()
        self._dispatched = dispatched
        self.names = collections.Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before = self._dispatched.count
        result = func(*args, **(kwargs or {}))
        if self._dispatched.count > before:
            name = func.__name__
            self.names[name.strip("_") if name.startswith("__") else name] += 1
        return result


def llama():
    """Return a training step of a Llama."""
    import transformers

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).cuda()
    tokens = torch.randint(0, 64, (2, 16), device="cuda")
    return _step(list(model.parameters()), lambda: model(input_ids=tokens, labels=tokens).loss)


def _step(parameters, loss_of):
    optimiser = torch.optim.AdamW(parameters)

    def step():
        loss = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        loss.item()

    return step


class Block(nn.Module):
    """A residual block of convolutions, and attention over the pixels."""

    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.of_time, self.dropout = nn.Linear(width, width), nn.Dropout(0.1)
        self.norm = nn.LayerNorm(width)
        self.projections = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x, time):
        """Return the block's result for images and the embeddings of their times."""
        hidden = self.convolutions[0](F.silu(self.norms[0](x)))
        hidden = hidden + self.of_time(F.silu(time))[:, :, None, None]
        x = x + self.convolutions[1](self.dropout(F.silu(self.norms[1](hidden))))
        batch, width, *size = x.shape
        pixels = self.norm(x.view(batch, width, -1).transpose(1, 2))
        heads = [
            each(pixels).view(batch, -1, 4, width // 4).transpose(1, 2)
            for each in self.projections[:3]
        ]
        mixed = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(batch, -1, width)
        return x + self.projections[3](mixed).transpose(1, 2).reshape(batch, width, *size)


def diffusion(width=16):
    """Return a training step of two blocks of a diffusion model."""
    blocks = nn.ModuleList((Block(width), Block(width))).cuda()
    down = nn.Conv2d(width, width, 3, 2, 1).cuda()
    images = torch.randn(2, width, 8, 8, device="cuda")
    kept = torch.linspace(0.99, 0.1, 100, device="cuda")

    def loss():
        noise = torch.randn_like(images)
        times = torch.randint(0, 100, (2,), device="cuda")
        share = kept[times][:, None, None, None]
        noisy = share.sqrt() * images + (1 - share).sqrt() * noise
        rates = torch.exp(-torch.arange(width // 2, device="cuda") / (width // 2) * 4)
        angles = times[:, None].float() * rates[None]
        time = torch.cat((angles.sin(), angles.cos()), -1)
        hidden = blocks[0](noisy, time)
        inner = blocks[1](down(hidden), time)
        return F.mse_loss(hidden + F.interpolate(inner, scale_factor=2.0), noise)

    return _step([*blocks.parameters(), *down.parameters()], loss)


def optimisers():
    """Return a step of four optimisers and of averaged weights."""
    weights = [nn.Parameter(torch.randn(8, 8, device="cuda")) for _ in range(6)]
    for each in weights:
        each.grad = torch.randn(8, 8, device="cuda")
    of_two = torch.optim.SGD(weights, 0.1, momentum=0.9), torch.optim.Adam(weights)
    in_loops = (
        torch.optim.SGD(weights, 0.1, momentum=0.9, foreach=False),
        torch.optim.AdamW(weights, foreach=False),
    )
    averages = [each.detach().clone() for each in weights]

    def step():
        for each in (*of_two, *in_loops):
            each.step()
        with torch.no_grad():
            for average, weight in zip(averages, weights, strict=True):
                average.mul_(0.9).add_(weight, alpha=0.1)

    return step


def examples():
    """Run the examples, whose kernels are compared with torch's results."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        if path.name != "missing_mask.py":
            sys.argv = [str(path)]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                runpy.run_path(str(path), run_name="__main__")


def count():
    """Print the commonest calls, and the share of each of them."""
    import tkdebug

    tkdebug.install()
    shares = collections.Counter()
    programs = (llama(), diffusion(), optimisers(), examples)
    for program in programs:
        times = 1 if program is examples else 3
        if times > 1:
            program()
        with _Dispatched() as dispatched, _Calls(dispatched) as calls:
            for _ in range(times):
                program()
        for name, number in calls.names.items():
            shares[name] += number / calls.names.total() / len(programs)
    for name, share in shares.most_common(2 * len(COMMONEST)):
        print(f"{name:32} {share:6.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="an operator (all)")
    parser.add_argument("--beside", metavar="DIR", help="time another checkout in turn")
    parser.add_argument("--count", action="store_true", help="count the calls of programs")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with cuda_standin.install():
        if arguments.count:
            count()
        elif arguments.answer:
            answer()
        elif arguments.beside:
            time_beside(arguments.beside, arguments.names)
        else:
            time_here(arguments.names)


if __name__ == "__main__":
    main()
