"""Triton's tt dialect: the ops of Tile IR that MLIR has none for."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import (
    Cast,
    DotLike,
    MaskedAccess,
    OneResult,
    PointerAccess,
)
from tkdebug.compiler.ir.core import Block
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    DESCRIPTORS,
    FLOATS,
    I1,
    INTEGER,
    INTEGERS,
    NUMBERS,
    POINTER,
    POINTERS,
    TILES,
    VALUES,
    OpView,
    VariadicOperandsDef,
    attribute_def,
    late_attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    result_def,
    variadic_operands_def,
    variadic_results_def,
)


class Unary(OneResult):
    """One tile or scalar in, one out."""

    source = operand_def(VALUES)


class FpToFp(Cast):
    """Float conversion with a rounding mode, fp8 saturating."""

    name = "tt.fp_to_fp"
    # "rtz" toward zero; to nearest even otherwise.
    rounding = optional_attribute_def("rounding", str)


class Bitcast(Cast):
    """The same bits under another type of equal width."""

    name = "tt.bitcast"


class PtrToInt(Cast):
    """Address of a pointer in bytes."""

    name = "tt.ptr_to_int"


class IntToPtr(Cast):
    """Pointer to an address in bytes."""

    name = "tt.int_to_ptr"


class PreciseDivF(OneResult):
    """Quotient, rounded to nearest even."""

    name = "tt.precise_divf"
    lhs = operand_def(FLOATS)
    rhs = operand_def(FLOATS)


class PreciseSqrt(Unary):
    """Square root, rounded to nearest even."""

    name = "tt.precise_sqrt"


class MakeRange(OneResult):
    """The integers start, start + 1, … end - 1."""

    name = "tt.make_range"
    start = attribute_def("start", int)
    end = attribute_def("end", int)


class Splat(Unary):
    """A scalar in every element of a tile."""

    name = "tt.splat"


class Unsplat(Unary):
    """The only element of a one-element tile."""

    name = "tt.unsplat"


class ExpandDims(OneResult):
    """A new axis of extent 1."""

    name = "tt.expand_dims"
    source = operand_def(TILES)
    axis = attribute_def("axis", int)


class Broadcast(Unary):
    """Axes of extent 1 repeated."""

    name = "tt.broadcast"


class Reshape(Unary):
    """The elements in row-major order under another shape."""

    name = "tt.reshape"


class Trans(OneResult):
    """Axes permuted."""

    name = "tt.trans"
    source = operand_def(TILES)
    order = attribute_def("order", tuple[int, ...])


class Pair(OneResult):
    """Two tiles of one type."""

    lhs = operand_def(VALUES)
    rhs = operand_def(VALUES)


class Join(Pair):
    """Two tiles side by side in a new last axis."""

    name = "tt.join"


class Split(OpView):
    """The two halves along a last axis of extent 2."""

    name = "tt.split"
    source = operand_def(TILES)
    low = result_def()
    high = result_def()


class Cat(Pair):
    """Two tiles one after the other along the first axis."""

    name = "tt.cat"


class AddPtr(OneResult):
    """A pointer moved by a number of elements."""

    name = "tt.addptr"
    pointer = operand_def(POINTERS)
    offset = operand_def(INTEGERS)


class Load(MaskedAccess, OneResult):
    """Reads memory where the mask holds; `other` (or zero) elsewhere."""

    name = "tt.load"
    mask = optional_operand_def(CONDITIONS)
    other = optional_operand_def(VALUES)
    volatile = attribute_def("volatile", bool, False)
    boundary_check = optional_attribute_def("boundary_check", tuple[int, ...])


class Store(MaskedAccess):
    """Writes memory where the mask holds."""

    name = "tt.store"
    value = operand_def(VALUES)
    mask = optional_operand_def(CONDITIONS)
    boundary_check = optional_attribute_def("boundary_check", tuple[int, ...])


class MakeTensorDescriptor(OneResult):
    """A descriptor from base pointer, rank shape values and rank strides."""

    name = "tt.make_tensor_descriptor"
    base = operand_def(POINTER)
    shape = variadic_operands_def(INTEGER)
    strides = variadic_operands_def(INTEGER)
    # "nan" or "zero": what is read outside of the tensor.
    padding = attribute_def("padding", str, "zero")
    by_launch = attribute_def("by_launch", bool, False)
    by_kernel = attribute_def("by_kernel", bool, False)
    non_negative = attribute_def("non_negative", bool, False)


class DescriptorAccess(OpView):
    """An access to memory through a tensor descriptor."""

    descriptor = operand_def(DESCRIPTORS)
    # Why it is no bulk copy.
    by_pointers = optional_attribute_def("by_pointers", str)


class DescriptorBlockAccess(DescriptorAccess):
    """An access to the block of a tensor at some offsets."""

    offsets: VariadicOperandsDef


class DescriptorLoad(DescriptorBlockAccess, OneResult):
    """Reads a block at the given offsets; outside the tensor it is padded."""

    name = "tt.descriptor_load"
    offsets = variadic_operands_def(INTEGER)
    cache = attribute_def("cache", str, "")
    eviction = attribute_def("eviction", str, "")


class DescriptorStore(DescriptorBlockAccess):
    """Writes a block at the given offsets; outside the tensor nothing is written."""

    name = "tt.descriptor_store"
    value = operand_def(TILES)
    offsets = variadic_operands_def(INTEGER)


class DescriptorGather(DescriptorAccess, OneResult):
    """The rows at an index tile, from a column on; outside the tensor padded."""

    name = "tt.descriptor_gather"
    rows = operand_def(INTEGERS)
    column = operand_def(INTEGER)


class DescriptorScatter(DescriptorAccess):
    """Writes a tile's rows to the rows at an index tile, from a column on."""

    name = "tt.descriptor_scatter"
    value = operand_def(TILES)
    rows = operand_def(INTEGERS)
    column = operand_def(INTEGER)


