"""`AssignLayouts` and `SelectTensorCores`: where tiles live, and what is moved."""

from __future__ import annotations

import pytest

from tkdebug.compiler.analysis.layout_inference import default_layout
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.types import MemDescType, encoding_of, shape_of
from tkdebug.compiler.layouts import REGISTER, SharedTrip, blocked, classify_conversion, views
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.gpu.select_tensor_cores import SelectTensorCores
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.targets.nvptx.architectures import BANKS, TARGETS


def line_layout(size: int):
    """4 elements a thread."""
    return blocked((4,), (32,), (4,), (0,), (size,)).without_zero_bases(REGISTER)


VECTOR = line_layout(512)


def rows_layout(rows: int, cols: int, order: tuple[int, int] = (1, 0)):
    """8 elements a thread along the fastest dimension."""
    box, lanes = ((1, 8), (8, 4)) if order[0] == 1 else ((8, 1), (4, 8))
    made = blocked(box, lanes, (4, 1), order, (rows, cols))
    return made.without_zero_bases(REGISTER)


def assigned(body: str, *, target: str = "sm_90a", columns_first: frozenset[int] = frozenset()):
    """The module after both passes; tiles of pointers get an access layout by their shape.

    `columns_first` names the loads (by order) whose first dimension is contiguous.
    """
    text = f"""tt.func @k(%p: !tt.ptr<f16>, %q: !tt.ptr<f32>, %n: i32) attributes
    {{num_warps = 4}} {{
    {body}
    tt.return
    }}"""
    module = parse_module(text)
    loads = 0
    for op in module.walk():
        if op.name in ("tt.load", "tt.store") and shape_of(op.operands[0].type):
            shape = shape_of(op.operands[0].type)
            order = (0, 1) if op.name == "tt.load" and loads in columns_first else (1, 0)
            op.attributes["layout"] = (
                line_layout(*shape) if len(shape) == 1 else rows_layout(*shape, order)
            )
            loads += op.name == "tt.load"
    passes = (SelectTensorCores(TARGETS[target]), AssignLayouts(TARGETS[target]))
    PassManager(passes, verify_each=True).run(module)
    return module


def named(module: Module, name: str):
    return [op for op in module.walk() if op.name == name]


LOAD_ROWS = """
%ptrs = tt.splat %p : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
%x = tt.load %ptrs : tensor<64x64x!tt.ptr<f16>> -> tensor<64x64xf16>
"""


def test_elementwise_between_load_and_store_moves_nothing() -> None:
    module = assigned("""
        %r = tt.make_range {start = 0, end = 512} : tensor<512xi32>
        %b = tt.splat %q : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
        %ptrs = tt.addptr %b, %r : (tensor<512x!tt.ptr<f32>>, tensor<512xi32>)
            -> tensor<512x!tt.ptr<f32>>
        %x = tt.load %ptrs : tensor<512x!tt.ptr<f32>> -> tensor<512xf32>
        %y = math.exp %x : tensor<512xf32>
        tt.store %ptrs, %y : tensor<512x!tt.ptr<f32>>, tensor<512xf32>
    """)
    assert not named(module, "ttg.convert_layout")
    tiles = [r for op in module.walk() for r in op.results if shape_of(r.type)]
    assert {encoding_of(value.type) for value in tiles} == {VECTOR}


def test_range_wanted_in_two_layouts_is_made_twice_not_converted() -> None:
    module = assigned("""
        %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
        %row = tt.expand_dims %r {axis = 0} : tensor<64xi32> -> tensor<1x64xi32>
        %col = tt.expand_dims %r {axis = 1} : tensor<64xi32> -> tensor<64x1xi32>
        %rows = tt.broadcast %row : tensor<1x64xi32> -> tensor<64x64xi32>
        %cols = tt.broadcast %col : tensor<64x1xi32> -> tensor<64x64xi32>
        %o = arith.addi %rows, %cols : tensor<64x64xi32>
        %b = tt.splat %p : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
        %ptrs = tt.addptr %b, %o : (tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>)
            -> tensor<64x64x!tt.ptr<f16>>
        %x = tt.load %ptrs : tensor<64x64x!tt.ptr<f16>> -> tensor<64x64xf16>
        tt.store %ptrs, %x : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf16>
    """)
    assert not named(module, "ttg.convert_layout")
    parent = rows_layout(64, 64)
    layouts = {encoding_of(op.result.type) for op in named(module, "tt.make_range")}
    assert layouts == {views.slice_layout(parent, 0), views.slice_layout(parent, 1)}


