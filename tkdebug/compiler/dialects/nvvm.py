"""MLIR's nvvm dialect: special registers and dependent launches of NVIDIA GPUs."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import OneResult
from tkdebug.compiler.ir.op_view import OpView, attribute_def


class MultiprocessorId(OneResult):
    """The multiprocessor a program runs on; interpreted, programs take turns on all of them."""

    name = "nvvm.read.ptx.sreg.smid"


class GlobalTimer(OneResult):
    """A clock in nanoseconds; interpreted, the same for all programs of a batch."""

    name = "nvvm.read.ptx.sreg.globaltimer"


class GridDependencyControl(OpView):
    """Programmatic dependent launch: `kind` wait or launch_dependents; interpreted, nothing."""

    name = "nvvm.griddepcontrol"
    kind = attribute_def("kind", str)