class DescriptorReduce(DescriptorBlockAccess):
    """Combines a tile into memory with `kind`, atomically, at the given offsets."""

    name = "tt.descriptor_reduce"
    value = operand_def(TILES)
    offsets = variadic_operands_def(INTEGER)
    kind = attribute_def("kind", str)


class Dot(DotLike):
    """a @ b + acc, accumulated in acc's dtype; fp32 inputs in input_precision."""

    name = "tt.dot"


class DotScaled(DotLike):
    """a @ b + acc in fp32 of elements times the scales of their groups of 16 or 32 along K."""

    name = "tt.dot_scaled"
    lhs_scale = optional_operand_def(TILES, present="lhs_scaled")
    rhs_scale = optional_operand_def(TILES, present="rhs_scaled")
    lhs_format = attribute_def("lhs_format", str)
    rhs_format = attribute_def("rhs_format", str)
    lhs_k_pack = attribute_def("lhs_k_pack", bool, True)
    rhs_k_pack = attribute_def("rhs_k_pack", bool, True)
    lhs_scaled = attribute_def("lhs_scaled", bool, False)
    rhs_scaled = attribute_def("rhs_scaled", bool, False)
    fast_math = attribute_def("fast_math", bool, False)


class Combining(OpView):
    """Combines elements along an axis with a region of two operands per tile."""

    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    axis = attribute_def("axis", int)
    # The name of a combination that is known; the region is what counts.
    combiner = optional_attribute_def("combiner", str)

    @property
    def combine(self) -> Block:
        """The block that combines two elements of each tile."""
        return self.op.regions[0].block


class Reduce(Combining):
    """Combines all elements along an axis with its region."""

    name = "tt.reduce"


class Scan(Combining):
    """Inclusive prefix combination along an axis with its region."""

    name = "tt.scan"
    reverse = attribute_def("reverse", bool, False)


class ReduceReturn(OpView):
    """Ends a combine region."""

    name = "tt.reduce.return"
    values = variadic_operands_def()


class AlongAxis(OneResult):
    """Moves the elements of a tile along one axis."""

    source = operand_def(VALUES)
    axis = attribute_def("axis", int)


class Gather(AlongAxis):
    """The elements of the first tile at the indices of the second along `axis`."""

    name = "tt.gather"
    indices = operand_def(INTEGERS)


class Histogram(OneResult):
    """How many elements (where the mask holds) equal 0, 1, … bins - 1; others count nowhere."""

    name = "tt.histogram"
    source = operand_def(INTEGERS)
    mask = optional_operand_def(CONDITIONS)
    bins = attribute_def("bins", int)
    unsigned = attribute_def("unsigned", bool, False)


