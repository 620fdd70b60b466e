"""What makes tiles, moves their elements about, or picks some of them."""

from __future__ import annotations

from tkdebug.interpreter import indexing, shapes, sorting
from tkdebug.interpreter.rules.types import Rule, one

RULES: dict[str, Rule] = {
    "tt.make_range": one(shapes.make_range),
    "tt.splat": one(shapes.splat),
    "tt.unsplat": one(shapes.reshape),
    "tt.expand_dims": one(shapes.expand_dims),
    "tt.broadcast": one(shapes.broadcast),
    "tt.reshape": one(shapes.reshape),
    "tt.trans": one(shapes.transpose),
    "tt.join": one(shapes.join),
    "tt.split": shapes.split,
    "tt.cat": one(shapes.cat),
    "tt.gather": one(indexing.gather),
    "tt.histogram": one(indexing.histogram),
    "tt.flip": one(indexing.flip),
    "tt.sort": one(sorting.sort),
    "tt.topk": one(sorting.topk),
    "tt.bitonic_merge": one(sorting.bitonic_merge),
}
