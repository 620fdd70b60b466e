"""Kernels that never end. `python hanging_kernels.py NAME`: launches one, and waits for it."""

import sys
import time

import torch
import triton
import triton.language as tl


@triton.jit
def lock_kept(lock, out, B: tl.constexpr):
    pid = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:  # waits: lock
        pass
    tl.store(out + pid * B + tl.arange(0, B), 1.0)


@triton.jit
def wait_for(flags, other):
    while tl.atomic_add(flags + other, 0) == 0:  # waits: each_other
        pass


@triton.jit
def each_other(flags, out, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid < 2:
        wait_for(flags, 1 - pid)  # calls: each_other
        tl.atomic_xchg(flags + pid, 1)
    tl.store(out + pid * B + tl.arange(0, B), 1.0)


@triton.jit
def for_one_that_has_no_room(flags, out, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid == tl.num_programs(0) - 1:
        tl.atomic_xchg(flags, 1)
    while tl.atomic_add(flags, 0) == 0:  # waits: no_room
        pass
    tl.store(out + tl.arange(0, B), 1.0)


@triton.jit
def outside(out, index, n, B: tl.constexpr):
    lanes = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + lanes, 1.0, mask=lanes < n)  # outside: by its mask
    places = tl.load(index + lanes % 4)
    tl.store(out + places, 2.0)  # outside: by what it loads


@triton.jit
def outside_then_locked(lock, out, index, n, B: tl.constexpr):
    outside(out, index, n, B)
    while tl.atomic_add(lock, 0) == 0:  # waits: outside
        pass


# Each thread arrives once, and the barrier counts one more.
ARRIVE_AND_WAIT = """{
.reg .pred ended;
.shared .align 8 .b64 barrier;
setp.eq.u32 ended, $1, 0;
@ended mbarrier.init.shared::cta.b64 [barrier], 33;
bar.warp.sync -1;
mbarrier.arrive.shared::cta.b64 _, [barrier];
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 ended, [barrier], 0;
@!ended bra AGAIN;
mov.u32 $0, $1;
}"""


@triton.jit
def for_an_arrival(flags, out, B: tl.constexpr, CODE: tl.constexpr):
    lanes = tl.arange(0, B)
    lanes = tl.inline_asm_elementwise(CODE, "=r,r", [lanes], tl.int32, False, 1)  # waits: arrival
    tl.store(out + lanes, 1.0)


def main(name):
    flags = torch.zeros(4, dtype=torch.int32, device="cuda")
    out = torch.zeros(1 << 20, device="cuda")
    kernels = {
        "lock": (lock_kept, 4),
        "each_other": (each_other, 6),
        "no_room": (for_one_that_has_no_room, 10_000),
    }
    if name == "arrival":
        for_an_arrival[(2,)](flags, out, B=32, CODE=ARRIVE_AND_WAIT, num_warps=1)
    elif name.startswith("outside"):
        few, index = out[:200].clone(), torch.tensor([0, 1, 2, 500], device="cuda")
        others = torch.cuda.Stream()
        outside_then_locked[(3,)](flags, few, index, 256, B=128)
    else:
        kernel, programs = kernels[name]
        kernel[(programs,)](flags, out, B=128)
    print("launched", flush=True)
    if name == "outside_slow":
        time.sleep(6)
        with torch.cuda.stream(others):
            flags.fill_(1)
    if sys.argv[2:] == ["item"]:
        print(out.sum().item())
    torch.cuda.synchronize()
    print("ended")


if __name__ == "__main__":
    main(sys.argv[1])
