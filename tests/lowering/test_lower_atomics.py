"""Atomics, asserts, prints and special registers in PTX."""

from __future__ import annotations

import re

import pytest
from op_kernels import LAYOUT, Kernel

from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout, blocked
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import assemble
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

NARROW = blocked((1,), (32,), (4,), (0,), (128,))
# 32 elements; the second lane bit and the upper warp bit hold copies.
COPIES = LinearLayout.of(
    {REGISTER: [], LANE: [[1], [0], [2], [4], [8]], WARP: [[16], [0]]}, {"dim0": 32}
)
LANE_COPIES = blocked((1,), (32,), (1,), (0,), (16,))


def atomic(
    element,
    kind="add",
    *,
    layout=NARROW,
    sem="acq_rel",
    scope="gpu",
    masked=False,
    used=True,
    target="sm_90a",
    num_warps=4,
    aligned=False,
):
    """PTX of a kernel around one atomic."""
    kernel = Kernel(layout, num_warps)
    pointers = kernel.pointers(ir.SCALARS[element])
    values = [kernel.operand(element)]
    name, attributes = "tt.atomic_rmw", {"kind": kind, "sem": sem, "scope": scope}
    if kind == "cas":
        name, attributes = "tt.atomic_cas", {"sem": sem, "scope": scope}
        values.append(kernel.operand(element))
    if masked:
        values.append(kernel.operand("i1"))
    (old,) = kernel.op(name, [pointers, *values], [kernel.tile(ir.SCALARS[element])], attributes)
    if used:
        kernel.keep(old)
    if scratch_bytes(old.defining_op):
        old.defining_op.attributes["scratch_offset"] = 0
    if aligned:
        count = len(kernel.block.arguments)
        kernel.function.attributes["arg_divisibility"] = (16,) * count
    ptx = kernel.ptx(target)
    assemble(ptx, "kernel", TARGETS[target])
    return ptx


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("kind", "element", "pattern"),
    [
        ("add", "i32", r"add\.u32"),
        ("add", "i64", r"add\.u64"),
        ("max", "i32", r"max\.s32"),
        ("umax", "i64", r"max\.u64"),
        ("min", "i64", r"min\.s64"),
        ("umin", "i32", r"min\.u32"),
        ("and", "i32", r"and\.b32"),
        ("or", "i64", r"or\.b64"),
        ("xor", "i32", r"xor\.b32"),
        ("xchg", "i64", r"exch\.b64"),
        ("xchg", "f32", r"exch\.b32"),
        ("fadd", "f16", r"add\.noftz\.f16"),
        ("fadd", "f32", r"add\.f32"),
        ("fadd", "f64", r"add\.f64"),
        ("cas", "i16", r"cas\.b16"),
        ("cas", "f32", r"cas\.b32"),
        ("cas", "i64", r"cas\.b64"),
    ],
)
def test_kind_becomes_instruction(kind, element, pattern, target):
    text = atomic(element, kind, target=target)
    assert re.search(rf"atom\.global\.(gpu\.acq_rel|acq_rel\.gpu)\.{pattern} ", text)


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("scope", ["gpu", "cta", "sys"])
def test_semantics_and_scope_are_kept(sem, scope):
    assert f"atom.global.{scope}.{sem}.add.u32" in atomic("i32", sem=sem, scope=scope)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(("kind", "pair"), [("fmax", "max min"), ("fmin", "min max")])
def test_float_extremum_works_on_the_bits(kind, pair, element):
    bits, (positive, negative) = element[1:], pair.split()
    text = atomic(element, kind)
    assert re.search(rf"@%p\d+ atom\S+\.{positive}\.s{bits}", text)
    assert re.search(rf"@%p\d+ atom\S+\.{negative}\.u{bits}", text)


def test_bfloat_sum_is_a_loop_before_sm_90():
    assert "atom.global.gpu.acq_rel.add.noftz.bf16" in atomic("bf16", "fadd")
    assert "cas.b32" in atomic("bf16", "fadd", target="sm_80", masked=True)


