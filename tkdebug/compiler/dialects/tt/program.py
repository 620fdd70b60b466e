"""The kernel and its place in the grid, assumptions of the optimiser, debugging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import (
    Effects,
    Elementwise,
    LikeFirst,
    OneResult,
    Op,
    ProgramBarrier,
    SameElements,
    StatementRegions,
    Terminator,
)
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Block
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    I1,
    NUMBERS,
    VALUES,
    attribute_def,
    late_attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
)


class GridQuery(OneResult):
    """A number along a grid axis: the program's position, or the grid's extent."""

    axis = attribute_def("axis", int)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """An i32."""
        return (ir.I32,)


class GetProgramId(GridQuery):
    """This program's position along a grid axis."""

    name = "tt.get_program_id"


class GetNumPrograms(GridQuery):
    """The grid's extent along an axis."""

    name = "tt.get_num_programs"


class Assert(Op):
    """Reports the programs and lanes where the condition is false."""

    name = "tt.assert"
    is_repeatable = True
    effects = Effects.OTHER
    condition = operand_def(CONDITIONS)
    mask = optional_operand_def(CONDITIONS)
    message = attribute_def("message", str, "")


class Print(Op):
    """Prints a prefix and values, a line an element."""

    name = "tt.print"
    is_repeatable = True
    takes_any_layout = True
    effects = Effects.OTHER
    values = variadic_operands_def(VALUES)
    prefix = attribute_def("prefix", str, "")
    hex = attribute_def("hex", bool, False)
    signed = optional_attribute_def("signed", tuple[bool, ...])
    # Format of one line for all values, which are scalars, as printf's.
    template = optional_attribute_def("template", str)


class Barrier(ProgramBarrier):
    """All threads of the program wait for each other."""

    name = "tt.barrier"


class Assume(Op):
    """A condition that the optimiser may assume."""

    name = "tt.assume"
    is_repeatable = True
    effects = Effects.OTHER
    condition = operand_def(I1)


class Watch(Op):
    """Shows a watched value; `expand-watches` makes native code of it."""

    name = "tt.watch"
    is_repeatable = True
    effects = Effects.OTHER
    value = operand_def(NUMBERS)
    watch = attribute_def("watch", int)


class Visit(OneResult):
    """The number of earlier visits of this program to a watch."""

    name = "tt.visit"
    effects = Effects.OTHER
    watch = attribute_def("watch", int)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """An i32."""
        return (ir.I32,)


# A kind of hint that no pass uses: checked kernels test whether a block begins at a multiple of it.
BLOCK_START = "block-start"


class Hint(SameElements, Elementwise, LikeFirst):
    """The operand, with facts `values` of `kind`, one per axis."""

    name = "tt.hint"
    source = operand_def(VALUES)
    kind = attribute_def("kind", str)
    values = attribute_def("values", tuple[int, ...])


class Return(Terminator):
    """Ends a kernel."""

    name = "tt.return"


class Func(StatementRegions):
    """A kernel; its block arguments are the run-time parameters."""

    name = "tt.func"
    effects = Effects.OTHER
    terminators = (Return,)
    is_isolated = True
    takes_any_layout = True
    sym_name = optional_attribute_def("sym_name", str)
    arg_names = attribute_def("arg_names", tuple[str, ...], ())
    arg_divisibility = optional_attribute_def("arg_divisibility", tuple[int, ...])
    nan_padded = attribute_def("nan_padded", tuple[str, ...], ())
    mappable = attribute_def("mappable", tuple[str, ...], ())
    tensor_maps = attribute_def("tensor_maps", tuple[str, ...], ())
    num_warps = late_attribute_def("num_warps", int)
    threads_per_warp = attribute_def("threads_per_warp", int, 32)
    target = optional_attribute_def("target", str)
    shared_bytes = attribute_def("shared_bytes", int, 0)
    fp_fusion = attribute_def("fp_fusion", bool, True)
    flush_subnormals = attribute_def("flush_subnormals", bool, True)
    # For kernels that are checked as they run (`compiler.sites`).
    check_sites = attribute_def("check_sites", tuple[str, ...], ())
    check_bounds = attribute_def("check_bounds", tuple[str, ...], ())
    # The parameters among `check_bounds` whose tensors end at multiples of 16 bytes.
    check_aligned_ends = attribute_def("check_aligned_ends", tuple[str, ...], ())
    # The test of each check site, set by its lowering (`compiler.sites.checks.TESTS`).
    check_tests = attribute_def("check_tests", tuple[str, ...], ())
    # For kernels some of whose values are watched (`compiler.sites.watches`).
    watch_sites = attribute_def("watch_sites", tuple[str, ...], ())
    check_symptoms = attribute_def("check_symptoms", tuple[str, ...], ())
    # The infinities among the kernel's constants: "inf", "-inf".
    check_written_infs = attribute_def("check_written_infs", tuple[str, ...], ())
    # For kernels with timelines: the most marks of a warp, then the programs.
    timeline = attribute_def("timeline", tuple[int, ...], ())

    @property
    def body(self) -> Block:
        """The block of the kernel, whose arguments are its parameters."""
        return self.op.regions[0].block
