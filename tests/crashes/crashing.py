"""Kernels that crash on a GPU: `python crashing.py CASE`; upstream's compiler takes them too.

Comments mark the lines that a crash is to be attributed to.
"""

import sys

import torch
import triton
import triton.language as tl

FAR = -(1 << 38)  # elements; 1 TiB before the tensor, where nothing is mapped


@triton.jit
def load_far(x, o, far, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i + far)  # crash: load
    tl.store(o + i, value * 2)


@triton.jit
def store_far(x, o, far, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(o + i + far, value * 2)  # crash: store


@triton.jit
def load_misaligned(x, o, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    odd = (x.to(tl.int64, bitcast=True) + 1 + i.to(tl.int64) * 4).to(tl.pointer_type(tl.float32))
    value = tl.load(odd)  # crash: misaligned
    tl.store(o + i, value)


@triton.jit
def trapping(x, o, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x + i).to(tl.int32, bitcast=True)
    bits = tl.inline_asm_elementwise(  # crash: trap
        "trap; mov.u32 $0, $1;", "=r,r", [bits], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(o + i, bits.to(tl.float32, bitcast=True))


@triton.jit
def asserting(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(i < n, "too many elements")  # crash: assert
    tl.store(o + i, tl.load(x + i))


@triton.jit
def fetch(pointer):
    value = tl.load(pointer)  # crash: chain
    return value


@triton.jit
def middle(x, offsets, far):
    doubled = fetch(x + offsets + far) * 2  # chain: middle
    return doubled


@triton.jit
def chained(x, o, far, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = middle(x, i, 0) + middle(x, i, far)  # chain: kernel
    tl.store(o + i, value)


@triton.jit
def one_program(x, o, far, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    if row == 2:
        x += far
    tl.store(o + row * BLOCK + i, tl.load(x + i))  # crash: program


@triton.jit
def misaligned_descriptor(x, o, BLOCK: tl.constexpr):
    base = (x.to(tl.int64, bitcast=True) + 8).to(tl.pointer_type(tl.float32))
    desc = tl.make_tensor_descriptor(  # crash: descriptor
        base, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK]
    )
    desc.store([0, 0], tl.zeros((BLOCK, BLOCK), tl.float32))


def launch(case, x, o):
    if case == "load":
        load_far[(1,)](x, o, FAR, BLOCK=32, num_warps=1)
    elif case == "store":
        store_far[(1,)](x, o, FAR, BLOCK=32, num_warps=1)
    elif case == "misaligned":
        load_misaligned[(1,)](x, o, BLOCK=32, num_warps=1)
    elif case == "trap":
        trapping[(1,)](x, o, BLOCK=32, num_warps=1)
    elif case == "descriptor":
        misaligned_descriptor[(1,)](x, o, BLOCK=16, num_warps=1)
    elif case == "assert":
        asserting[(1,)](x, o, 5, BLOCK=32, num_warps=1, debug=True)
    elif case == "chain":
        chained[(1,)](x, o, FAR, BLOCK=32, num_warps=1)
    elif case == "program":
        one_program[(1, 4)](x, o, FAR, BLOCK=128, num_warps=4)
    elif case in ("third", "third-store"):
        kernel = load_far if case == "third" else store_far
        for index in range(5):
            x + 1  # torch's launches count for the driver too
            kernel[(1,)](x, o, FAR if index == 2 else 0, BLOCK=32, num_warps=1)
    elif case == "full":
        load_far[(20000,)](x, o, FAR, BLOCK=256, num_warps=8)


def main(case, ending="synchronize"):
    x = torch.empty(4096, device="cuda")
    o = torch.empty(4096, device="cuda")
    launch(case, x, o)
    if ending == "synchronize":
        torch.cuda.synchronize()
    elif ending == "item":
        print(o[0].item())
    elif ending == "caught":
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            print("caught", str(error).splitlines()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
