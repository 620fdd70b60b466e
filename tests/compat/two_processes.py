"""Two processes train one model by gloo, on a CUDA device each: prints a line where they agree."""

import sys

import torch
import torch.distributed as dist
from torch import nn


def work(rank, port):
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    x = torch.ones(3, device="cuda") * (rank + 1)
    dist.all_reduce(x)
    assert x.tolist() == [3, 3, 3]
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3).cuda())
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    # Its logger looks at the first ten steps.
    for _ in range(12):
        optimiser.zero_grad()
        model(x * (rank + 1)).sum().backward()
        optimiser.step()
    weights = [torch.zeros(3, 3, device="cuda") for _ in range(2)]
    dist.all_gather(weights, model.module.weight.detach())
    assert torch.equal(*weights)
    assert weights[0].is_cuda
    objects = [None, None]
    dist.all_gather_object(objects, x)
    assert objects[1 - rank].is_cuda
    dist.barrier()
    if rank == 0:
        print("agree")
    dist.destroy_process_group()


def second(index, port):
    work(index + 1, port)


if __name__ == "__main__":
    port = int(sys.argv[1])
    context = torch.multiprocessing.spawn(second, (port,), 1, join=False)
    work(0, port)
    context.join()
