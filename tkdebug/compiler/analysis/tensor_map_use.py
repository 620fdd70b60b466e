"""What a kernel does with a descriptor, as far as bulk copies cannot do it.

The same questions are asked of descriptors that the host made and of those that launches make.
"""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.dot_use import feeds_dot
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Value
from tkdebug.compiler.ir.types import DescriptorType

LOAD, STORE = tt.DescriptorLoad.name, tt.DescriptorStore.name
# What bulk stores write at once.
UNIT_BYTES = 16


def misuse(descriptor: Value) -> str | None:
    """What is done with a descriptor that bulk copies do not do."""
    kinds = {user.name for user in descriptor.uses}
    for name in sorted(kinds - {LOAD, STORE}):
        if name.startswith("tt.descriptor_"):
            return f"{name.removeprefix('tt.descriptor_')}s are made by pointers"
        return "a loop or a branch forwards the descriptor"
    if kinds == {LOAD, STORE}:
        return "it is both loaded from and stored to"
    if not all(feeds_dot(user.result) for user in descriptor.uses if user.name == LOAD):
        # They would go through shared memory, one trip more than to registers.
        return "no dot multiplies what it loads"
    return None


def misplaced(descriptor: Value, infos: Mapping[Value, AxisInfo]) -> str | None:
    """Whether an access may begin where bulk copies should not."""
    type_ = descriptor.type
    assert isinstance(type_, DescriptorType)
    element_bytes = type_.block.element.bits // 8
    for user in descriptor.uses:
        if user.name in (LOAD, STORE):
            start = infos[tt.DescriptorBlockAccess(user).offsets[-1]]
            if start.divisibility[0] * element_bytes % UNIT_BYTES:
                return f"it may be accessed elsewhere than at multiples of {UNIT_BYTES} bytes"
    return None
