"""Programs that draw random numbers on `cuda`: run as a script, it saves what they give.

python drawn_numbers.py FILE
"""

import sys

import torch
from torch.nn.functional import dropout

# More than one wave of threads of any GPU, of which few can hold more than 540,000 at once.
MANY = 1_100_000


def strided(size, fill):
    x = torch.zeros(size, device="cuda")
    fill(x.t())
    return x


def dropped(size, dtype, p=0.3):
    return dropout(torch.arange(size, device="cuda").remainder(7).add(1).to(dtype), p)


def chances(size):
    # Exact on any device.
    return torch.arange(size, device="cuda") / 4096


CUDA = {"device": "cuda"}
PROGRAMS = {
    "rand": lambda: torch.rand(1000, **CUDA),
    "rand of halves": lambda: torch.rand(5000, dtype=torch.float16, **CUDA),
    "rand of bf16": lambda: torch.rand(5000, dtype=torch.bfloat16, **CUDA),
    "rand of fp64": lambda: torch.rand(5000, dtype=torch.float64, **CUDA),
    "many": lambda: torch.rand(MANY, **CUDA),
    "many of fp64": lambda: torch.rand(MANY, dtype=torch.float64, **CUDA),
    "uniform_": lambda: torch.zeros(3000, **CUDA).uniform_(-0.3, 0.7),
    "uniform_ of halves": lambda: torch.zeros(3000, dtype=torch.float16, **CUDA).uniform_(-2, 1),
    "uniform_, strided": lambda: strided((30, 40), torch.Tensor.uniform_),
    "rand, complex": lambda: torch.rand(50, dtype=torch.complex64, **CUDA),
    "randn": lambda: torch.randn(1000, **CUDA),
    "randn of halves": lambda: torch.randn(5000, dtype=torch.float16, **CUDA),
    "randn of fp64": lambda: torch.randn(5000, dtype=torch.float64, **CUDA),
    "randn, complex": lambda: torch.randn(50, dtype=torch.complex64, **CUDA),
    "many randn": lambda: torch.randn(MANY, **CUDA),
    "normal_": lambda: torch.zeros(3000, **CUDA).normal_(2, 0.5),
    "normal of means": lambda: torch.normal(torch.arange(500.0, **CUDA), 0.1),
    "normal of spreads": lambda: torch.normal(2.0, torch.arange(500.0, **CUDA)),
    "normal of both": lambda: torch.normal(torch.ones(500, **CUDA), torch.arange(500.0, **CUDA)),
    "exponential_": lambda: torch.zeros(5000, **CUDA).exponential_(3),
    "exponential_ of halves": lambda: torch.zeros(5000, dtype=torch.half, **CUDA).exponential_(),
    "randint": lambda: torch.randint(10, (5000,), **CUDA),
    "randint below 0": lambda: torch.randint(-7, 1 << 20, (5000,), dtype=torch.int32, **CUDA),
    "randint, wide": lambda: torch.randint(-5, 1 << 40, (5000,), **CUDA),
    "many randint": lambda: torch.randint(1 << 28, (MANY,), **CUDA),
    "random_ of int64": lambda: torch.zeros(3000, dtype=torch.int64, **CUDA).random_(),
    "random_ of all": lambda: torch.zeros(3000, dtype=torch.int64, **CUDA).random_(
        -(1 << 63), None
    ),
    "random_ of uint8": lambda: torch.zeros(3000, dtype=torch.uint8, **CUDA).random_(),
    "random_ of bool": lambda: torch.zeros(3000, dtype=torch.bool, **CUDA).random_(),
    "random_ of halves": lambda: torch.zeros(3000, dtype=torch.float16, **CUDA).random_(),
    "random_ of fp64": lambda: torch.zeros(3000, dtype=torch.float64, **CUDA).random_(),
    "bernoulli_": lambda: torch.zeros(3000, **CUDA).bernoulli_(0.3),
    "bernoulli_ of fp64": lambda: torch.zeros(3000, dtype=torch.float64, **CUDA).bernoulli_(0.3),
    "bernoulli": lambda: torch.bernoulli(chances(3001)),
    "bernoulli, strided": lambda: torch.bernoulli(chances(1200).view(30, 40).t()),
    "dropout": lambda: dropped(4000, torch.float32),
    "dropout by 2": lambda: dropped(4002, torch.float32),
    "dropout by 1": lambda: dropped(4001, torch.float32),
    "dropout of halves": lambda: dropped(4000, torch.float16),
    "dropout of fp64": lambda: dropped(4000, torch.float64),
    "many dropped": lambda: dropped(MANY, torch.float32, 0.5),
    "many halves dropped": lambda: dropped(4 * MANY, torch.float16, 0.5),
    "dropout, strided": lambda: dropout(torch.ones(30, 40, **CUDA).t(), 0.5),
    "dropout with gaps": lambda: dropout(torch.ones(30, 40, **CUDA)[:, :7], 0.5),
    "multinomial": lambda: torch.multinomial(1 + chances(700), 1),
    "multinomial of some": lambda: torch.multinomial(1 + chances(700), 20),
}


def results():
    """Return what each program gives after a seed, a second time as well, and the state then."""
    found = {}
    for number, (name, program) in enumerate(PROGRAMS.items()):
        torch.cuda.manual_seed(number)
        first, second = program().cpu(), program().cpu()
        found[name] = first, second, torch.cuda.get_rng_state()
    return found


if __name__ == "__main__":
    from tkdebug.compat import cuda_standin

    with cuda_standin.install():
        torch.save(results(), sys.argv[1])
