"""Layouts after shape operations that move no data: slice, expand, transpose and so on.

`slice_layout` and `expand_dims` are the pair that reductions and broadcasts go through.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.layouts.linear import REGISTER, LayoutError, LinearLayout, dim_names


def slice_layout(parent: LinearLayout, dim: int) -> LinearLayout:
    """The layout of `parent`'s tensor without dimension `dim`, as a reduction along it leaves it.

    Lanes, warps and blocks along `dim` hold copies; registers along it are dropped.

    Source: Triton's TritonGPU dialect, "SliceEncodingAttr"; arXiv:2505.23819.

    Raises:
        LayoutError: the tensor has no dimension `dim`.
    """
    names = parent.out_dims
    if not 0 <= dim < len(names):
        raise LayoutError(f"slice along dim{dim} of a tensor with {len(names)} dimensions")
    kept = [name for i, name in enumerate(names) if i != dim]
    renamed = dict(zip(kept, dim_names(len(kept)), strict=True))
    return parent.sublayout(parent.in_dims, kept).rename_outs(renamed).without_zero_bases(REGISTER)


def expand_dims(layout: LinearLayout, dim: int) -> LinearLayout:
    """The layout with a dimension of size 1 inserted before dimension `dim`."""
    rank = len(layout.outs)
    if not 0 <= dim <= rank:
        raise LayoutError(f"expand_dims at {dim} of a tensor with {rank} dimensions")
    # A dimension of size 1 has no bits: the packed vectors stay as they are.
    sizes = [*layout.shape[:dim], 1, *layout.shape[dim:]]
    return LinearLayout(layout.ins, tuple(zip(dim_names(rank + 1), sizes, strict=True)))


def transpose(layout: LinearLayout, permutation: Sequence[int]) -> LinearLayout:
    """The layout of `tl.permute(x, permutation)` for x in `layout`."""
    names = layout.out_dims
    if sorted(permutation) != list(range(len(names))):
        raise LayoutError(f"{tuple(permutation)} does not permute {len(names)} dimensions")
    source = [names[d] for d in permutation]
    renamed = dict(zip(source, dim_names(len(names)), strict=True))
    return layout.transpose_outs(source).rename_outs(renamed)


def reshape(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """The layout of `tl.reshape(x, shape)`, in which the last dimension runs fastest."""
    names = dim_names(len(shape))
    reverse = dict(reversed(list(zip(names, shape, strict=True))))
    flat = layout.transpose_outs(tuple(reversed(layout.out_dims)))
    return flat.reshape_outs(reverse).transpose_outs(names)


def broadcast_source(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """The layout of a tile of `shape` whose broadcast lies in `layout`.

    Lanes, warps and blocks along the broadcast dimensions hold copies; registers are dropped.

    Raises:
        LayoutError: `shape` is neither 1 nor the layout's size somewhere.
    """
    if len(shape) != len(layout.outs) or any(
        size not in (1, whole) for size, whole in zip(shape, layout.shape, strict=True)
    ):
        raise LayoutError(f"a tile of shape {tuple(shape)} does not broadcast to {layout.shape}")
    outs = tuple((name, size) for name, size in zip(layout.out_dims, shape, strict=True))
    cut = LinearLayout((), outs)

    def read(vector: int) -> int:
        coordinates = layout.unpack_out(vector)
        return cut.pack_out({name: coordinates[name] for name, size in outs if size > 1})

    ins = tuple((name, tuple(map(read, vectors))) for name, vectors in layout.ins)
    return LinearLayout(ins, outs).without_zero_bases(REGISTER)


def join(layout: LinearLayout) -> LinearLayout:
    """The layout of `tl.join(x, y)` for x and y in `layout`: their registers alternate."""
    names = dim_names(len(layout.outs) + 1)
    pair = LinearLayout(((REGISTER, (1,)),), ((names[-1], 2),))
    return (pair * layout).transpose_outs(names)


def concatenate(layout: LinearLayout) -> LinearLayout:
    """The layout of `tl.cat(x, y)` for x and y in `layout`: y's registers follow x's."""
    names = layout.out_dims
    halves = LinearLayout(((REGISTER, (1,)),), ((names[0], 2),))
    return (layout * halves).transpose_outs(names)


def split_source(layout: LinearLayout) -> LinearLayout | None:
    """The layout that `tl.split(x)` needs of x: `layout`, with the halves alternating in registers.

    None if not registers but threads run over the last dimension, which has size 2.
    """
    bit = 1 << (layout.out_bits - 1)
    registers = layout.packed_bases(REGISTER)
    others = [v for d, vs in layout.ins for v in vs if d != REGISTER or v != bit]
    if bit not in registers or any(v & bit for v in others):
        return None
    order = (bit, *(v for v in registers if v != bit))
    return LinearLayout(
        tuple((d, order if d == REGISTER else vs) for d, vs in layout.ins), layout.outs
    )


def split(source: LinearLayout) -> LinearLayout:
    """The layout of each half of `tl.split(x)`, for x in a layout that `split_source` returns.

    The inverse of `join`.
    """
    ins = tuple((d, vs[1:] if d == REGISTER else vs) for d, vs in source.ins)
    return LinearLayout(ins, source.outs[:-1])


def concatenate_source(layout: LinearLayout) -> LinearLayout | None:
    """The layout of x and y for which `tl.cat(x, y)` lies in `layout`; None if there is none."""
    registers = layout.packed_bases(REGISTER)
    first, size = layout.outs[0]
    if not registers or layout.unpack_out(registers[-1])[first] != size // 2:
        return None
    half = LinearLayout((), ((first, size // 2), *layout.outs[1:]))
    ins = []
    for d, vectors in layout.ins:
        kept = vectors[:-1] if d == REGISTER else vectors
        coordinates = [layout.unpack_out(v) for v in kept]
        if any(c[first] & (size // 2) for c in coordinates):
            return None
        ins.append((d, tuple(half.pack_out(c) for c in coordinates)))
    made = LinearLayout(tuple(ins), half.outs)
    return made if concatenate(made) == layout else None
