import torch
import triton
import triton.language as tl


@triton.jit
def count_up(lock_ptr, count_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    tl.store(count_ptr, count + 1)
    tl.atomic_xchg(lock_ptr, 0)


lock, count = torch.zeros(2, dtype=torch.int32).split(1)
count_up[(4,)](lock, count)
print(count.item())
