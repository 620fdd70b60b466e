"""`CoalesceAccesses`: layouts of accesses, and how wide they can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options
from hypothesis import given
from hypothesis import strategies as st

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.global_memory import mask_of, vector_elems
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.layouts import REGISTER, LinearLayout, blocked
from tkdebug.compiler.passes.gpu.coalesce_accesses import CoalesceAccesses, tiled
from tkdebug.compiler.passes.pipeline import PassManager


def coalesced(
    body: str,
    *,
    divisors: tuple[int, ...] = (16,) * 6,
    warps: int = 4,
    vector_atomics: bool = False,
) -> Module:
    """The module after the pass."""
    module = parse_module(
        "tt.func @k(%p: !tt.ptr<f16>, %q: !tt.ptr<f32>, %w: !tt.ptr<i8>, %n: i32, %s: i32, "
        f"%t: i32) attributes {{num_warps = {warps}, arg_divisibility = {list(divisors)}}} {{"
        f"\n{body}\n  tt.return\n}}"
    )
    PassManager((CoalesceAccesses(vector_atomics),), verify_each=True).run(module)
    return module


def accesses(module: Module) -> list[Operation]:
    return [op for op in module.walk() if "layout" in op.attributes]


def layout_of(op: Operation) -> LinearLayout:
    layout = op.attributes["layout"]
    assert isinstance(layout, LinearLayout)
    return layout


def width(module: Module, op: Operation) -> int:
    """Elements of one access in the layout that the pass chose."""
    infos = analyse(module.function)
    mask_value = mask_of(op)
    mask = None if mask_value is None else infos[mask_value]
    return vector_elems(op, layout_of(op), infos[op.operands[0]], mask)


def row(pointer: str, name: str, offsets: str, element: str, size: int = 1024) -> str:
    """Pointers to consecutive elements."""
    tile = f"tensor<{size}x!tt.ptr<{element}>>"
    return f"""
  %{name}_base = tt.splat %{pointer} : !tt.ptr<{element}> -> {tile}
  %{name} = tt.addptr %{name}_base, %{offsets} : ({tile}, tensor<{size}xi32>) -> {tile}
"""


RANGE = "%r = tt.make_range {start = 0, end = 1024} : tensor<1024xi32>\n"


def test_what_counts_down_in_memory_is_moved_by_single_elements() -> None:
    """`tl.load(q + (n - i))` as one vector would give its elements in reverse."""
    module = coalesced(
        RANGE
        + "%end = tt.splat %n : i32 -> tensor<1024xi32>\n"
        + "%down = arith.subi %end, %r : tensor<1024xi32>\n"
        + row("q", "x", "down", "f32")
        + "%v = tt.load %x : tensor<1024x!tt.ptr<f32>> -> tensor<1024xf32>\n"
    )
    (load,) = accesses(module)
    assert width(module, load) == 1


def test_load_and_store_of_halves_move_16_bytes_a_thread(tmp_path: Path) -> None:
    module = coalesced(
        RANGE
        + row("p", "x", "r", "f16")
        + """
  %v = tt.load %x : tensor<1024x!tt.ptr<f16>> -> tensor<1024xf16>
  tt.store %x, %v : tensor<1024x!tt.ptr<f16>>, tensor<1024xf16>
"""
    )
    wanted = tmp_path / "wanted"
    wanted.write_text("""
