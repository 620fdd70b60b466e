"""Where tensor descriptors are forwarded: each slot that held one becomes several.

Responsible for the parameters of the function and for the carried values of loops and branches;
what descriptors are used for is `lower_descriptors`'. A descriptor is a base pointer, then its
shape, then its strides. Between ops the shape is i32 and the last stride, which is 1, is left out;
parameters have all of them as i64, as they are passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import edges, forwarded_operands, junctions
from tkdebug.compiler.ir.core import Block, Operation, Region, Value
from tkdebug.compiler.ir.types import DescriptorType, PointerType, TensorType, Type
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.errors import CompileError, IRError

_RULE = "spread-descriptor"
# Ops that hand values on; a descriptor anywhere else is an error.
_HANDING_ON = frozenset(
    (scf.For.name, scf.While.name, scf.If.name, scf.Yield.name, scf.Condition.name)
)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What is known of a descriptor besides its base pointer.

    Attributes:
        block: type of the blocks it reads and writes.
        shape: extents, i32 and not negative.
        strides: in elements, i64; all but the last.
        padding: "zero" or "nan".
    """

    block: TensorType
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    padding: str

    @property
    def values(self) -> tuple[Value, ...]:
        """What is forwarded after the base pointer."""
        return (*self.shape, *self.strides)


