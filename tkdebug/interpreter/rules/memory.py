"""Global memory: pointers, descriptors, atomics."""

from __future__ import annotations

from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, one

RULES: dict[str, Rule] = {
    "tt.addptr": one(Evaluator.add_pointer),
    "tt.load": one(Evaluator.load),
    "tt.store": Evaluator.store,
    "tt.make_tensor_descriptor": one(Evaluator.make_descriptor),
    "tt.descriptor_load": one(Evaluator.descriptor_load),
    "tt.descriptor_store": Evaluator.descriptor_store,
    "tt.descriptor_gather": one(Evaluator.descriptor_gather),
    "tt.descriptor_scatter": Evaluator.descriptor_scatter,
    "tt.descriptor_reduce": Evaluator.descriptor_reduce,
    "tt.atomic_rmw": one(Evaluator.atomic_rmw),
    "tt.atomic_cas": one(Evaluator.atomic_cas),
}