def small_load(size: int, attributes: str = "") -> Module:
    """A vector that is added to the rows of a tile, and stored."""
    return assigned(f"""
        %r = tt.make_range {{start = 0, end = {size}}} : tensor<{size}xi32>
        %b = tt.splat %q : !tt.ptr<f32> -> tensor<{size}x!tt.ptr<f32>>
        %line = tt.addptr %b, %r : (tensor<{size}x!tt.ptr<f32>>, tensor<{size}xi32>)
            -> tensor<{size}x!tt.ptr<f32>>
        %x = tt.load %line{attributes} : tensor<{size}x!tt.ptr<f32>> -> tensor<{size}xf32>
        tt.store %line, %x : tensor<{size}x!tt.ptr<f32>>, tensor<{size}xf32>
        %e = tt.expand_dims %x {{axis = 1}} : tensor<{size}xf32> -> tensor<{size}x1xf32>
        %f = tt.broadcast %e : tensor<{size}x1xf32> -> tensor<{size}x64xf32>
        %ptrs = tt.splat %q : !tt.ptr<f32> -> tensor<{size}x64x!tt.ptr<f32>>
        %y = tt.load %ptrs : tensor<{size}x64x!tt.ptr<f32>> -> tensor<{size}x64xf32>
        %z = arith.addf %y, %f : tensor<{size}x64xf32>
        tt.store %ptrs, %z : tensor<{size}x64x!tt.ptr<f32>>, tensor<{size}x64xf32>
    """)


def test_small_vector_is_loaded_again_where_it_is_wanted_in_another_layout() -> None:
    module = small_load(128)
    assert not named(module, "ttg.convert_layout")
    layouts = [encoding_of(op.result.type) for op in named(module, "tt.load")]
    assert sorted(map(len, (layout.shape for layout in layouts))) == [1, 1, 2]
    assert views.slice_layout(rows_layout(128, 64), 1) in layouts
    assert line_layout(128) in layouts


@pytest.mark.parametrize(("size", "attributes"), [(256, ""), (128, " {volatile = true}")])
def test_larger_or_volatile_vector_is_loaded_once(size: int, attributes: str) -> None:
    module = small_load(size, attributes)
    assert len(named(module, "ttg.convert_layout")) == 1
    assert len(named(module, "tt.load")) == 2


def test_small_vector_of_which_each_thread_wants_much_is_handed_around(monkeypatch) -> None:
    def wide(rows: int, cols: int, order: tuple[int, int] = (1, 0)):
        made = blocked((1, 64), (16, 2), (4, 1), order, (rows, cols))
        return made.without_zero_bases(REGISTER)

    monkeypatch.setitem(globals(), "rows_layout", wide)
    module = assigned("""
        %b = tt.splat %q : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
        %x = tt.load %b : tensor<128x!tt.ptr<f32>> -> tensor<128xf32>
        %e = tt.expand_dims %x {axis = 0} : tensor<128xf32> -> tensor<1x128xf32>
        %f = tt.broadcast %e : tensor<1x128xf32> -> tensor<64x128xf32>
        %ptrs = tt.splat %q : !tt.ptr<f32> -> tensor<64x128x!tt.ptr<f32>>
        tt.store %ptrs, %f : tensor<64x128x!tt.ptr<f32>>, tensor<64x128xf32>
    """)
    (load,) = named(module, "tt.load")
    assert encoding_of(load.result.type) == default_layout((128,), 4, 32)
    assert len(named(module, "ttg.convert_layout")) == 1


def test_reduction_broadcast_back_needs_no_conversion() -> None:
    module = assigned(
        LOAD_ROWS
        + """
        %m = tt.reduce %x {axis = 1} ({
        ^bb0(%a: f16, %b: f16):
          %s = arith.maxnumf %a, %b : f16
          tt.reduce.return %s : f16
        }) : tensor<64x64xf16> -> tensor<64xf16>
        %e = tt.expand_dims %m {axis = 1} : tensor<64xf16> -> tensor<64x1xf16>
        %f = tt.broadcast %e : tensor<64x1xf16> -> tensor<64x64xf16>
        %y = arith.subf %f, %x : tensor<64x64xf16>
        tt.store %ptrs, %y : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf16>
        """
    )
    assert not named(module, "ttg.convert_layout")


def test_mask_of_a_histogram_lies_like_its_values() -> None:
    module = assigned("""
        %r = tt.make_range {start = 0, end = 512} : tensor<512xi32>
        %b = tt.splat %q : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
        %x = tt.load %b : tensor<512x!tt.ptr<f32>> -> tensor<512xf32>
        %i = arith.fptosi %x : tensor<512xf32> -> tensor<512xi32>
        %h = arith.constant dense<256> : tensor<512xi32>
        %m = arith.cmpi %r, %h {predicate = "slt"}
            : (tensor<512xi32>, tensor<512xi32>) -> tensor<512xi1>
        %c = tt.histogram %i, %m {bins = 16}
            : (tensor<512xi32>, tensor<512xi1>) -> tensor<16xi32>
        tt.print %c {prefix = "c"} : tensor<16xi32>
    """)
    (histogram,) = named(module, "tt.histogram")
    values, mask = (encoding_of(value.type) for value in histogram.operands)
    assert values == mask == VECTOR


