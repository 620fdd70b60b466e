"""MLIR's nvvm dialect: special registers and dependent launches of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import Effects, OneResult, Op
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import attribute_def


class MultiprocessorId(OneResult):
    """The multiprocessor a program runs on; interpreted, programs are dealt to them in turn."""

    name = "nvvm.read.ptx.sreg.smid"

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """An i32."""
        return (ir.I32,)


class GlobalTimer(OneResult):
    """A clock in nanoseconds; interpreted, the same for all programs of a batch."""

    name = "nvvm.read.ptx.sreg.globaltimer"
    effects = Effects.OTHER

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """An i64."""
        return (ir.I64,)


class GridDependencyControl(Op):
    """Programmatic dependent launch: `kind` wait or launch_dependents; interpreted, nothing."""

    name = "nvvm.griddepcontrol"
    effects = Effects.OTHER
    kind = attribute_def("kind", str)
