"""What torch's functions do with the elements they are given, as far as gaps in them go.

By names, as torch gives them to a `TorchFunctionMode`. A function that is in no set reads what it
is given, unless its results show that the gaps were dropped.
"""

from __future__ import annotations

# Their results have the same elements, elsewhere or as another type.
COPIES = frozenset(
    "clone contiguous cpu cuda to type type_as float half bfloat16 double int long short char byte "
    "reshape flatten ravel pad __getitem__ index_select narrow_copy cat concat concatenate stack "
    "hstack vstack dstack row_stack column_stack detach __deepcopy__ copy_ __setitem__ repeat tile "
    "repeat_interleave expand_as as_tensor asarray tensor flip fliplr flipud roll rot90 gather "
    "take_along_dim block_diag".split()
)
# Put several tensors into one.
JOINS = frozenset(
    "cat concat concatenate stack hstack vstack dstack row_stack column_stack block_diag".split()
)
# Leave elements out by their places; of integers the result does not show which.
CHOOSING = frozenset("where masked_fill masked_select tril triu take index_put".split())
# Of floats, they give a NaN where they are given one, and nowhere else because of it.
ELEMENTWISE = frozenset(
    "add iadd radd sub isub rsub subtract mul imul rmul multiply div idiv rdiv divide "
    "true_divide truediv itruediv rtruediv pow ipow rpow neg negative abs absolute square "
    "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf "
    "relu gelu silu leaky_relu elu softplus mish hardtanh hardswish hardsigmoid clamp clip "
    "clamp_min clamp_max maximum minimum round floor ceil trunc addcmul addcdiv lerp dropout "
    "where masked_fill".split()
)
# Give one of the elements, bits and all, which is no copy.
EXTREMA = frozenset("max min amax amin aminmax median item tolist".split())
# Ask for facts of a tensor, or make another one like it.
ASKING = frozenset(
    "size stride dim ndimension numel nelement element_size data_ptr storage untyped_storage "
    "storage_offset is_contiguous get_device __len__ __hash__ is_floating_point is_complex "
    "is_signed is_pinned is_same_size is_set_to record_stream register_hook retain_grad "
    "requires_grad_ has_names result_type promote_types can_cast broadcast_shapes is_tensor "
    "__reduce_ex__ __dlpack__ __dlpack_device__ share_memory_ pin_memory "
    "is_shared resize_ set_ zero_ fill_ normal_ uniform_ random_ exponential_ __get__ __set__ "
    "__delete__ broadcast_tensors register_post_accumulate_grad_hook is_inference".split()
)
# Hand the memory to others, who are not seen.
HANDING_OUT = frozenset(("numpy", "__array__"))


def plain(name: str) -> str:
    """`add` for `add_` and `__add__`."""
    return name.strip("_")