DOT_LOOP = """
%pa = tt.splat %p : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
%zero = arith.constant dense<0.0> : tensor<64x64xf32>
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%step = arith.constant dense<64> : tensor<64x64xi32>
%acc, %last = scf.for %k = %c0 to %n step %c1 iter_args(%s = %zero, %pk = %pa)
    -> (tensor<64x64xf32>, tensor<64x64x!tt.ptr<f16>>) : i32 {
  %a = tt.load %pk : tensor<64x64x!tt.ptr<f16>> -> tensor<64x64xf16>
  %b = tt.load %pk : tensor<64x64x!tt.ptr<f16>> -> tensor<64x64xf16>
  OPERAND
  %t = tt.dot %a, %w, %s {input_precision = "tf32"}
      : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %next = tt.addptr %pk, %step : (tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>)
      -> tensor<64x64x!tt.ptr<f16>>
  scf.yield %t, %next : tensor<64x64xf32>, tensor<64x64x!tt.ptr<f16>>
}
%out = arith.truncf %acc : tensor<64x64xf32> -> tensor<64x64xf16>
tt.store %pa, %out : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf16>
"""
PLAIN = '%w = tt.hint %b {kind = "multiple_of", values = (1, 1)} : tensor<64x64xf16>'
TRANSPOSED = "%w = tt.trans %b {order = [1, 0]} : tensor<64x64xf16> -> tensor<64x64xf16>"


def dot_loop(operand: str) -> str:
    return DOT_LOOP.replace("OPERAND", operand).replace("%a, %w", "%a, %w")


@pytest.mark.parametrize(
    ("target", "op", "unit"),
    [("sm_90a", "ttng.warp_group_dot", "wgmma"), ("sm_80", "tt.dot", "mma")],
)
def test_dot_of_half_tiles_runs_on_tensor_cores(target: str, op: str, unit: str) -> None:
    module = assigned(dot_loop(TRANSPOSED), target=target)
    (dot,) = named(module, op)
    assert dot.attributes["unit"] == unit


def test_transposed_operand_is_a_view_of_its_buffer() -> None:
    module = assigned(dot_loop(TRANSPOSED))
    (view,) = named(module, "ttg.memdesc_trans")
    (dot,) = named(module, "ttng.warp_group_dot")
    assert dot.operands[1] is view.result
    buffer = view.operands[0].type
    assert isinstance(buffer, MemDescType)
    assert not named(module, "tt.trans")[0].result.uses


def test_accumulators_stay_in_the_unit_s_layout_until_the_store() -> None:
    module = assigned(dot_loop(TRANSPOSED))
    (conversion,) = named(module, "ttg.convert_layout")
    (store,) = named(module, "tt.store")
    assert store.operands[1] is conversion.result
    assert str(conversion.operands[0].type).startswith("tensor<64x64xf16")


# A product of 128 columns, whose A is made of the sums of another dot.
DOT_OF_DOT = """
%za = arith.constant dense<1.0> : tensor<128x64xf16>
%zb = tt.load %pb : tensor<64x64x!tt.ptr<f16>> -> tensor<64x64xf16>
%zc = arith.constant dense<0.0> : tensor<128x64xf32>
%s = tt.dot %za, %zb, %zc {input_precision = "tf32"}
    : (tensor<128x64xf16>, tensor<64x64xf16>, tensor<128x64xf32>) -> tensor<128x64xf32>
%e = math.exp2 %s : tensor<128x64xf32>
%h = arith.truncf %e : tensor<128x64xf32> -> tensor<128x64xf16>
%v = tt.load %pv : tensor<64x128x!tt.ptr<f16>> -> tensor<64x128xf16>
%zd = arith.constant dense<0.0> : tensor<128x128xf32>
%o = tt.dot %h, %v, %zd {input_precision = "tf32"}
    : (tensor<128x64xf16>, tensor<64x128xf16>, tensor<128x128xf32>) -> tensor<128x128xf32>
tt.store %po, %o : tensor<128x128x!tt.ptr<f32>>, tensor<128x128xf32>
"""


