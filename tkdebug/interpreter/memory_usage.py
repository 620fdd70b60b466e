"""Facts about memory in a kernel's IR: bytes live per program, arguments that are written."""

from __future__ import annotations

import math

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Effects, accessed
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Module, Operation, PointerType, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.op_view import names_of

_FORWARDS_POINTER = names_of(
    tt.AddPtr, tt.Rearrangement, tt.Bitcast, tt.Hint, tt.MakeTensorDescriptor
)
# The origin of pointers that come from no parameter.
ELSEWHERE = frozenset([-1])


# Their tiles are never dense: one element stands for all, or a start and a step.
_SYMBOLIC = names_of(arith.Constant, tt.Splat, tt.MakeRange)


def live_bytes_per_program(module: Module) -> int:
    """Return the peak bytes of one program: tiles, computed ones as if dense, and shared memory."""
    function = tt.Func(module.function)
    return max(64, _block_peak(function.body) + function.shared_bytes)


def _size_bytes(value: Value) -> int:
    producer = value.defining_op
    if isinstance(value.type, ir.TokenType) or (producer and producer.name in _SYMBOLIC):
        return 0
    element = ir.element_of(value.type)
    # Index tensors are int64 whatever their type; i1 takes a byte.
    size = (
        8 if isinstance(element, PointerType) or element.is_integer else max(4, element.bits // 8)
    )
    count = 1
    for extent in ir.shape_of(value.type):
        count *= extent
    return count * size


_WRITERS = frozenset(name for name, spec in OPS.items() if Effects.WRITE in spec.effects)
# Index vectors (offsets, order, ranks, rounds) of an atomic, bytes per element.
_ATOMIC_SCRATCH_BYTES = 144


def _scratch_bytes(op: Operation) -> int:
    if not tt.Atomic.matches(op):
        return 0
    return math.prod(ir.shape_of(op.result.type)) * _ATOMIC_SCRATCH_BYTES


def _block_peak(block: Block) -> int:
    last: dict[Value, int] = {}
    for place, op in enumerate(block.operations):
        for inner in op.walk():
            for value in inner.operands:
                last[value] = place
    dying: dict[int, list[Value]] = {}
    for value, place in last.items():
        dying.setdefault(place, []).append(value)
    sizes = {argument: _size_bytes(argument) for argument in block.arguments}
    peak = alive = sum(sizes.values())
    for place, op in enumerate(block.operations):
        inside = max([_block_peak(b) for region in op.regions for b in region.blocks], default=0)
        results = 0
        for result in op.results:
            sizes[result] = size = _size_bytes(result)
            results += size
        # Most torch ops hold one temporary as large as their result.
        peak = max(peak, alive + 2 * results + _scratch_bytes(op) + inside)
        alive += results
        for value in dying.get(place, ()):
            alive -= sizes.pop(value, 0)
    return peak


def written_arguments(module: Module) -> frozenset[int] | None:
    """Return positions of the parameters that may be written through; None if unknown."""
    origin = pointer_origins(module)
    written: set[int] = set()
    for op in module.function.walk():
        if op.name in _WRITERS:
            written |= origin.get(accessed(op), ELSEWHERE)
    return None if -1 in written else frozenset(written)


def updated_arguments(module: Module) -> frozenset[int]:
    """Return positions of the parameters that are written and whose first access only reads."""
    origin = pointer_origins(module)
    first: dict[int, Operation] = {}
    written: set[int] = set()
    for op in module.function.walk():
        effects = OPS[op.name].effects & (Effects.READ | Effects.WRITE)
        for place in origin.get(accessed(op), ELSEWHERE) if effects and op.operands else ():
            first.setdefault(place, op)
            if Effects.WRITE in effects:
                written.add(place)
    loads = {place for place, op in first.items() if Effects.WRITE not in OPS[op.name].effects}
    return frozenset(loads & written)


def pointer_origins(module: Module) -> dict[Value, frozenset[int]]:
    """Return the parameters' positions that each pointer may come from; -1 for any other memory."""
    analysis = _PointerOrigins()
    body = module.function.regions[0].block
    for place, parameter in enumerate(body.arguments):
        analysis.set(parameter, frozenset([place]))
    analysis.run(body)
    return analysis.facts


class _PointerOrigins(ForwardAnalysis[frozenset[int]]):
    def visit(self, op: Operation) -> None:
        """Set the parameters that pointers of an op's results may come from."""
        pointers = [value for value in op.results if _holds_pointer(value)]
        if not pointers or op.name in CONTROL_FLOW:
            return
        found = ELSEWHERE
        if op.name in _FORWARDS_POINTER:
            (source, *_) = op.operands
            found = self._of(source)
        elif arith.Select.matches(op):
            select = arith.Select(op)
            found = self._of(select.true_value) | self._of(select.false_value)
        for value in pointers:
            self.set(value, found)

    def join(self, value: Value, known: frozenset[int], fact: frozenset[int]) -> frozenset[int]:
        """Return the union of both sets of parameters."""
        return known | fact

    def _of(self, value: Value) -> frozenset[int]:
        return self.facts.get(value, frozenset())


def _holds_pointer(value: Value) -> bool:
    return isinstance(value.type, ir.DescriptorType) or isinstance(
        ir.element_of(value.type), PointerType
    )