@pytest.mark.parametrize(
    ("element", "target", "instruction"),
    [
        ("f32", "sm_90a", "atom.global.gpu.acq_rel.add.v4.f32"),
        ("f16", "sm_90a", "atom.global.gpu.acq_rel.add.noftz.v2.f16x2"),
        ("bf16", "sm_90a", "atom.global.gpu.acq_rel.add.noftz.v2.bf16x2"),
        ("f16", "sm_80", "red.global.gpu.relaxed.add.noftz.f16x2"),
        ("f32", "sm_80", "red.global.gpu.relaxed.add.f32"),
    ],
)
def test_aligned_float_sums_are_vectors(element, target, instruction):
    text = atomic(element, "fadd", layout=LAYOUT, target=target, used=False, aligned=True)
    assert f"{instruction} " in text


@pytest.mark.parametrize("kind", ["add", "cas"])
@pytest.mark.parametrize(
    ("sem", "expected"),
    [
        ("relaxed", "atom atom atom atom"),
        ("acquire", "atom atom atom atom fence"),
        ("release", "fence atom atom atom atom"),
        ("acq_rel", "fence atom atom atom atom fence"),
    ],
)
def test_several_instructions_of_a_thread_share_their_fences(kind, sem, expected):
    text = atomic("i32", kind, layout=LAYOUT, sem=sem, scope="sys")
    found = re.findall(r"atom\.global\S*relaxed|fence\.acq_rel\.sys", text)
    assert " ".join(name.partition(".")[0] for name in found) == expected


def test_sums_that_nobody_looks_at_acquire_nothing():
    text = atomic("i32", layout=LAYOUT, used=False)
    assert text.count("fence.") == 1
    assert text.index("fence.") < text.index("red.")
    assert "atom." not in text


