"""How many rounds of a loop one pass through its machine code makes.

LLVM and ptxas unroll loops; every copy of an instruction keeps its op. How many copies there are
follows from ops that become one instruction a register: most ops do, so the most frequent ratio
of an innermost loop's ops is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.ir import Module, Operation
from tkdebug.linemap.line_table import LineTable


def unroll_factors(gpu: Module, table: LineTable) -> dict[int, float]:
    """By loop of GPU IR (its id), of those that have ops of their own."""
    llvm = Counter(table.llvm_ops.values())
    ptx = Counter(table.ptx_ops.values())
    copies = Counter(i.ptx_line for i in table.instructions if i.ptx_line is not None)
    lines: dict[int, list[int]] = {}
    for line, op_id in table.ptx_ops.items():
        lines.setdefault(op_id, []).append(line)
    found = {}
    for loop in gpu.walk():
        if not scf.Loop.matches(loop):
            continue
        own = [op.id for region in loop.regions for op in _own(region.block.operations)]
        by_llvm = _mode(ptx[o] / llvm[o] for o in own if llvm[o] and ptx[o])
        by_ptxas = _mode(float(copies[line]) for o in own for line in lines.get(o, ()))
        found[loop.id] = by_llvm * by_ptxas
    return found


def _own(operations: Iterable[Operation]) -> Iterable[Operation]:
    """The ops of a loop's body, branches included, inner loops left out."""
    for op in operations:
        yield op
        if scf.If.matches(op):
            for region in op.regions:
                yield from _own(region.block.operations)


def _mode(ratios: Iterable[float]) -> float:
    """The most frequent ratio of at least one; 1 where there is none."""
    counted = Counter(round(ratio) for ratio in ratios if ratio >= 0.9)
    if not counted:
        return 1.0
    most = max(counted.values())
    return float(min(ratio for ratio, count in counted.items() if count == most))
