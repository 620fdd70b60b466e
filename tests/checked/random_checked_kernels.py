"""Random kernels of a few accesses, as text, with the arguments that they are launched with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

HEAD = """
import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def kernel(x, index, trips, out, n, s, B: tl.constexpr, C: tl.constexpr):
    pid = tl.program_id(0)
    lanes = tl.arange(0, B)
    at = pid * B + lanes
    total = tl.zeros((B,), tl.int32)
"""


@dataclass(frozen=True)
class RandomKernel:
    """A kernel and a launch of it.

    Attributes:
        text: of the module with `kernel`.
        arguments: for its parameters, but for the constants.
        constants: by name.
        grid: of the launch.
    """

    text: str
    arguments: list[object]
    constants: dict[str, int]
    grid: tuple[int, int, int]


def random_kernel(seed: int) -> RandomKernel:
    """The kernel of a seed."""
    draw = random.Random(seed)
    body = [line for _ in range(draw.randint(1, 3)) for line in draw.choice(_LOADS)(draw)]
    body += draw.choice(_STORES)(draw)
    size = draw.randint(20, 260)
    x = torch.arange(size, dtype=torch.int32)
    # No index twice: which of two stores is last is not defined.
    index = torch.tensor(draw.sample(range(-40, max(size, 200) + 60), 256), dtype=torch.int32)
    trips = torch.tensor([draw.randint(0, 4) for _ in range(8)], dtype=torch.int32)
    out = torch.zeros(draw.randint(20, 300), dtype=torch.int32)
    view = x[draw.choice((0, 0, 4, 7)) :]
    n = draw.choice((size, size // 2, draw.randint(1, 300)))
    return RandomKernel(
        HEAD + "\n".join(f"    {line}" for line in body) + "\n",
        [view, index, trips, out, n, draw.choice((16, 17, 32))],
        {"B": draw.choice((16, 32, 64)), "C": draw.choice((4, 8, 16))},
        (draw.randint(1, 4), 1, 1),
    )


def _mask(draw: random.Random, at: str) -> str:
    """A mask argument, or none."""
    masks = ("", "", f"{at} < n", f"({at} >= {draw.randint(-4, 9)}) & ({at} < n)", f"{at} % 3 != 0")
    mask = draw.choice(masks)
    other = draw.choice(("", f", other={draw.randint(1, 9)}"))
    return f", mask={mask}{other}" if mask else ""


def _affine(draw: random.Random) -> list[str]:
    moved = f"at * {draw.randint(1, 3)} + {draw.randint(-6, 6)}"
    return [f"here = {moved}", f"total += tl.load(x + here{_mask(draw, 'here')})"]


def _gather(draw: random.Random) -> list[str]:
    mask = _mask(draw, "at")
    return ["chosen = tl.load(index + at % 256)", f"total += tl.load(x + chosen{mask})"]


def _loop(draw: random.Random) -> list[str]:
    trip = draw.choice(("3", "n // 32", "tl.load(trips + pid)"))
    return [
        "pointers = x + at",
        f"for _ in range({trip}):",
        f"    total += tl.load(pointers{_mask(draw, 'at')})",
        f"    pointers += {draw.choice((1, 8, 32, -5))}",
    ]


def _counted_loop(draw: random.Random) -> list[str]:
    return [
        f"for k in range(0, n, {draw.choice((16, 64))}):",
        f"    total += tl.load(x + k + lanes{_mask(draw, 'k + lanes')})",
    ]


def _rows(draw: random.Random) -> list[str]:
    tile = "lanes[:, None] * s + tl.arange(0, C)[None, :] + pid * C"
    mask = draw.choice(("", ", mask=(lanes < n // 8)[:, None], other=0"))
    return [f"total += tl.sum(tl.load(x + {tile}{mask}), 1)"]


def _block_pointer(draw: random.Random) -> list[str]:
    checks = draw.choice(("", "boundary_check=(0,)", "boundary_check=(0, 1)"))
    return [
        "block = tl.make_block_ptr(x, (n // s + 1, s), (s, 1), (pid * 2, 0), (B, C), (1, 0))",
        "for _ in range(2):",
        f"    total += tl.sum(tl.load(block, {checks}), 1)",
        "    block = tl.advance(block, (0, C))",
    ]


def _descriptor(draw: random.Random) -> list[str]:
    return [
        f"described = tl.make_tensor_descriptor(x, [n // 16 + {draw.randint(0, 3)}, 16], [16, 1], "
        "[B, C])",
        "total += tl.sum(described.load([pid * 2, 0]), 1)",
    ]


def _branch(draw: random.Random) -> list[str]:
    test = draw.choice(("pid % 2 == 1", "n > 100", "tl.load(trips + pid) > 1"))
    return [f"if {test}:", f"    total += tl.load(x + at + 3{_mask(draw, 'at')})"]


def _scalar(draw: random.Random) -> list[str]:
    place = draw.choice(("pid * 64", "n - 2 + pid", "tl.load(index + pid)"))
    return [f"total += tl.load(x + {place})"]


def _store(draw: random.Random) -> list[str]:
    return [f"tl.store(out + at + {draw.randint(-3, 3)}, total{_mask(draw, 'at').split(', o')[0]})"]


def _scatter(draw: random.Random) -> list[str]:
    return [f"tl.store(out + tl.load(index + at), total{_mask(draw, 'at').split(', o')[0]})"]


def _atomic(draw: random.Random) -> list[str]:
    place = draw.choice(("at", "at % 7 + pid * 90", "tl.load(index + at)"))
    return [f"tl.atomic_add(out + {place}, total{_mask(draw, 'at').split(', o')[0]})"]


_Piece = Callable[[random.Random], list[str]]
_LOADS: tuple[_Piece, ...] = (
    *(_affine, _gather, _loop, _counted_loop, _rows),
    *(_block_pointer, _descriptor, _branch, _scalar),
)
_STORES: tuple[_Piece, ...] = (_store, _store, _scatter, _atomic)
