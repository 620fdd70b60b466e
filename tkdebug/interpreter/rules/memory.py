"""Global memory: pointers, descriptors, atomics."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.interpreter.memory import (
    atomics,
    descriptor_blocks,
    descriptor_creation,
    descriptors,
    loads_and_stores,
    pointers,
)
from tkdebug.interpreter.rules.types import Rules, one

RULES: Rules = {
    tt.AddPtr: one(pointers.add_pointer),
    tt.Load: one(loads_and_stores.load),
    tt.Store: loads_and_stores.store,
    tt.MakeTensorDescriptor: one(descriptor_creation.make_descriptor),
    tt.DescriptorLoad: one(descriptor_blocks.descriptor_load),
    tt.DescriptorStore: descriptor_blocks.descriptor_store,
    tt.DescriptorGather: one(descriptors.descriptor_gather),
    tt.DescriptorScatter: descriptors.descriptor_scatter,
    tt.DescriptorReduce: descriptors.descriptor_reduce,
    tt.AtomicLoad: one(atomics.atomic_load),
    tt.AtomicRmw: one(atomics.atomic_rmw),
    tt.AtomicCas: one(atomics.atomic_cas),
}
