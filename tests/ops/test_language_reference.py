"""The reference page, and the op table walked for what is missing."""

from __future__ import annotations

import pytest

import tkdebug.language as tl
from tkdebug.compiler.dialects.libdevice import FUNCTIONS
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ops import reference
from tkdebug.compiler.ops.table import FAMILIES, LANGUAGE, NAMESPACES
from tkdebug.interpreter.numerics.libdevice import MEANINGS

# What `from triton.language import *` gives in upstream 3.6.
PUBLIC = """
PropagateNan TRITON_MAX_TENSOR_NUMEL abs add advance arange argmax argmin associative_scan assume
atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16
bitonic_merge block_type broadcast broadcast_to cast cat cdiv ceil clamp condition const constexpr
constexpr_type cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled
dtype erf exp exp2 expand_dims extra fdiv flip float16 float32 float64 float8e4b15 float8e4b8
float8e4nv float8e5 float8e5b16 floor fma full gather histogram inline_asm_elementwise int1 int16
int32 int64 int8 interleave join load load_tensor_descriptor log log2 make_block_ptr
make_tensor_descriptor map_elementwise math max max_constancy max_contiguous maximum min minimum
mul multiple_of num_programs pair_uniform_to_normal permute philox philox_impl pi32_t pointer_type
program_id rand rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt
sigmoid sin slice softmax sort split sqrt sqrt_rn static_assert static_print static_range store
store_tensor_descriptor sub sum swizzle2d target_info tensor tensor_descriptor topk trans tuple
uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi view void where xor_sum zeros zeros_like
core random standard squeeze unsqueeze descriptor_gather descriptor_scatter descriptor_atomic_add
descriptor_atomic_min descriptor_atomic_max descriptor_atomic_and descriptor_atomic_or
descriptor_atomic_xor
""".split()


@pytest.mark.parametrize("name", PUBLIC)
def test_name_of_the_language_resolves(name):
    assert hasattr(tl, name)


def functions(pages):
    """Return the functions that pages describe, with their parameters, and those of libdevice."""
    lines = [line for path in pages for line in pages[path].splitlines() if path not in LISTS]
    return {line for line in lines if line.startswith(("## `", "| `"))}


LISTS = ("language.md", reference.OPS_PAGE)


def test_functions_of_the_reference_pages_are_those_of_the_table():
    # What is new is missing until the site is built, which writes the pages; nothing is wrong.
    pages = reference.pages()
    written = functions({path: (reference.DOCS / path).read_text("utf-8") for path in pages})
    assert len(written) > 200
    assert written - functions(pages) == set(), "run python -m tkdebug.compiler.ops.reference"


def test_reference_pages_have_every_function_of_the_table():
    described = "".join(reference.pages().values())
    functions = [(space, name) for space, of in NAMESPACES.items() for name in of]
    beside = [(space, name) for space, name in functions if space != "tl.extra.libdevice"]
    assert [name for name in beside if f"\n## `{'.'.join(name)}(" not in described] == []
    assert [name for name in FUNCTIONS if f"\n| `{name}` |" not in described] == []


@pytest.mark.parametrize("name", sorted(OPS))
def test_op_says_what_it_computes(name):
    assert OPS[name].name == name
    assert OPS[name].summary().endswith(".")


@pytest.mark.parametrize(
    ("namespace", "name"),
    [(namespace, name) for namespace, functions in NAMESPACES.items() for name in functions],
)
def test_function_has_a_doc_and_a_signature(namespace, name):
    builtin = NAMESPACES[namespace][name]
    assert (builtin.__doc__ or "").strip()
    assert reference.signature_text(builtin).startswith("(")


def test_no_name_stands_in_two_families():
    names = [name for family in FAMILIES for name in family.LANGUAGE]
    assert len(names) == len(set(names)) == len(LANGUAGE)


def test_libdevice_has_all_of_upstreams_functions():
    assert len(FUNCTIONS) == 198
    without = {name for name, function in FUNCTIONS.items() if function.native_only}
    assert without == {"jn", "yn"} == FUNCTIONS.keys() - MEANINGS.keys()
    assert MEANINGS.keys() <= FUNCTIONS.keys()


def test_libdevice_modules_have_the_tables_functions():
    for module in (tl.extra.libdevice, tl.extra.cuda.libdevice):
        assert set(FUNCTIONS) <= set(dir(module))
        assert module.tanh is NAMESPACES["tl.extra.libdevice"]["tanh"]
