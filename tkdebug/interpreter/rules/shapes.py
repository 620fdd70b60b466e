"""What makes tiles, moves their elements about, or picks some of them."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.interpreter.rules.types import Rules, one
from tkdebug.interpreter.tile_ops import indexing, shapes, sorting

RULES: Rules = {
    tt.MakeRange: one(shapes.make_range),
    tt.Splat: one(shapes.splat),
    tt.Unsplat: one(shapes.reshape),
    tt.ExpandDims: one(shapes.expand_dims),
    tt.Broadcast: one(shapes.broadcast),
    tt.Reshape: one(shapes.reshape),
    tt.Trans: one(shapes.transpose),
    tt.Join: one(shapes.join),
    tt.Split: shapes.split,
    tt.Cat: one(shapes.cat),
    tt.Gather: one(indexing.gather),
    tt.Histogram: one(indexing.histogram),
    tt.Flip: one(indexing.flip),
    tt.Sort: one(sorting.sort),
    tt.TopK: one(sorting.topk),
    tt.BitonicMerge: one(sorting.bitonic_merge),
}
