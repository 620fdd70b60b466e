"""What makes tiles, moves their elements about, or picks some of them."""

from __future__ import annotations

from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, one

RULES: dict[str, Rule] = {
    "tt.make_range": one(Evaluator.make_range),
    "tt.splat": one(Evaluator.splat),
    "tt.unsplat": one(Evaluator.reshape),
    "tt.expand_dims": one(Evaluator.expand_dims),
    "tt.broadcast": one(Evaluator.broadcast),
    "tt.reshape": one(Evaluator.reshape),
    "tt.trans": one(Evaluator.transpose),
    "tt.join": one(Evaluator.join),
    "tt.split": Evaluator.split,
    "tt.cat": one(Evaluator.cat),
    "tt.gather": one(Evaluator.gather),
    "tt.histogram": one(Evaluator.histogram),
    "tt.flip": one(Evaluator.flip),
    "tt.sort": one(Evaluator.sort),
    "tt.topk": one(Evaluator.topk),
    "tt.bitonic_merge": one(Evaluator.bitonic_merge),
}
