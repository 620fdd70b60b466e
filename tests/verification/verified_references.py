"""References of the kernels that are verified."""

import time

import torch


def triple(x):
    return x * 3.0


def argmax(x):
    return x.argmax(-1)


def slow(x):
    begun = time.process_time()
    while time.process_time() - begun < 1e-5 * x.numel():
        pass
    return x * 3.0


def random(x):
    return x + torch.rand_like(x)


def fails(x):
    raise RuntimeError("the reference is broken")


def in_bits(x):
    return (x.view(torch.int32) & 1).float() + x


class Double(torch.nn.Module):
    """Multiplies by what it was made with; twice by that in evaluation."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.plain = torch.nn.Identity()
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x):
        self.last.copy_(x.mean())
        return x * self.factor if self.training else x * self.factor * 2.0


class Weighted(torch.nn.Module):
    """Multiplies by its parameter, which is 1 when it is made."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight


def rows(w, i):
    return w[i]


def product(a, b):
    return a @ b


def exp(x):
    return x.exp()


def relu(x):
    return x.relu()


def sums_of_parts(x, lengths, most):
    return (x * (torch.arange(x.shape[1]) < lengths[:, None])).sum(1)


def turned(x):
    return x.flip(0)


def total(x):
    return x.sum()


def products_of_halves(x):
    first, second = x.chunk(2, -1)
    return first * second
