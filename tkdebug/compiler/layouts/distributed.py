"""Layouts of tensors in registers: blocked, tensor-core accumulators and operands.

Each constructor returns a `LinearLayout` from (register, lane, warp, block) to (dim0, dim1, ...),
surjective onto `shape`. A tile smaller than the tensor is repeated along registers; one that is
larger wraps, so that the bits beyond the tensor hold copies. Both follow Triton
(`docs/getting-started`, TritonGPU dialect: "blocked", "slice" and "MMA" encodings).

Fragment tables are those of the PTX ISA, cited by the title of their section.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tkdebug.compiler.layouts.linear import (
    BLOCK,
    LANE,
    REGISTER,
    WARP,
    LayoutError,
    LinearLayout,
    bits_of,
    dim_names,
)

IN_DIMS = (REGISTER, LANE, WARP, BLOCK)
_CACHED_LAYOUTS = 1024


@lru_cache(_CACHED_LAYOUTS)
def blocked(
    size_per_thread: tuple[int, ...],
    threads_per_warp: tuple[int, ...],
    warps_per_cta: tuple[int, ...],
    order: tuple[int, ...],
    shape: tuple[int, ...],
) -> LinearLayout:
    """Each thread holds a small box, each warp a box of threads, each block a box of warps.

    Args:
        size_per_thread: elements of a thread's box, per dimension.
        threads_per_warp: lanes along each dimension; their product is the warp size.
        warps_per_cta: warps along each dimension.
        order: dimensions, the fastest first.
        shape: the tensor's shape.

    Raises:
        LayoutError: ranks differ, or a size is no power of two.

    Source: Triton's TritonGPU dialect, "BlockedEncodingAttr"; arXiv:2505.23819.
    """
    names = dim_names(len(shape))
    for what, sizes in (
        ("size_per_thread", size_per_thread),
        ("threads_per_warp", threads_per_warp),
        ("warps_per_cta", warps_per_cta),
    ):
        _expect_rank(what, sizes, len(shape))
    _expect_order(order, len(shape))
    tile = LinearLayout.empty(IN_DIMS, [names[d] for d in order])
    for in_dim, box in (
        (REGISTER, size_per_thread),
        (LANE, threads_per_warp),
        (WARP, warps_per_cta),
    ):
        tile = tile * _box(in_dim, box, order)
    return _cover(tile, shape)


@lru_cache(_CACHED_LAYOUTS)
def mma_v2(shape: tuple[int, ...], warps: tuple[int, ...]) -> LinearLayout:
    """Accumulators of `mma.sync.aligned.m16n8k*`, repeated to cover `shape`.

    A lane of group g = lane / 4 and thread t = lane % 4 holds c0, c1 at row g, columns 2t and
    2t + 1, and c2, c3 in row g + 8. The table is one for 16- and 32-bit accumulators: .f16 packs
    c0, c1 into one 32-bit register, .f32 and .s32 take one register each.

    Args:
        shape: (..., M, N); leading dimensions are a batch.
        warps: warps along each dimension; the last dimension runs fastest.

    Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", accumulators C
    or D; the same in the sections for m16n8k4, m16n8k8 and m16n8k32.
    """
    _expect_rank("warps", warps, len(shape))
    fastest_last = tuple(reversed(range(len(shape))))
    tile = _accumulator_tile(len(shape), 8) * _box(WARP, warps, fastest_last)
    return _cover(tile, shape)


@lru_cache(_CACHED_LAYOUTS)
def wgmma(shape: tuple[int, int], warps: tuple[int, int], instr_n: int) -> LinearLayout:
    """Accumulators of `wgmma.mma_async.sync.aligned.m64nNk*`.

    Warp w of the warpgroup holds rows 16 * (w % 4) and up; inside its 16 rows the fragment is that
    of m16n8, repeated along N: d[4i + 0, 1] at row g, columns 8i + 2t and 8i + 2t + 1, and
    d[4i + 2, 3] in row g + 8.

    Args:
        shape: (M, N).
        warps: warps along M (a multiple of 4: warpgroups) and N; M runs fastest, since the four
            warps of a warpgroup have consecutive numbers.
        instr_n: N of the instruction, 8 to 256 and a power of two.

    Raises:
        LayoutError: `warps` has no whole warpgroup along M, or `instr_n` is not one of wgmma's.

    Source: PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma, "WGMMA
    .m64nNk16 register fragment layout for accumulator matrix D".
    """
    _expect_rank("warps", warps, len(shape))
    if warps[0] % 4:
        raise LayoutError(f"wgmma with {warps[0]} warps along M; a warpgroup takes 4 of them")
    if not 8 <= 1 << bits_of(instr_n, "instr_n") <= 256:
        raise LayoutError(f"wgmma with N = {instr_n}; expected 8 to 256")
    tile = _accumulator_tile(2, instr_n) * _box(WARP, warps, (0, 1))
    return _cover(tile, shape)


@lru_cache(_CACHED_LAYOUTS)
def dot_operand(
    parent: LinearLayout, index: int, k_width: int, shape: tuple[int, ...]
) -> LinearLayout:
    """Operand A or B, in registers, of the dot whose accumulators lie in `parent`.

    A lane of group g and thread t holds `k_width` consecutive elements along K from t * k_width,
    then for A those of row g + 8, then both again 4 * k_width further along K. Along M (or N) the
    operand lies where the parent's warps and blocks have their rows (columns); warps that differ
    only in the other dimension hold copies.

    With `k_width` elements per 32-bit register (2 for 16-bit types, 1 for tf32, 4 for 8-bit types)
    the registers are the instruction's; a larger one permutes K the same way in A and B, which a
    dot does not see and which widens the loads.

    Args:
        parent: `mma_v2` layout, or for A also a `wgmma` layout.
        index: 0 for A, 1 for B.
        k_width: consecutive elements along K, a power of two.
        shape: (..., M, K) for A, (..., K, N) for B.

    Raises:
        LayoutError: `parent` is no tensor-core accumulator, or its M or N is not the operand's.

    Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" (16-bit), "...
    mma.m16n8k8" (tf32), "... mma.m16n8k32" (8-bit), and "WGMMA .m64nNk16 register fragment layout
    for matrix A". Triton's TritonGPU dialect, "DotOperandEncodingAttr" (kWidth).
    """
    names = dim_names(len(shape))
    k_dim, kept_dim = _operand_dims(parent, index, shape)
    _expect_accumulator(parent)
    bits_of(k_width, "k_width")
    kept_tile = 16 if index == 0 else 8
    tile = LinearLayout.empty(IN_DIMS, (names[k_dim], names[kept_dim], *names[:-2]))
    tile *= LinearLayout.identity(k_width, REGISTER, names[k_dim])
    tile *= LinearLayout.identity(4, LANE, names[k_dim])
    tile *= LinearLayout.identity(8, LANE, names[kept_dim])
    tile *= LinearLayout.identity(kept_tile // 8, REGISTER, names[kept_dim])
    tile *= LinearLayout.identity(2, REGISTER, names[k_dim])
    tile = _repeat(tile, {names[k_dim]: shape[k_dim]})

    def parts(in_dim: str) -> list[dict[str, int]]:
        vectors = [parent.unpack_out(v) for v in parent.packed_bases(in_dim)]
        return [{**vector, names[k_dim]: 0} for vector in vectors]

    repeats = [
        vector
        for vector in parts(REGISTER)
        if vector[names[kept_dim]] >= kept_tile or any(vector[name] for name in names[:-2])
    ]
    vectors = {d: [tile.unpack_out(v) for v in tile.packed_bases(d)] for d in (REGISTER, LANE)}
    vectors[REGISTER] += repeats
    vectors[WARP] = parts(WARP)
    vectors[BLOCK] = parts(BLOCK)
    return _wrapped(vectors, shape)


@lru_cache(_CACHED_LAYOUTS)
def fma_operand(parent: LinearLayout, index: int, shape: tuple[int, ...]) -> LinearLayout:
    """Operand A or B of a dot that runs on FMA units: every thread holds the whole K it needs.

    Args:
        parent: layout of the accumulators, (..., M, N).
        index: 0 for A, 1 for B.
        shape: (..., M, K) for A, (..., K, N) for B.

    Raises:
        LayoutError: the parent's M or N is not the operand's.
    """
    names = dim_names(len(shape))
    k_dim, _ = _operand_dims(parent, index, shape)
    vectors: dict[str, list[dict[str, int]]] = {}
    for in_dim in IN_DIMS:
        coordinates = [parent.unpack_out(v) for v in parent.packed_bases(in_dim)]
        vectors[in_dim] = [{**vector, names[k_dim]: 0} for vector in coordinates]
    along_k = [{names[k_dim]: 1 << i} for i in range(bits_of(shape[k_dim], "K"))]
    vectors[REGISTER] = along_k + [v for v in vectors[REGISTER] if any(v.values())]
    return _wrapped(vectors, shape)


def turning(shape: tuple[int, int], k_dim: int, together: int, num_warps: int) -> LinearLayout:
    """Layout of a tile on its way from a buffer with the other dimension contiguous to one with K.

    A thread holds blocks of 4 elements of the other dimension by `together` of K. Of neighbouring
    lanes 2 differ in the other dimension and 4 in K: their stores go to eight chunks of the
    128-byte swizzle.

    Args:
        shape: the shape of the tile.
        k_dim: 0 or 1.
        together: elements along K of one store, 16 bytes.
        num_warps: warps of the block.
    """
    names = dim_names(2)
    sizes = (shape[k_dim], shape[1 - k_dim])
    along_k = [(1 << i, 0) for i in range(bits_of(sizes[0], "K"))]
    along_m = [(0, 1 << i) for i in range(bits_of(sizes[1], "the other dimension"))]
    inside = bits_of(together, "what is stored together")
    registers = along_m[:2] + along_k[:inside]
    left_k, left_m = along_k[inside:], along_m[2:]
    others: list[tuple[int, int]] = []
    wanted = ("m", "k", "k", "m", "m", *("m" * bits_of(num_warps, "the number of warps")))
    for which in wanted:
        first, second = (left_m, left_k) if which == "m" else (left_k, left_m)
        others.append(first.pop(0) if first else second.pop(0) if second else (0, 0))
    vectors = {
        REGISTER: registers + left_m + left_k,
        LANE: others[:5],
        WARP: others[5:],
        BLOCK: [],
    }
    placed = {
        name: [v if k_dim == 0 else (v[1], v[0]) for v in found] for name, found in vectors.items()
    }
    return LinearLayout.of(placed, dict(zip(names, shape, strict=True)))


def _accumulator_tile(rank: int, instr_n: int) -> LinearLayout:
    names = dim_names(rank)
    rows, cols = names[-2], names[-1]
    tile = LinearLayout.empty(IN_DIMS, tuple(reversed(names)))
    tile *= LinearLayout.identity(2, REGISTER, cols)
    tile *= LinearLayout.identity(4, LANE, cols)
    tile *= LinearLayout.identity(8, LANE, rows)
    tile *= LinearLayout.identity(2, REGISTER, rows)
    return tile * LinearLayout.identity(instr_n // 8, REGISTER, cols)


def _box(in_dim: str, sizes: Sequence[int], order: Sequence[int]) -> LinearLayout:
    names = dim_names(len(sizes))
    box = LinearLayout.empty((in_dim,), [names[d] for d in order])
    for d in order:
        box *= LinearLayout.identity(sizes[d], in_dim, names[d])
    return box


def _cover(tile: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
    """Fits a tile to `shape`."""
    names = dim_names(len(shape))
    sizes = dict(zip(names, shape, strict=True))
    for name, size in sizes.items():
        bits_of(size, f"the size of {name}")
    tile = _repeat(tile, {name: sizes[name] for name in tile.out_dims})
    vectors = {d: [tile.unpack_out(v) for v in tile.packed_bases(d)] for d in tile.in_dims}
    return _wrapped(vectors, shape)


def _repeat(tile: LinearLayout, sizes: dict[str, int]) -> LinearLayout:
    """Repeats the tile along registers until it has `sizes`, the first dimension fastest."""
    for name, size in sizes.items():
        if tile.out_size(name) < size:
            tile *= LinearLayout.identity(size // tile.out_size(name), REGISTER, name)
    return tile


def _wrapped(vectors: dict[str, list[dict[str, int]]], shape: tuple[int, ...]) -> LinearLayout:
    """The layout with these coordinates per input bit, modulo `shape`: bits beyond it are free."""
    names = dim_names(len(shape))
    sizes = dict(zip(names, shape, strict=True))
    return LinearLayout.of(
        {
            in_dim: [tuple(vector.get(n, 0) % sizes[n] for n in names) for vector in bits]
            for in_dim, bits in vectors.items()
        },
        sizes,
    )


def _operand_dims(parent: LinearLayout, index: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Positions of K and of the dimension shared with the accumulators, after checking both."""
    rank = len(shape)
    if index not in (0, 1):
        raise LayoutError(f"operand index is {index}; expected 0 (A) or 1 (B)")
    _expect_rank("parent", parent.shape, rank)
    k_dim, kept_dim = (rank - 1, rank - 2) if index == 0 else (rank - 2, rank - 1)
    same = [d for d in range(rank) if d != k_dim]
    if any(parent.shape[d] != shape[d] for d in same):
        raise LayoutError(f"operand {index} of shape {shape} for accumulators of {parent.shape}")
    return k_dim, kept_dim


def _expect_accumulator(parent: LinearLayout) -> None:
    rows, cols = parent.shape[-2:]
    batch = (0,) * (len(parent.shape) - 2)
    lanes = tuple((*batch, 0, n % cols) for n in (2, 4))
    lanes += tuple((*batch, m % rows, 0) for m in (1, 2, 4))
    if parent.bases(LANE) != lanes:
        raise LayoutError(
            f"dot operand of a parent whose lanes are {parent.bases(LANE)}; "
            f"expected tensor-core accumulators, {lanes}"
        )


def _expect_rank(what: str, sizes: Sequence[int], rank: int) -> None:
    if len(sizes) != rank:
        raise LayoutError(f"{what} {tuple(sizes)} has {len(sizes)} dimensions; expected {rank}")


def _expect_order(order: Sequence[int], rank: int) -> None:
    if sorted(order) != list(range(rank)):
        raise LayoutError(f"order {tuple(order)} is not a permutation of {tuple(range(rank))}")
