"""Kernels that make descriptors of what they load or compute, and what they are launched with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensor_map_kernels import whole

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def grouped_kernel(tables, sizes, strides, COUNT, WORKERS: tl.constexpr, BM: tl.constexpr,
                   BN: tl.constexpr, BK: tl.constexpr, TURNED: tl.constexpr,
                   ELEMENT: tl.constexpr, OUT: tl.constexpr):  # fmt: skip
    """Several products; each worker takes every WORKERS-th tile of all of them."""
    tile, before = tl.program_id(0), 0
    for group in range(COUNT):
        m, n, k = (
            tl.load(sizes + group * 3),
            tl.load(sizes + group * 3 + 1),
            tl.load(sizes + group * 3 + 2),
        )
        across = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * across
        if tile < before + tiles:
            a = tl.load(tables + group).to(tl.pointer_type(ELEMENT))
            b = tl.load(tables + COUNT + group).to(tl.pointer_type(ELEMENT))
            c = tl.load(tables + 2 * COUNT + group).to(tl.pointer_type(OUT))
            to_a, to_b, to_c = (
                tl.load(strides + group * 3),
                tl.load(strides + group * 3 + 1),
                tl.load(strides + group * 3 + 2),
            )
            a_desc = tl.make_tensor_descriptor(a, [m, k], [to_a, 1], [BM, BK])
            if TURNED:
                b_desc = tl.make_tensor_descriptor(b, [n, k], [to_b, 1], [BN, BK])
            else:
                b_desc = tl.make_tensor_descriptor(b, [k, n], [to_b, 1], [BK, BN])
            c_desc = tl.make_tensor_descriptor(c, [m, n], [to_c, 1], [BM, BN])
            while tile < before + tiles:
                at_m, at_n = (tile - before) // across * BM, (tile - before) % across * BN
                acc = tl.zeros((BM, BN), tl.float32)
                for at_k in range(0, k, BK):
                    x = a_desc.load([at_m, at_k])
                    if TURNED:
                        y = b_desc.load([at_n, at_k]).T
                    else:
                        y = b_desc.load([at_k, at_n])
                    acc = tl.dot(x, y, acc)
                c_desc.store([at_m, at_n], acc.to(OUT))
                tile += WORKERS
        before += tiles


@dataclass
class Groups:
    """The operands of several products, each in a larger tensor full of sevens.

    Attributes:
        memory: the tensors that hold the results.
        results: views of them.
        wanted: what these should be.
        arguments: of `grouped_kernel`, up to the count.
    """

    memory: list[torch.Tensor]
    results: list[torch.Tensor]
    wanted: list[torch.Tensor]
    arguments: tuple[object, ...]


def _placed(rows: torch.Tensor, spare: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows` as a view of a tensor whose rows are whole units of 16 bytes, and some longer."""
    unit = 16 // rows.element_size()
    width = -(-rows.shape[1] // unit) * unit + spare * unit
    memory = torch.full((rows.shape[0] + 1, width), 7.0, device=rows.device).to(rows.dtype)
    view = memory[: rows.shape[0], : rows.shape[1]]
    view.copy_(rows)
    return memory, view


def groups(sizes, dtype=torch.float16, out=torch.float16, turned=False, spare=1, device="cpu"):
    """Products of these sizes (m, n, k)."""
    memory, results, wanted, kept = [], [], [], []
    strides, addresses = [], [[], [], []]
    for m, n, k in sizes:
        a, b = (whole(shape, dtype).to(device) for shape in ((m, k), (k, n)))
        operands = [a, b.T.contiguous() if turned else b, torch.full((m, n), 7.0).to(device, out)]
        placed = [_placed(operand, spare) for operand in operands]
        kept += placed
        strides.append([view.stride(0) for _, view in placed])
        for table, (_, view) in zip(addresses, placed, strict=True):
            table.append(view.data_ptr())
        memory.append(placed[2][0])
        results.append(placed[2][1])
        wanted.append((a.double() @ b.double()).to(out))
    tables = torch.tensor(addresses, dtype=torch.int64, device=device)
    # They are alive as long as the tables that point to them.
    tables.kept = kept
    numbers = [torch.tensor(x, dtype=torch.int32, device=device) for x in (sizes, strides)]
    return Groups(memory, results, wanted, (tables, *numbers, len(sizes)))


@tkdebug.jit
def batch_kernel(a, b, c, out, M, N, K, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                 BK: tl.constexpr):  # fmt: skip
    """Products of a batch: descriptors of a program's own part of each tensor."""
    batch, m, n = tl.program_id(0), tl.program_id(1) * BM, tl.program_id(2) * BN
    a_desc = tl.make_tensor_descriptor(a + batch * M * K, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b + batch * K * N, [K, N], [N, 1], [BK, BN])
    c_desc = tl.make_tensor_descriptor(c + batch * M * N, [M, N], [N, 1], [BM, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        if HOW == "made again":
            b_desc = tl.make_tensor_descriptor(
                b + (batch * K + k) * N, [K - k, N], [N, 1], [BK, BN]
            )
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([0, n]), acc)
        else:
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    if HOW == "read":
        acc += tl.load(c + tl.arange(0, BN))[None, :]
    if HOW == "written":
        tl.store(a + tl.arange(0, BN), acc.to(tl.float16).sum(0))
    if HOW == "barrier":
        tl.debug_barrier()
    if HOW == "before":
        # The first rows of the block are before the tensor.
        c_desc.store([m - 8, n], acc.to(tl.float16))
    else:
        c_desc.store([m, n], acc.to(tl.float16))


@tkdebug.jit
def empty_kernel(table, sizes, out, PADDING: tl.constexpr, B: tl.constexpr):
    """A product with a block of a tensor that may be empty."""
    base = tl.load(table).to(tl.pointer_type(tl.float16))
    rows, columns = tl.load(sizes), tl.load(sizes + 1)
    desc = tl.make_tensor_descriptor(base, [rows, columns], [B, 1], [B, B], padding_option=PADDING)
    at = tl.arange(0, B)
    one = (at[:, None] == at[None, :]).to(tl.float16)
    product = tl.dot(one, desc.load([0, 0]))
    tl.store(out + at[:, None] * B + at[None, :], product)


@tkdebug.jit
def fixed_kernel(table, B: tl.constexpr):
    """Stores to a tensor of which only the address is not known."""
    base = tl.load(table).to(tl.pointer_type(tl.float16))
    desc = tl.make_tensor_descriptor(base, [B, B], [B, 1], [B, B])
    desc.store([0, 0], tl.full((B, B), 1.0, tl.float16))


@tkdebug.jit
def shaped_kernel(table, TYPE: tl.constexpr, BLOCK: tl.constexpr, PADDING: tl.constexpr):
    """Stores a block of ones to a tensor of two blocks along each axis."""
    base = tl.load(table).to(tl.pointer_type(TYPE))
    if len(BLOCK) == 2:
        desc = tl.make_tensor_descriptor(
            base, [2 * BLOCK[0], 2 * BLOCK[1]], [2 * BLOCK[1], 1], BLOCK, padding_option=PADDING
        )
        desc.store([0, 0], tl.full(BLOCK, 1, TYPE))
    else:
        desc = tl.make_tensor_descriptor(
            base,
            [2 * BLOCK[0], 2 * BLOCK[1], 2 * BLOCK[2]],
            [4 * BLOCK[1] * BLOCK[2], 2 * BLOCK[2], 1],
            BLOCK,
            padding_option=PADDING,
        )
        desc.store([0, 0, 0], tl.full(BLOCK, 1, TYPE))
