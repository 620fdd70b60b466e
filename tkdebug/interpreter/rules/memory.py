"""Global memory: pointers, descriptors, atomics."""

from __future__ import annotations

from tkdebug.interpreter import addresses, atomics, descriptor_blocks, descriptors, memory
from tkdebug.interpreter.rules.types import Rule, one

RULES: dict[str, Rule] = {
    "tt.addptr": one(memory.add_pointer),
    "tt.load": one(addresses.load),
    "tt.store": addresses.store,
    "tt.make_tensor_descriptor": one(descriptor_blocks.make_descriptor),
    "tt.descriptor_load": one(descriptor_blocks.descriptor_load),
    "tt.descriptor_store": descriptor_blocks.descriptor_store,
    "tt.descriptor_gather": one(descriptors.descriptor_gather),
    "tt.descriptor_scatter": descriptors.descriptor_scatter,
    "tt.descriptor_reduce": descriptors.descriptor_reduce,
    "tt.atomic_rmw": one(atomics.atomic_rmw),
    "tt.atomic_cas": one(atomics.atomic_cas),
}