@pytest.mark.parametrize("element", ["i32", "i64", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_relaxed_sums_that_nobody_looks_at_assemble(element, target):
    kind = "add" if element[0] == "i" else "fadd"
    for aligned in (False, True):
        text = atomic(
            element, kind, layout=LAYOUT, sem="relaxed", used=False, target=target, aligned=aligned
        )
        assert "red.global" in text or (element, target) == ("bf16", "sm_80")


def test_mask_that_is_not_known_to_be_equal_keeps_sums_apart():
    text = atomic("f32", "fadd", layout=LAYOUT, masked=True, aligned=True)
    assert text.count("atom.global.gpu.relaxed.add.f32") == 4


def test_masked_off_elements_give_zero():
    text = atomic("i32", masked=True)
    assert re.search(r"mov\.b32 (%r\d+), 0;\n\s*@%p\d+ atom\S+ \1,", text)


def test_scalar_is_done_by_one_thread_and_known_to_all():
    text = atomic("i32", layout=None)
    after = text[text.index("atom.") :]
    assert re.search(r"@%p\d+ atom", text)
    assert re.search(r"st\.shared.*bar\.sync.*ld\.shared", after, re.S)


def test_scalar_that_releases_waits_for_the_block_before():
    release = atomic("i32", "xchg", layout=None, sem="release", used=False)
    assert release.index("bar.sync") < release.index("atom.global.gpu.release")
    assert "bar.sync" not in atomic("i32", layout=None, sem="relaxed", used=False)


def test_scalar_of_one_warp_waits_for_the_warp():
    text = atomic("i64", layout=None, num_warps=1)
    assert re.search(r"st\.shared.*bar\.warp\.sync.*ld\.shared", text, re.S)
    assert "bar.sync" not in text


def test_copies_in_lanes_get_the_result_by_shuffle():
    text = atomic("i32", layout=LANE_COPIES, num_warps=1)
    assert re.search(r"@%p\d+ atom", text)
    assert "shfl.sync.idx" in text


def test_copies_in_warps_get_the_result_through_shared_memory():
    text = atomic("f32", "fadd", layout=COPIES)
    after = text[text.index("atom.") :]
    assert re.search(r"st\.shared.*bar\.sync.*ld\.shared", after, re.S)
    assert "shared" not in atomic("f32", "fadd", layout=COPIES, used=False).split("atom.")[1]


# Asserts, prints, special registers


def debug(name, operands, attributes=None, layout=NARROW, target="sm_90a", results=()):
    kernel = Kernel(layout)
    kernel.apply(name, operands, results, attributes)
    ptx = kernel.ptx(target)
    assemble(ptx, "kernel", TARGETS[target])
    return ptx


def text_constants(ptx):
    """The zero-terminated strings among the module's constants."""
    arrays = re.findall(r"\.global .*? \.b8 \S+\[\d+\] = \{([\d, ]+)\}", ptx)
    return {bytes(map(int, array.split(", "))).decode().rstrip("\0") for array in arrays}


@pytest.mark.parametrize("layout", [None, NARROW, COPIES])
def test_assert_calls_what_cuda_asserts_call(layout):
    ptx = debug("tt.assert", ["i1"], {"message": 'x > 0, "really"'}, layout)
    assert "__assertfail" in ptx
    assert text_constants(ptx) == {'x > 0, "really"', "kernel.py", "kernel"}


def test_assert_under_a_mask():
    assert "__assertfail" in debug("tt.assert", ["i1", "i1"], {"message": ""})


@pytest.mark.parametrize(
    ("operands", "attributes", "layout", "texts"),
    [
        (["i32"], {"prefix": " x: "}, NARROW, ["pid (%u, %u, %u) idx (%3u) x: %d"]),
        (["f16"], {"prefix": " x: "}, NARROW, ["pid (%u, %u, %u) idx (%3u) x: %f"]),
        (["f8E5M2"], {"prefix": " x: "}, NARROW, ["pid (%u, %u, %u) idx (%3u) x: %f"]),
        (["i64"], {"prefix": " ", "hex": True}, None, ["pid (%u, %u, %u) idx () 0x%016llx"]),
        (["f16"], {"prefix": " ", "hex": True}, None, ["pid (%u, %u, %u) idx () %a"]),
        ([], {"prefix": " 100%"}, None, ["pid (%u, %u, %u) idx () 100%%"]),
        (
            ["i8", "i1"],
            {"prefix": " x: ", "signed": (False, True)},
            None,
            [
                "pid (%u, %u, %u) idx () x: (operand 0) %u",
                "pid (%u, %u, %u) idx () x: (operand 1) %u",
            ],
        ),
    ],
)
def test_print_is_a_vprintf(operands, attributes, layout, texts):
    attributes = {"hex": False, "signed": (True,) * len(operands)} | attributes
    ptx = debug("tt.print", operands, attributes, layout)
    assert "vprintf" in ptx
    assert text_constants(ptx) == {text + "\n" for text in texts}


def test_special_registers():
    assert "%smid" in debug("nvvm.read.ptx.sreg.smid", [], layout=None, results=["i32"])
    timer = debug("nvvm.read.ptx.sreg.globaltimer", [], layout=None, results=["i64"])
    assert "%globaltimer" in timer


def test_dependent_launches_are_nothing_before_sm_90():
    attributes = {"kind": "wait"}
    assert "griddepcontrol.wait" in debug("nvvm.griddepcontrol", [], attributes, None)
    assert "griddepcontrol" not in debug("nvvm.griddepcontrol", [], attributes, None, "sm_80")


def test_barrier_and_promise():
    assert "bar.sync" in debug("tt.barrier", [], layout=None)
    debug("tt.assume", ["i1"], layout=None)


@pytest.mark.parametrize(
    ("element", "kind", "number", "sem", "looks"),
    [
        ("i64", "add", 0, "relaxed", True),
        ("i32", "add", 0, "acquire", True),
        ("f32", "fadd", 0.0, "relaxed", True),
        ("i32", "add", 1, "relaxed", False),
        ("i32", "add", 0, "acq_rel", False),
        ("i32", "max", 0, "relaxed", False),
    ],
)
def test_a_scalar_to_which_nothing_is_added_is_loaded(element, kind, number, sem, looks):
    kernel = Kernel(None, 4)
    type_ = ir.SCALARS[element]
    (value,) = kernel.op("arith.constant", [], [type_], {"value": number})
    attributes = {"kind": kind, "sem": sem, "scope": "gpu"}
    (old,) = kernel.op("tt.atomic_rmw", [kernel.pointers(type_), value], [type_], attributes)
    kernel.keep(old)
    old.defining_op.attributes["scratch_offset"] = 0
    ptx = kernel.ptx()
    assemble(ptx, "kernel", TARGETS["sm_90a"])
    assert (f"ld.{sem}.gpu.global.b" in ptx) == looks
    assert ("atom." in ptx) != looks
