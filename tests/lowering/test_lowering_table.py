"""The op table walked for ops that nothing lowers."""

from __future__ import annotations

from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.targets.nvptx.lowering.driver import LOWERINGS

# Ends of regions and of kernels, and the kernel itself: lowered with what they belong to.
STRUCTURAL = {
    "tt.func",
    "tt.return",
    "tt.reduce.return",
    "tt.map_elementwise.return",
    "scf.condition",
    "scf.yield",
}
# LowerDescriptors, LowerScaledDot and ExpandWatches make others of these, and have their own tests.
REPLACED = {
    "tt.descriptor_load",
    "tt.descriptor_store",
    "tt.descriptor_gather",
    "tt.descriptor_scatter",
    "tt.descriptor_reduce",
    "tt.dot_scaled",
    "tt.watch",
}


def test_every_op_of_the_table_has_a_lowering():
    assert set(OPS) - set(LOWERINGS) == STRUCTURAL | REPLACED
    assert set(LOWERINGS) <= set(OPS)