class Slots:
    """Makes several values of each one that is a descriptor.

    Attributes:
        known: the descriptors by base pointer.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.known: dict[Value, Descriptor] = {}
        self._rewriter = rewriter

    def of(self, op: Operation, base: Value) -> Descriptor:
        """The descriptor that `op` uses."""
        descriptor = self.known.get(base)
        if descriptor is None:
            raise IRError(f"{_where(op)}: operand 0 is not a descriptor that is defined before it")
        return descriptor

    def spread_parameters(self, function: Operation) -> None:
        """Replace each descriptor parameter by base, shape and strides, all as they are passed.

        Those that are tensor maps stay what they are, with shape and strides behind them.
        """
        block = function.regions[0].block
        if not any(isinstance(a.type, DescriptorType) for a in block.arguments):
            return
        view = tt.Func(function)
        names, divisors = view.arg_names, view.arg_divisibility
        padded, mapped = view.nan_padded, view.tensor_maps
        del view.nan_padded
        del view.mappable
        if kept := tuple(name for name in padded if name in mapped):
            view.nan_padded = kept
        parts: list[tuple[Value, list[Value]]] = []
        new_names: list[str] = []
        new_divisors: list[int] = []
        for index, argument in enumerate(block.arguments):
            name = names[index] if names else str(argument.name)
            divisor = 1 if divisors is None else divisors[index]
            extra: list[Value] = []
            if isinstance(argument.type, DescriptorType):
                argument.name = name
                extra = _dimensions(block, argument.type, argument.name)
                if name not in mapped:
                    padding = "nan" if name in padded else "zero"
                    self._use_pointer(block, argument, extra, padding)
                new_names += [argument.name, *(str(value.name) for value in extra)]
                new_divisors += [divisor, *_divisors(divisors, index, len(extra))]
            else:
                new_names.append(name)
                new_divisors.append(divisor)
            parts.append((argument, extra))
        _renumber(block, [value for argument, extra in parts for value in (argument, *extra)])
        if names:
            view.arg_names = tuple(new_names)
        if divisors is not None:
            view.arg_divisibility = tuple(new_divisors)
        self._rewriter.record_change(function, _RULE)

    def _use_pointer(
        self, block: Block, argument: Value, dimensions: Sequence[Value], padding: str
    ) -> None:
        """Let a descriptor parameter be its base pointer."""
        type_ = argument.type
        assert isinstance(type_, DescriptorType)
        rank = len(type_.block.shape)
        argument.type = PointerType(type_.block.element)
        argument.name = f"{argument.name}.base"
        function = block.parent_op
        assert function is not None
        first = block.operations[0]
        build = OpBuilder(self._rewriter, first, _RULE, function.location)
        # Extents are i32 in the language, and positive where the host makes the descriptor.
        shape = tuple(build.op(arith.TruncI, (size,), ir.I32) for size in dimensions[:rank])
        strides = tuple(dimensions[rank:-1])
        self.known[argument] = Descriptor(type_.block, shape, strides, padding)

    def spread_operands(self, op: Operation) -> None:
        """Forward shape and strides with every descriptor that `op` forwards."""
        if not any(value in self.known for value in op.operands):
            return
        if op.name not in _HANDING_ON:
            raise IRError(f"{_where(op)}: has no form for tensor descriptors")
        op.operands = tuple(
            part
            for value in op.operands
            for part in (value, *(self.known[value].values if value in self.known else ()))
        )
        self._rewriter.record_change(op, _RULE)

    def spread_arguments(self, op: Operation, region: Region) -> None:
        """Make arguments for the descriptors that a region of `op` takes."""
        block = region.block
        if not any(isinstance(a.type, DescriptorType) for a in block.arguments):
            return
        handed_on = self._handed_to(op, region)
        values = self._spread(block.arguments, handed_on, lambda t: Value(t, block, 0), op)
        _renumber(block, values)

    def spread_results(self, op: Operation) -> None:
        """Make results for the descriptors that `op` gives, once its regions are done."""
        self._check_padding(op)
        if not any(isinstance(value.type, DescriptorType) for value in op.results):
            return
        handed_on = next(
            edge.operands for edge in edges(op) if edge.target is None and edge.branch is not op
        )
        results = self._spread(op.results, handed_on, lambda t: Value(t, op, 0), op)
        op.results = tuple(results)
        for index, value in enumerate(op.results):
            value.index = index
        self._rewriter.record_change(op, _RULE)

    def _handed_to(self, op: Operation, region: Region) -> tuple[Value, ...]:
        """What stands for the arguments of a region when it is first entered."""
        entry = next((edge for edge in edges(op) if edge.target is region), None)
        if entry is None:
            raise IRError(f"{_where(op)}: has no form for tensor descriptors")
        # The loop's position is an argument of its own.
        own = len(region.block.arguments) - len(entry.values)
        return (*region.block.arguments[:own], *entry.operands)

    def _spread(
        self,
        slots: Sequence[Value],
        handed_on: Sequence[Value],
        make: Callable[[Type], Value],
        op: Operation,
    ) -> list[Value]:
        """The slots with those for shapes and strides; `handed_on` has them already."""
        values: list[Value] = []
        for slot in slots:
            source = self.known.get(handed_on[len(values)])
            values.append(slot)
            if not isinstance(slot.type, DescriptorType):
                continue
            if source is None:
                raise IRError(f"{_where(op)}: forwards no descriptor where {slot.type} is expected")
            slot.type = PointerType(source.block.element)
            extra = [make(value.type) for value in source.values]
            values += extra
            rank = len(source.shape)
            self.known[slot] = Descriptor(
                source.block, tuple(extra[:rank]), tuple(extra[rank:]), source.padding
            )
        return values

    def _check_padding(self, op: Operation) -> None:
        """All descriptors that one variable may be must pad alike."""
        for junction in junctions(op):
            sources = [forwarded_operands(branch) for branch in junction.branches]
            for values in zip(*sources, strict=True):
                paddings = {
                    self.known[value].padding: None for value in values if value in self.known
                }
                if len(paddings) > 1:
                    first, other, *_ = paddings
                    raise CompileError(
                        f"a tensor descriptor that pads with {first} and one that pads with "
                        f"{other} cannot both be assigned to one variable here; "
                        "give both the same padding_option",
                        frames=op.location.frames,
                    )


def _divisors(divisors: Sequence[int] | None, index: int, count: int) -> Sequence[int]:
    """What divides the shape and strides of the descriptor parameter `index`.

    The language's view of the same numbers follows it.
    """
    return () if divisors is None else divisors[index + 1 : index + 1 + count]


def _dimensions(block: Block, type_: DescriptorType, name: str) -> list[Value]:
    """New parameters for the shape and the strides of a descriptor."""
    rank = len(type_.block.shape)
    labels = [f"{name}.{part}{i}" for part in ("shape", "stride") for i in range(rank)]
    return [_named(Value(ir.I64, block, 0), label) for label in labels]


def _named(value: Value, name: str) -> Value:
    value.name = name
    return value


def _renumber(block: Block, values: list[Value]) -> None:
    block.arguments = values
    for index, value in enumerate(values):
        value.index = index


def _where(op: Operation) -> str:
    place = op.location.primary
    return f"{place.file}:{place.line}: {op.name} #{op.id}"
