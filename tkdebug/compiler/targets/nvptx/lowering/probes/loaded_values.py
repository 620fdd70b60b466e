"""What checked kernels test of what they load: the mark of memory that nothing has written."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import ScalarType, element_of
from tkdebug.compiler.probes.marks import MARKS
from tkdebug.compiler.targets.nvptx.emitter import integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probes.reports import report_elements
from tkdebug.compiler.targets.nvptx.lowering.types import Registers


def look_at_loaded(ctx: Lowering, op: Operation, pointers: Registers, values: Registers) -> None:
    """Report the elements of a load that is a site which nothing has written.

    What the mask leaves out has no mark: it is `other` or 0.
    """
    site = None if ctx.probes is None else ctx.probes.value_site_of(op)
    if site is None:
        return
    emit, element = ctx.emit, element_of(op.result.type)
    assert isinstance(element, ScalarType)
    bits = [ctx.to_bits(value) for value in values]
    marks = [emit.icmp("eq", one, integer(one.type, MARKS[element.name])) for one in bits]
    report_elements(ctx, op, tt.Load(op).pointer, marks, site=site, at=pointers)
