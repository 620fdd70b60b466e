import torch
import triton
import triton.language as tl


@triton.jit
def grouped(pid, tiles, GROUP: tl.constexpr):
    first = pid // (GROUP * tiles) * GROUP
    rows = min(tiles - first, GROUP)
    return first + pid % (GROUP * tiles) % rows, pid % (GROUP * tiles) // rows


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, K, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    row, column = grouped(tl.program_id(0), N // BLOCK, GROUP)
    rows = row * BLOCK + tl.arange(0, BLOCK)
    columns = column * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        inner = k + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


torch.manual_seed(0)
a, b = torch.arange(64.0 * 32).reshape(64, 32) % 7, torch.arange(32.0 * 64).reshape(32, 64) % 5
c = torch.empty(128, 128)
a, b = a.repeat(2, 1), b.repeat(1, 2)
matmul[(64,)](a, b, c, 128, 32, BLOCK=16, GROUP=4)
print(torch.equal(c, a @ b))