CHECK: #layout0 = #ttg.linear<{register = {{\\[\\[}}1], [2], [4]],
CHECK-SAME: lane = {{\\[\\[}}8], [16], [32], [64], [128]], warp = {{\\[\\[}}256], [512]]
CHECK: tt.load %x {layout = #layout0}
CHECK: tt.store %x, %v {layout = #layout0}
""")
    text = tmp_path / "text"
    text.write_text(print_module(module))
    options = Options(match_filename=str(wanted), input_file=str(text))
    assert Matcher.from_opts(options).run() == 0


def test_narrow_load_and_wide_store_share_a_layout_without_gaps_in_the_store() -> None:
    module = coalesced(
        RANGE
        + row("p", "x", "r", "f16")
        + row("q", "y", "r", "f32")
        + """
  %v = tt.load %x : tensor<1024x!tt.ptr<f16>> -> tensor<1024xf16>
  %e = arith.extf %v : tensor<1024xf16> -> tensor<1024xf32>
  tt.store %y, %e : tensor<1024x!tt.ptr<f32>>, tensor<1024xf32>
"""
    )
    load, store = accesses(module)
    assert layout_of(load) == layout_of(store)
    assert (width(module, load), width(module, store)) == (4, 4)


def test_tile_smaller_than_the_block_leaves_no_thread_idle() -> None:
    module = coalesced(
        "%r = tt.make_range {start = 0, end = 256} : tensor<256xi32>\n"
        + row("p", "x", "r", "f16", 256)
        + "%v = tt.load %x : tensor<256x!tt.ptr<f16>> -> tensor<256xf16>"
    )
    (load,) = accesses(module)
    assert layout_of(load).is_permutation
    assert width(module, load) == 2


@pytest.mark.parametrize(("bound", "elems"), [("n", 8), ("t", 1)])
def test_mask_limits_the_width(bound: str, elems: int) -> None:
    module = coalesced(
        RANGE
        + row("p", "x", "r", "f16")
        + f"""
  %b = tt.splat %{bound} : i32 -> tensor<1024xi32>
  %m = arith.cmpi %r, %b {{predicate = "slt"}} : (tensor<1024xi32>, tensor<1024xi32>)
      -> tensor<1024xi1>
  %v = tt.load %x, %m : (tensor<1024x!tt.ptr<f16>>, tensor<1024xi1>) -> tensor<1024xf16>
""",
        divisors=(16, 16, 16, 16, 16, 1),
    )
    (load,) = accesses(module)
    assert width(module, load) == elems


def matrix(row_stride: str, column_stride: str) -> str:
    return f"""
  %rows = tt.make_range {{start = 0, end = 32}} : tensor<32xi32>
  %cols = tt.make_range {{start = 0, end = 64}} : tensor<64xi32>
  %one = arith.constant 1 : i32
  %0 = tt.expand_dims %rows {{axis = 1}} : tensor<32xi32> -> tensor<32x1xi32>
  %1 = tt.splat {row_stride} : i32 -> tensor<32x1xi32>
  %2 = arith.muli %0, %1 : tensor<32x1xi32>
  %3 = tt.broadcast %2 : tensor<32x1xi32> -> tensor<32x64xi32>
  %4 = tt.expand_dims %cols {{axis = 0}} : tensor<64xi32> -> tensor<1x64xi32>
  %5 = tt.splat {column_stride} : i32 -> tensor<1x64xi32>
  %6 = arith.muli %4, %5 : tensor<1x64xi32>
  %7 = tt.broadcast %6 : tensor<1x64xi32> -> tensor<32x64xi32>
  %offs = arith.addi %3, %7 : tensor<32x64xi32>
  %8 = tt.splat %p : !tt.ptr<f16> -> tensor<32x64x!tt.ptr<f16>>
  %ptrs = tt.addptr %8, %offs : (tensor<32x64x!tt.ptr<f16>>, tensor<32x64xi32>)
      -> tensor<32x64x!tt.ptr<f16>>
  %v = tt.load %ptrs : tensor<32x64x!tt.ptr<f16>> -> tensor<32x64xf16>
"""


def test_lanes_run_along_the_axis_that_memory_runs_along() -> None:
    for strides, axis in ((("%s", "%one"), 1), (("%one", "%s"), 0)):
        module = coalesced(matrix(*strides))
        (load,) = accesses(module)
        layout = layout_of(load)
        assert width(module, load) == 8
        held = [basis[axis] for basis in layout.bases("lane")[:2]]
        assert held == [8, 16]


def test_unaligned_rows_still_run_along_the_row() -> None:
    module = coalesced(matrix("%t", "%one"), divisors=(16, 16, 16, 16, 16, 1))
    (load,) = accesses(module)
    assert layout_of(load).bases("lane") == ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16))
    assert width(module, load) == 1


def test_gather_takes_the_layout_of_its_indices() -> None:
    module = coalesced(
        RANGE
        + row("w", "x", "r", "i8")
        + """
  %i = tt.load %x : tensor<1024x!tt.ptr<i8>> -> tensor<1024xi8>
  %wide = arith.extui %i : tensor<1024xi8> -> tensor<1024xi32>
"""
        + row("q", "y", "wide", "f32")
        + "%v = tt.load %y : tensor<1024x!tt.ptr<f32>> -> tensor<1024xf32>"
    )
    first, second = accesses(module)
    assert layout_of(first) == layout_of(second)
    assert width(module, second) == 1


ATOMIC_ROW = (
    RANGE
    + row("q", "x", "r", "f32")
    + """
  %v = tt.load %x : tensor<1024x!tt.ptr<f32>> -> tensor<1024xf32>
  %o = tt.atomic_rmw %x, %v {kind = "KIND", sem = "relaxed", scope = "gpu"}
      : (tensor<1024x!tt.ptr<f32>>, tensor<1024xf32>) -> tensor<1024xf32>
"""
)


@pytest.mark.parametrize(("kind", "has_vectors"), [("fadd", False), ("exch", True)])
def test_atomics_side_by_side_are_one_element_a_lane(kind, has_vectors) -> None:
    module = coalesced(ATOMIC_ROW.replace("KIND", kind), vector_atomics=has_vectors)
    load, atomic = accesses(module)
    assert width(module, load) == 4
    assert layout_of(atomic).bases("lane")[0] == (1,)


def test_sums_under_a_mask_of_every_element_are_one_element_a_lane() -> None:
    module = coalesced(
        RANGE
        + row("q", "x", "r", "f32")
        + """
  %v = tt.load %x : tensor<1024x!tt.ptr<f32>> -> tensor<1024xf32>
  %end = tt.splat %n : i32 -> tensor<1024xi32>
  %m = arith.cmpi %r, %end {predicate = "slt"} : (tensor<1024xi32>, tensor<1024xi32>)
      -> tensor<1024xi1>
  %o = tt.atomic_rmw %x, %v, %m {kind = "fadd", sem = "relaxed", scope = "gpu"}
      : (tensor<1024x!tt.ptr<f32>>, tensor<1024xf32>, tensor<1024xi1>) -> tensor<1024xf32>
""",
        divisors=(16, 16, 16, 1, 1, 1),
        vector_atomics=True,
    )
    load, atomic = accesses(module)
    assert width(module, load) == 4
    assert layout_of(atomic).bases("lane")[0] == (1,)


def test_sums_of_16_bytes_share_the_layout_of_their_load() -> None:
    module = coalesced(ATOMIC_ROW.replace("KIND", "fadd"), vector_atomics=True)
    load, atomic = accesses(module)
    assert width(module, atomic) == 4
    assert layout_of(load) == layout_of(atomic)


@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 32, 64]), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 2, 8, 16]),
    st.sampled_from([1, 2, 4, 8]),
)
def test_layouts_hold_every_element_and_waste_no_thread(shape, random, elems, warps) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    layout = tiled(tuple(shape), tuple(order), elems, warps, 32)
    assert layout.shape == tuple(shape)
    assert layout.is_surjective
    assert (layout.in_size("lane"), layout.in_size("warp")) == (32, warps)
    size = 1
    for extent in shape:
        size *= extent
    if size >= 32 * warps:
        assert layout.is_injective
    assert all(layout.packed_bases(REGISTER))


def test_width_follows_layout_alignment_and_mask() -> None:
    module = coalesced(
        RANGE
        + row("q", "x", "r", "f32")
        + """
  %v = tt.load %x : tensor<1024x!tt.ptr<f32>> -> tensor<1024xf32>
"""
    )
    (load,) = accesses(module)
    info = AxisInfo((1024,), (16,), (1,))
    strided = blocked((1,), (32,), (4,), (0,), (1024,))
    assert vector_elems(load, strided, info) == 1
    assert vector_elems(load, layout_of(load), info) == 4
    assert vector_elems(load, layout_of(load), AxisInfo((1024,), (8,), (1,))) == 2
    assert vector_elems(load, layout_of(load), AxisInfo((2,), (16,), (1,))) == 2
    assert vector_elems(load, layout_of(load), info, AxisInfo((1,), (1,), (2,))) == 2


SUMS_OF_HALVES = """
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %zeros = arith.constant dense<0.0> : tensor<1024xf32>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%part = %zeros) -> (tensor<1024xf32>) : i32 {
    %v = tt.load %x : tensor<1024x!tt.ptr<f16>> -> tensor<1024xf16>
    %e = arith.extf %v : tensor<1024xf16> -> tensor<1024xf32>
    %more = arith.addf %part, %e : tensor<1024xf32>
    %INSIDE
    scf.yield %more : tensor<1024xf32>
  }
"""
STORE_SUM = "tt.store %y, %{} : tensor<1024x!tt.ptr<f32>>, tensor<1024xf32>\n"


@pytest.mark.parametrize(
    ("inside", "behind", "elems"),
    [("", STORE_SUM.format("sum"), 8), (STORE_SUM.format("more"), "", 4)],
)
def test_widths_are_those_of_the_innermost_loop(inside: str, behind: str, elems: int) -> None:
    module = coalesced(
        RANGE
        + row("p", "x", "r", "f16")
        + row("q", "y", "r", "f32")
        + SUMS_OF_HALVES.replace("%INSIDE", inside)
        + behind
    )
    load, store = accesses(module)
    assert layout_of(load) == layout_of(store)
    assert (width(module, load), width(module, store)) == (elems, 4)
