"""Processor time of common eager operators on the CUDA device of machines without a GPU.

python bench/standin_costs.py              # all of them
python bench/standin_costs.py tolist item  # these

Figures are medians of blocks of calls, in one process and on one thread.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
import torch.nn.functional as F

from tkdebug.compat import cuda_standin

CALLS, BLOCKS, WARM_UP = 200, 15, 50


def operators():
    """Return calls by name, of tensors so small that only the call costs."""
    x, y = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    square, one = torch.ones(16, 16, device="cuda"), torch.ones((), device="cuda")
    indices = torch.zeros(4, dtype=torch.int64, device="cuda")
    of_host = torch.ones(64)
    return {
        "x + 1": lambda: x + 1,
        "x + y": lambda: x + y,
        "x.add_": lambda: x.add_(0),
        "matmul": lambda: square @ square,
        "linear": lambda: F.linear(square, square),
        "sum": lambda: x.sum(),
        "view": lambda: x.view(8, 8),
        "slice": lambda: x[2:5],
        "index": lambda: x[indices],
        "embedding": lambda: F.embedding(indices, square),
        "clone": lambda: x.clone(),
        "copy_": lambda: x.copy_(y),
        "to half": lambda: x.half(),
        "cat": lambda: torch.cat((x, y)),
        "where": lambda: torch.where(x > 0, x, y),
        "softmax": lambda: square.softmax(-1),
        "layer_norm": lambda: F.layer_norm(square, (16,)),
        "gelu": lambda: F.gelu(x),
        "empty": lambda: torch.empty(64, device="cuda"),
        "zeros": lambda: torch.zeros(64, device="cuda"),
        "arange": lambda: torch.arange(64, device="cuda"),
        "tensor": lambda: torch.tensor([1.0, 2.0, 3.0], device="cuda"),
        "cuda": lambda: of_host.cuda(),
        "cpu": lambda: x.cpu(),
        "item": lambda: one.item(),
        "tolist": lambda: x.tolist(),
        "rand": lambda: torch.rand(64, device="cuda"),
        "uniform_": lambda: x.uniform_(),
        "uniform_ to a bound": lambda: x.uniform_(-1, 1),
        "normal_": lambda: x.normal_(),
        "dropout": lambda: F.dropout(y, 0.5),
    }


def microseconds(run):
    """Return the median processor time of a call."""
    for _ in range(WARM_UP):
        run()
    times = []
    for _ in range(BLOCKS):
        start = time.process_time_ns()
        for _ in range(CALLS):
            run()
        times.append((time.process_time_ns() - start) / CALLS / 1000)
    return statistics.median(times)


def main():
    torch.set_num_threads(1)
    with cuda_standin.install():
        for name, run in operators().items():
            if name in sys.argv[1:] or not sys.argv[1:]:
                print(f"{name:20} {microseconds(run):6.1f} us", flush=True)


if __name__ == "__main__":
    main()