class Flip(AlongAxis):
    """The elements in reverse order along `axis`."""

    name = "tt.flip"


class Sorting(OneResult):
    """Puts the elements along the last axis in order."""

    source = operand_def(NUMBERS)
    descending = attribute_def("descending", bool, False)
    unsigned = attribute_def("unsigned", bool, False)


class Sort(Sorting):
    """The elements in order along the last axis."""

    name = "tt.sort"


class TopK(Sorting):
    """The `k` first elements along the last axis, once it is in order."""

    name = "tt.topk"
    k = attribute_def("k", int)


class BitonicMerge(Sorting):
    """log2(extent) rounds of compare-and-swap, which sort a bitonic sequence."""

    name = "tt.bitonic_merge"


class Atomic(PointerAccess, OneResult):
    """An atomic access; it gives the old value."""

    sem = attribute_def("sem", str, "acq_rel")
    scope = attribute_def("scope", str, "gpu")


class AtomicRmw(Atomic, MaskedAccess):
    """Combines a value into memory with `kind`; gives the old value."""

    name = "tt.atomic_rmw"
    value = operand_def(NUMBERS)
    mask = optional_operand_def(CONDITIONS)
    kind = attribute_def("kind", str)


class AtomicCas(Atomic):
    """Stores a value where memory equals the comparand; gives the old value."""

    name = "tt.atomic_cas"
    compare = operand_def(NUMBERS)
    value = operand_def(NUMBERS)


class GridQuery(OneResult):
    """A number that says where in the grid the program is."""

    axis = attribute_def("axis", int)


class GetProgramId(GridQuery):
    """This program's position along a grid axis."""

    name = "tt.get_program_id"


class GetNumPrograms(GridQuery):
    """The grid's extent along an axis."""

    name = "tt.get_num_programs"


class Assert(OpView):
    """Reports the programs and lanes where the condition is false."""

    name = "tt.assert"
    condition = operand_def(CONDITIONS)
    mask = optional_operand_def(CONDITIONS)
    message = attribute_def("message", str, "")


class Print(OpView):
    """Prints a prefix and values, a line an element."""

    name = "tt.print"
    values = variadic_operands_def(VALUES)
    prefix = attribute_def("prefix", str, "")
    hex = attribute_def("hex", bool, False)
    signed = optional_attribute_def("signed", tuple[bool, ...])


class Barrier(OpView):
    """All threads of the program wait for each other."""

    name = "tt.barrier"


class Assume(OpView):
    """A promise to the optimiser."""

    name = "tt.assume"
    condition = operand_def(I1)


class Hint(OneResult):
    """Its operand, about which `kind` promises `values` per axis."""

    name = "tt.hint"
    source = operand_def(VALUES)
    kind = attribute_def("kind", str)
    values = attribute_def("values", tuple[int, ...])


class Func(OpView):
    """A kernel; its block arguments are the run-time parameters."""

    name = "tt.func"
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

    @property
    def body(self) -> Block:
        """The block of the kernel, whose arguments are its parameters."""
        return self.op.regions[0].block


class Return(OpView):
    """Ends a kernel."""

    name = "tt.return"


class MapElementwise(OpView):
    """Its region applied to `pack` elements of each tile at a time."""

    name = "tt.map_elementwise"
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    pack = attribute_def("pack", int)


class MapElementwiseReturn(OpView):
    """Ends the region of tt.map_elementwise."""

    name = "tt.map_elementwise.return"
    values = variadic_operands_def()


class ElementwiseInlineAsm(OpView):
    """PTX text `asm` applied to `pack` elements of each tile at a time."""

    name = "tt.elementwise_inline_asm"
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    asm = attribute_def("asm", str)
    constraints = attribute_def("constraints", str)
    pack = attribute_def("pack", int)
    pure = attribute_def("pure", bool, False)


class ExternElementwise(OneResult):
    """The libdevice function `function`, element by element."""

    name = "tt.extern_elementwise"
    sources = variadic_operands_def(NUMBERS)
    function = attribute_def("function", str)
    symbol = attribute_def("symbol", str)
    unsigned = attribute_def("unsigned", bool, False)