def test_sums_that_another_dot_multiplies_stay_in_their_threads() -> None:
    pointers = "".join(
        f"%p{name} = tt.splat %{base} : !tt.ptr<{kind}> -> tensor<{shape}x!tt.ptr<{kind}>>\n"
        for name, base, kind, shape in (
            ("b", "p", "f16", "64x64"), ("v", "p", "f16", "64x128"), ("o", "q", "f32", "128x128"),
        )
    )  # fmt: skip
    module = assigned(pointers + DOT_OF_DOT, target="sm_80")
    _, second = named(module, "tt.dot")
    operand = second.operands[0].defining_op
    assert operand is not None
    while operand.name == "ttg.convert_layout":
        source, wanted = operand.operands[0].type, operand.result.type
        assert not isinstance(
            classify_conversion(encoding_of(source), encoding_of(wanted), 4, BANKS), SharedTrip
        )
        operand = operand.operands[0].defining_op
        assert operand is not None
    assert operand.name == "arith.truncf"


# 131,072 bytes of sums: sm_89 has 101,376 of shared memory, sm_80 has 166,912.
WIDE_DOT = """
%pa = tt.splat %p : !tt.ptr<f16> -> tensor<128x64x!tt.ptr<f16>>
%pb = tt.splat %p : !tt.ptr<f16> -> tensor<64x256x!tt.ptr<f16>>
%po = tt.splat %q : !tt.ptr<f32> -> tensor<128x256x!tt.ptr<f32>>
%a = tt.load %pa : tensor<128x64x!tt.ptr<f16>> -> tensor<128x64xf16>
%b = tt.load %pb : tensor<64x256x!tt.ptr<f16>> -> tensor<64x256xf16>
%z = arith.constant dense<0.0> : tensor<128x256xf32>
%s = tt.dot %a, %b, %z {input_precision = "tf32"}
    : (tensor<128x64xf16>, tensor<64x256xf16>, tensor<128x256xf32>) -> tensor<128x256xf32>
%t = arith.addf %s, %s : tensor<128x256xf32>
tt.store %po, %t : tensor<128x256x!tt.ptr<f32>>, tensor<128x256xf32>
"""


@pytest.mark.parametrize(("target", "fits"), [("sm_80", True), ("sm_89", False)])
def test_sums_that_shared_memory_has_no_room_for_are_stored_as_they_lie(
    target: str, fits: bool
) -> None:
    module = assigned(WIDE_DOT, target=target)
    (dot,), (store,) = named(module, "tt.dot"), named(module, "tt.store")
    stored, sums = encoding_of(store.operands[1].type), encoding_of(dot.result.type)
    assert (stored != sums) is fits


def test_carried_pointers_take_the_layout_of_their_loads() -> None:
    module = assigned(dot_loop(TRANSPOSED))
    (loop,) = named(module, "scf.for")
    assert encoding_of(loop.results[1].type) == rows_layout(64, 64)


def test_every_tile_of_a_kernel_without_anchors_gets_a_layout() -> None:
    module = assigned("""
        %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
        tt.print %r {prefix = "r"} : tensor<64xi32>
    """)
    (made,) = named(module, "tt.make_range")
    assert encoding_of(made.result.type) == default_layout((64,), 4, 32)


def test_default_layouts_cover_all_shapes() -> None:
    for shape in ((1,), (16,), (1024,), (4, 256), (256, 4), (2, 8, 32), ()):
        for warps in (1, 4, 8):
            layout = default_layout(shape, warps, 32)
            assert layout.is_surjective
            assert classify_conversion(layout, layout, 4, BANKS)


def test_indices_wanted_in_three_layouts_are_made_three_times() -> None:
    module = assigned(
        """
        %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
        %limits = tt.splat %n : i32 -> tensor<64xi32>
        %inside = arith.cmpi %r, %limits {predicate = "slt"}
            : (tensor<64xi32>, tensor<64xi32>) -> tensor<64xi1>
        %line = tt.splat %p : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>
        %x = tt.load %line, %inside : (tensor<64x!tt.ptr<f16>>, tensor<64xi1>) -> tensor<64xf16>
        tt.store %line, %x : tensor<64x!tt.ptr<f16>>, tensor<64xf16>
        %e = tt.expand_dims %r {axis = 0} : tensor<64xi32> -> tensor<1x64xi32>
        %b = tt.broadcast %e : tensor<1x64xi32> -> tensor<64x64xi32>
        %many = tt.splat %n : i32 -> tensor<64x64xi32>
        %m = arith.cmpi %b, %many {predicate = "slt"}
            : (tensor<64x64xi32>, tensor<64x64xi32>) -> tensor<64x64xi1>
        %ptrs = tt.splat %p : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
        %y = tt.load %ptrs, %m : (tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi1>) -> tensor<64x64xf16>
        %z = tt.load %ptrs, %m : (tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi1>) -> tensor<64x64xf16>
        tt.store %ptrs, %y : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf16>
        tt.store %ptrs, %z : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf16>
        """,
        columns_first=frozenset({2}),
    )
    layouts = {encoding_of(op.result.type) for op in named(module, "tt.make_range")}
    assert len(layouts) == 3
