"""Outcomes of launches: the memory that they leave, their faults, and how two of them differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.rerun import Budget, OutOfTimeError, deadline
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects import math as math_ops
from tkdebug.compiler.ir import ScalarType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.errors import TkError
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.launch import run_module, run_programs
from tkdebug.knobs import KNOBS
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.compile.debugged_stages import values_for

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.interpreter.observers import Observer
    from tkdebug.records.events import Fault
    from tkdebug.runtime.launch.requests import Grid
    from tkdebug.variations.launches import KeptLaunch

# The differences that other orders of summation, and roundings to a type on the way, may make:
# relative to the larger of an element and the root mean square of its tensor.
_TOLERANCES = {"f64": 1e-10, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}
# The same for types so narrow that a rounding on the way changes much of an element.
_COARSEST = 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run.

    Attributes:
        tensors: the parameters' tensors after the run, by name.
        grid: the launch's.
        faults: its errors.
        failure: why it did not end; "" where it did.
        failed_op: the id of the op at which it failed; None if it is not known.
    """

    tensors: Mapping[str, Tensor]
    grid: Grid
    faults: tuple[Fault, ...] = ()
    failure: str = ""
    failed_op: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element in which a run differs from another one.

    Attributes:
        what: "value", "fault", "failure", or "error" where nothing could be compiled.
        text: in words.
        tensor: parameter that leads to the element; "" for none.
        index: the index of the element.
        place: the place of the element in its allocation, in elements.
        program: linear number of a fault's; None where it is not known.
        op_id: the id of the op at which a run failed, or which has a fault; None if unknown.
    """

    what: str
    text: str
    tensor: str = ""
    index: tuple[int, ...] = ()
    place: int = 0
    got: str = ""
    expected: str = ""
    program: int | None = None
    op_id: int | None = None


def run_kept(
    launch: KeptLaunch,
    module: Module,
    budget: Budget,
    *,
    observers: Sequence[Observer] = (),
    programs: Sequence[range] | None = None,
    values: tuple[Any, ...] | None = None,
) -> Outcome:
    """Interpret a module for a kept launch, on memory of its own.

    Args:
        launch: the launch whose grid and inputs are used.
        module: Tile IR or GPU IR of its kernel, which no longer changes.
        budget: the processor time for it.
        observers: observers of the run.
        programs: those that run; None for all.
        values: values that `launch.fresh` returned; None for new ones.

    Raises:
        OutOfTimeError: the time is over.
    """
    values = launch.fresh() if values is None else values
    given = values_for(module, runtime_values(launch.src.specs, values))
    tensors = launch.tensors(values)
    looking = [*deadline(budget, module), *observers]
    try:
        with KNOBS.scope(checks=("none",)):
            log = FaultLog(launch.name, 0, launch.grid, is_reported=False)
            if programs is not None:
                run_programs(module, given, launch.grid, programs, log, (), looking)
                found = log.publish()
            else:
                found = run_module(
                    module, given, launch.grid, log=log, is_reported=False, observers=looking
                )
    except (OutOfTimeError, KeyboardInterrupt):
        raise
    except TkError as error:
        return Outcome(tensors, launch.grid, (), _first_line(error), _running_op(error))
    except Exception as error:  # what a wrong pass leaves may fail in any way
        reason = f"{type(error).__name__}: {_first_line(error)}"
        return Outcome(tensors, launch.grid, (), reason, _running_op(error))
    return Outcome(tensors, launch.grid, tuple(one for one in found if one.severity == "error"))


def _running_op(error: Exception) -> int | None:
    """The id of the innermost op that ran when an error was raised, by its traceback."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is Evaluator.run_block.__code__:
            view = trace.tb_frame.f_locals.get("view")
            found = view.op.id if isinstance(view, OpView) else found
        trace = trace.tb_next
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The differences that arithmetic explains.

    Attributes:
        relative: the relative tolerance for floats; 0.0 if each bit counts.
    """

    relative: float = 0.0

    @staticmethod
    def of(module: Module, *, natively: bool = False) -> Tolerance:
        """Return the tolerance for the results of a kernel, by the ops of its Tile IR.

        It is 0 unless floats are summed up, as passes may change the order of sums, or a GPU may
        compute something otherwise.

        Args:
            module: before any pass.
            natively: whether a GPU may also contract products that are added, and approximate
                quotients and functions.
        """
        sums, types, names = False, set(), set()
        for op in module.walk():
            floats = [str(ir.element_of(value.type)) for value in op.results if is_float(value)]
            sums |= op.name in _SUMS and any(map(is_float, op.operands))
            names.add(op.name)
            if op.name not in _EXACT:
                types.update(floats)
        is_contracted = arith.MulF.name in names and not names.isdisjoint(_ADDITIONS)
        differs = natively and (is_contracted or not names.isdisjoint(_APPROXIMATED))
        if not sums and not differs:
            return Tolerance()
        return Tolerance(max((_TOLERANCES.get(name, _COARSEST) for name in types), default=0.0))

    def differing(self, got: Tensor, expected: Tensor) -> Tensor:
        """Return where two tensors of one shape and dtype differ by more than that: bool."""
        if not got.dtype.is_floating_point:
            return got != expected
        if got.element_size() == 1:
            return got.view(torch.uint8) != expected.view(torch.uint8)
        a, b = got.double(), expected.double()
        differ = (a != b) & ~(a.isnan() & b.isnan())
        if not self.relative or not bool(differ.any()):
            return differ
        finite = a.isfinite() & b.isfinite()
        among = b[finite]
        scale = float(among.square().mean().sqrt()) if among.numel() else 0.0
        allowed = self.relative * torch.maximum(b.abs(), torch.full_like(b, scale))
        return differ & (~finite | ((a - b).abs() > allowed))


_SUMS = names_of(tt.Dot, tt.DotScaled, tt.Reduce, tt.Scan, tt.AtomicRmw)
_ADDITIONS = names_of(arith.AddF, arith.SubF)
_APPROXIMATED = names_of(
    *(math_ops.FloatFunction, arith.DivF, tt.ExternElementwise, tt.ElementwiseInlineAsm)
)
# These round nothing.
_EXACT = names_of(
    *(tt.Load, tt.DescriptorLoad, tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Trans, tt.Reshape),
    *(tt.Join, tt.Split, tt.Cat, arith.Constant, arith.Select, arith.ExtF),
)


def is_float(value: Any) -> bool:
    """Whether a value of the IR is a float, or a tile of floats."""
    element = ir.element_of(value.type)
    return isinstance(element, ScalarType) and element.is_float


def difference(got: Outcome, expected: Outcome, tolerance: Tolerance) -> Difference | None:
    """Return the first difference between two runs, or None if arithmetic explains all.

    Args:
        got: the run that is looked at.
        expected: the outcome that it should have.
        tolerance: the tolerance for floats.
    """
    if got.failure != expected.failure:
        if got.failure:
            text = f"it cannot be run: {got.failure}"
            return Difference("failure", text, op_id=got.failed_op)
        return Difference("failure", f"it runs; before, it could not: {expected.failure}")
    known = {fault.kind for fault in expected.faults}
    for fault in got.faults:
        if fault.kind not in known:
            place = f"{fault.file}:{fault.line}: " if fault.frames else ""
            text = f"it has a fault that it had not: {place}{fault.kind}: {fault.message}"
            program = _linear(fault.program_id, got.grid)
            return Difference("fault", text, program=program, op_id=fault.op_id)
    for name, tensor in expected.tensors.items():
        found = _tensor_difference(name, got.tensors[name], tensor, tolerance)
        if found is not None:
            return found
    for name, tensor in expected.tensors.items():
        found = _difference_around(name, got.tensors[name], tensor)
        if found is not None:
            return found
    return None


def _linear(program: tuple[int, int, int] | None, grid: Grid) -> int | None:
    if program is None:
        return None
    x, y, z = program
    return x + grid[0] * (y + grid[1] * z)


def _tensor_difference(
    name: str, got: Tensor, expected: Tensor, tolerance: Tolerance
) -> Difference | None:
    bad = tolerance.differing(got, expected)
    count = int(bad.sum())
    if not count:
        return None
    index = first_index(bad)
    strides = map(int, expected.stride())
    place = int(expected.storage_offset()) + sum(
        i * stride for i, stride in zip(index, strides, strict=True)
    )
    shown = f"{name}[{', '.join(map(str, index))}]" if index else name
    a, b = number_text(got[index].item()), number_text(expected[index].item())
    of = f"; {count:,} of {bad.numel():,} elements differ" if bad.numel() > 1 else ""
    return Difference("value", f"{shown} is {a}, it was {b}{of}", name, index, place, a, b)


def first_index(chosen: Tensor) -> tuple[int, ...]:
    """Return the index of the first true element of a bool tensor, () for a number's."""
    return tuple(int(axis[0]) for axis in chosen.nonzero(as_tuple=True)) if chosen.dim() else ()


def _difference_around(name: str, got: Tensor, expected: Tensor) -> Difference | None:
    """The first byte that differs around a tensor whose own elements are the same, or None."""
    outside = whole_bytes(got) != whole_bytes(expected)
    if not torch.equal(got, expected) or not bool(outside.any()):
        return None
    byte = int(outside.nonzero()[0])
    text = f"memory around {name} differs, at byte {byte:,} of its allocation"
    return Difference("value", text, name, (), byte // expected.element_size())


def whole_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's allocation as bytes."""
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return whole.set_(storage, 0, (storage.nbytes(),), (1,))


def crash_text(error: RuntimeError) -> str:
    """Return the message that nothing runs after a crash of a native launch.

    Raises:
        RuntimeError: `error`, if it is no CUDA error.
    """
    if "CUDA error" not in str(error):
        raise error
    return f"since a native launch crashed, the GPU runs nothing more: {_first_line(error)}"


def number_text(value: Any) -> str:
    """Return a number as reports show it."""
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else str(value)
    return str(value)
