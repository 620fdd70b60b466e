"""The axis analysis: every claim holds in random programs, and the claims that matter are made."""

from __future__ import annotations

import pytest
from axis_programs import ARGUMENTS, IndexPrograms, Machine, Rejected
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tkdebug.compiler.analysis.axis_info import AxisInfo, analyse
from tkdebug.compiler.ir import Value
from tkdebug.compiler.ir.parser import parse_module

_DIVISORS = st.sampled_from([1, 1, 4, 16])


def _check(data: st.DataObject, may_wrap: bool, numbers: st.SearchStrategy[int]) -> None:
    text = IndexPrograms(data.draw).text(data.draw(st.integers(1, 12)))
    function = parse_module(text).function
    divisors = tuple(data.draw(_DIVISORS) for _ in ARGUMENTS)
    function.attributes["arg_divisibility"] = (*divisors, 16)
    claims = analyse(function)
    checked = 0
    for _ in range(3):
        values = [data.draw(numbers) * divisor for divisor in divisors]
        machine = Machine(claims, may_wrap)
        block = function.regions[0].block
        try:
            for argument, number in zip(block.arguments, [*values, 1 << 12], strict=True):
                machine.bind(argument, number)
            machine.run(block)
        except Rejected:
            continue
        checked += 1
    assume(checked)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_claims_hold_of_arithmetic_that_does_not_overflow(data: st.DataObject) -> None:
    _check(data, may_wrap=False, numbers=st.integers(-40, 100))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_aligned_runs_hold_of_arithmetic_that_wraps(data: st.DataObject) -> None:
    _check(data, may_wrap=True, numbers=st.integers(-(1 << 27), (1 << 27) - 1))


def facts(body: str, arguments: str = "%n: i32, %m: i32, %p: !tt.ptr<f16>",
          divisors: tuple[int, ...] = (16, 1, 16)) -> dict[str, AxisInfo]:  # fmt: skip
    """The facts about the named values of a function."""
    module = parse_module(f"tt.func @k({arguments}) {{\n{body}\ntt.return\n}}")
    module.function.attributes["arg_divisibility"] = divisors
    named: dict[str, AxisInfo] = {}
    for value, info in analyse(module.function).items():
        assert isinstance(value, Value)
        if value.name is not None:
            named[value.name] = info
    return named


def test_rows_of_a_matrix() -> None:
    found = facts("""
      %rows = tt.make_range {start = 0, end = 32} : tensor<32xi32>
      %cols = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %0 = tt.expand_dims %rows {axis = 1} : tensor<32xi32> -> tensor<32x1xi32>
      %1 = tt.splat %n : i32 -> tensor<32x1xi32>
      %2 = arith.muli %0, %1 : tensor<32x1xi32>
      %3 = tt.broadcast %2 : tensor<32x1xi32> -> tensor<32x64xi32>
      %4 = tt.expand_dims %cols {axis = 0} : tensor<64xi32> -> tensor<1x64xi32>
      %5 = tt.broadcast %4 : tensor<1x64xi32> -> tensor<32x64xi32>
      %offs = arith.addi %3, %5 : tensor<32x64xi32>
      %base = tt.splat %p : !tt.ptr<f16> -> tensor<32x64x!tt.ptr<f16>>
      %ptrs = tt.addptr %base, %offs : (tensor<32x64x!tt.ptr<f16>>, tensor<32x64xi32>)
          -> tensor<32x64x!tt.ptr<f16>>
    """)
    assert found["offs"] == AxisInfo((1, 64), (1, 16), (1, 1))
    assert found["ptrs"] == AxisInfo((1, 64), (2, 16), (1, 1))


def test_a_stride_of_unknown_divisor_aligns_nothing() -> None:
    found = facts("""
      %cols = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %0 = tt.splat %m : i32 -> tensor<64xi32>
      %offs = arith.addi %0, %cols : tensor<64xi32>
      %base = tt.splat %p : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>
      %ptrs = tt.addptr %base, %offs : (tensor<64x!tt.ptr<f16>>, tensor<64xi32>)
          -> tensor<64x!tt.ptr<f16>>
    """)
    assert found["ptrs"] == AxisInfo((64,), (2,), (1,))
    assert found["ptrs"].run(0, 2) == 1


def test_what_counts_down_is_no_run() -> None:
    found = facts("""
      %r = tt.make_range {start = 0, end = 16} : tensor<16xi32>
      %0 = tt.splat %n : i32 -> tensor<16xi32>
      %down = arith.subi %0, %r : tensor<16xi32>
      %up = arith.subi %r, %0 : tensor<16xi32>
    """)
    assert found["down"].contiguity == (1,)
    assert found["up"] == AxisInfo((16,), (16,), (1,))


RUN = """
      %pid = tt.get_program_id {axis = 0} : i32
      %c = arith.constant 128 : i32
      %start = arith.muli %pid, %c : i32
      %0 = tt.splat %start : i32 -> tensor<64xi32>
      %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %run = arith.addi %0, %r : tensor<64xi32>
"""


@pytest.mark.parametrize(
    ("op", "number", "expected"),
    [
        ("divsi", 16, AxisInfo((1,), (1,), (16,), None, True)),
        ("divsi", 64, AxisInfo((1,), (2,), (64,), None, True)),
        ("divui", 64, AxisInfo((1,), (2,), (64,), None, True)),
        ("shrsi", 4, AxisInfo((1,), (1,), (16,), None, True)),
        ("shrsi", 6, AxisInfo((1,), (2,), (64,), None, True)),
        ("shrui", 6, AxisInfo((1,), (2,), (64,), None, True)),
        ("remsi", 16, AxisInfo((16,), (16,), (1,), None, True)),
        ("remui", 16, AxisInfo((16,), (16,), (1,), None, True)),
        ("andi", 15, AxisInfo((16,), (16,), (1,), None, True)),
        ("andi", -16, AxisInfo((1,), (16,), (16,), None, True)),
        ("muli", 1, AxisInfo((64,), (128,), (1,), None, True)),
        ("muli", 8, AxisInfo((1,), (8,), (1,), None, True)),
        ("shli", 3, AxisInfo((1,), (8,), (1,), None, True)),
        ("ori", 0, AxisInfo((1,), (1,), (1,), None, True)),
        ("addi", 32, AxisInfo((64,), (32,), (1,), None, True)),
        ("subi", 32, AxisInfo((64,), (32,), (1,))),
        ("minsi", 0, AxisInfo((1,), (1,), (1,), None, True)),
        ("maxsi", -4, AxisInfo((1,), (1,), (1,), None, True)),
        ("minui", -4, AxisInfo((1,), (1,), (1,), None, True)),
        ("maxui", -4, AxisInfo((1,), (1,), (1,))),
    ],
)
def test_what_is_known_of_a_program_s_run_and_a_number(
    op: str, number: int, expected: AxisInfo
) -> None:
    found = facts(f"""{RUN}
      %number = arith.constant dense<{number}> : tensor<64xi32>
      %found = arith.{op} %run, %number : tensor<64xi32>
    """)
    assert found["found"] == expected


@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui"])
def test_a_number_divided_by_zero_is_no_known_number(op: str) -> None:
    found = facts(f"""
      %seven = arith.constant 7 : i32
      %zero = arith.constant 0 : i32
      %found = arith.{op} %seven, %zero : i32
    """)
    assert found["found"].constant is None


@pytest.mark.parametrize(("divisor", "constancy"), [(2, 16), (8, 256)])
def test_a_flattened_tile_is_constant_across_axes_that_are_constant_as_a_whole(
    divisor: int, constancy: int
) -> None:
    found = facts(f"""
      %0 = tt.make_range {{start = 0, end = 8}} : tensor<8xi32>
      %1 = arith.constant dense<{divisor}> : tensor<8xi32>
      %2 = arith.divsi %0, %1 : tensor<8xi32>
      %3 = tt.reshape %2 : tensor<8xi32> -> tensor<1x8x1xi32>
      %4 = tt.broadcast %3 : tensor<1x8x1xi32> -> tensor<4x8x8xi32>
      %flat = tt.reshape %4 : tensor<4x8x8xi32> -> tensor<256xi32>
    """)
    assert found["flat"].constancy == (constancy,)


def test_a_mask_of_bits_may_stand_on_the_left() -> None:
    found = facts(f"""{RUN}
      %number = arith.constant dense<15> : tensor<64xi32>
      %found = arith.andi %number, %run : tensor<64xi32>
    """)
    assert found["found"] == AxisInfo((16,), (16,), (1,), None, True)


@pytest.mark.parametrize(
    ("predicate", "constancy"), [("sgt", 16), ("sle", 16), ("ugt", 16), ("ule", 16), ("slt", 1)]
)
def test_masks_with_the_bound_on_the_left(predicate: str, constancy: int) -> None:
    found = facts(f"""{RUN}
      %bound = tt.splat %n : i32 -> tensor<64xi32>
      %mask = arith.cmpi %bound, %run {{predicate = "{predicate}"}}
          : (tensor<64xi32>, tensor<64xi32>) -> tensor<64xi1>
    """)
    assert found["mask"].constancy == (constancy,)


@pytest.mark.parametrize(("op", "non_negative"), [("extsi", False), ("extui", True)])
def test_a_number_extended_by_zeros_is_not_negative(op: str, non_negative: bool) -> None:
    found = facts(f"""
      %wide = arith.{op} %n : i32 -> i64
      %zero = arith.constant 0 : i32
      %less = arith.cmpi %n, %zero {{predicate = "slt"}} : (i32, i32) -> i1
      %bit = arith.{op} %less : i1 -> i32
    """)
    assert found["wide"] == AxisInfo((1,), (16,), (1,), None, non_negative)
    assert found["bit"] == AxisInfo((1,), (1,), (1,), None, non_negative)


def test_a_choice_by_a_known_condition() -> None:
    found = facts(f"""{RUN}
      %yes = arith.constant dense<true> : tensor<64xi1>
      %found = arith.select %yes, %run, %0
          : (tensor<64xi1>, tensor<64xi32>, tensor<64xi32>) -> tensor<64xi32>
      %other = arith.constant dense<false> : tensor<64xi1>
      %start_again = arith.select %other, %run, %0
          : (tensor<64xi1>, tensor<64xi32>, tensor<64xi32>) -> tensor<64xi32>
    """)
    assert found["found"] == found["run"]
    assert found["start_again"].constancy == (64,)


def test_equal_numbers_have_equal_absolute_values() -> None:
    found = facts("""
      %0 = tt.splat %n : i32 -> tensor<64xi32>
      %found = math.absi %0 : tensor<64xi32>
    """)
    assert found["found"].constancy == (64,)


def test_pointers_to_other_elements_are_no_run() -> None:
    found = facts("""
      %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %base = tt.splat %p : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>
      %halves = tt.addptr %base, %r : (tensor<64x!tt.ptr<f16>>, tensor<64xi32>)
          -> tensor<64x!tt.ptr<f16>>
      %bytes = tt.bitcast %halves : tensor<64x!tt.ptr<f16>> -> tensor<64x!tt.ptr<i8>>
      %again = tt.bitcast %halves : tensor<64x!tt.ptr<f16>> -> tensor<64x!tt.ptr<bf16>>
    """)
    assert found["bytes"] == AxisInfo((1,), (2,), (1,))
    assert found["again"] == found["halves"] == AxisInfo((64,), (16,), (1,))


def test_a_reshape_keeps_runs_along_the_outer_axis() -> None:
    found = facts("""
      %r = tt.make_range {start = 0, end = 4} : tensor<4xi32>
      %0 = tt.expand_dims %r {axis = 1} : tensor<4xi32> -> tensor<4x1xi32>
      %1 = tt.broadcast %0 : tensor<4x1xi32> -> tensor<4x8xi32>
      %found = tt.reshape %1 : tensor<4x8xi32> -> tensor<2x2x8xi32>
    """)
    assert found["found"] == AxisInfo((1, 2, 1), (1, 2, 1), (1, 1, 8), None, True)


def test_a_transposed_tile_keeps_its_runs() -> None:
    found = facts("""
      %r = tt.make_range {start = 4, end = 8} : tensor<4xi32>
      %0 = tt.expand_dims %r {axis = 1} : tensor<4xi32> -> tensor<4x1xi32>
      %1 = tt.broadcast %0 : tensor<4x1xi32> -> tensor<4x8xi32>
      %found = tt.trans %1 {order = [1, 0]} : tensor<4x8xi32> -> tensor<8x4xi32>
    """)
    assert found["found"] == AxisInfo((1, 4), (1, 4), (8, 1), None, True)


def test_joined_tiles_are_equal_where_they_are_one() -> None:
    found = facts("""
      %r = tt.make_range {start = 8, end = 16} : tensor<8xi32>
      %s = tt.make_range {start = 0, end = 8} : tensor<8xi32>
      %one = tt.join %r, %r : (tensor<8xi32>, tensor<8xi32>) -> tensor<8x2xi32>
      %two = tt.join %r, %s : (tensor<8xi32>, tensor<8xi32>) -> tensor<8x2xi32>
    """)
    assert (found["one"].constancy, found["two"].constancy) == ((1, 2), (1, 1))


def test_a_sum_is_divisible_by_what_divides_both() -> None:
    found = facts("""
      %eight = arith.constant 8 : i32
      %0 = arith.muli %m, %eight : i32
      %found = arith.addi %n, %0 : i32
      %turned = arith.addi %0, %n : i32
    """)
    assert found["found"].divisibility == found["turned"].divisibility == (8,)


@pytest.mark.parametrize(
    ("op", "number", "divisor"),
    [("andi", 15, 16), ("andi", 12, 1), ("remsi", 15, 1), ("ori", 15, 1)],
)
def test_assumed_low_bits(op: str, number: int, divisor: int) -> None:
    found = facts(f"""
      %zero = arith.constant 0 : i32
      %c = arith.constant {number} : i32
      %0 = arith.{op} %m, %c : i32
      %1 = arith.cmpi %0, %zero {{predicate = "eq"}} : (i32, i32) -> i1
      tt.assume %1 : i1
    """)
    assert found["m"].divisibility == (divisor,)


def test_halves_of_a_tile_and_its_single_element() -> None:
    found = facts("""
      %r = tt.make_range {start = 8, end = 16} : tensor<8xi32>
      %four = arith.constant dense<4> : tensor<8xi32>
      %0 = arith.muli %r, %four : tensor<8xi32>
      %pairs = tt.join %r, %r : (tensor<8xi32>, tensor<8xi32>) -> tensor<8x2xi32>
      %left, %right = tt.split %pairs : tensor<8x2xi32> -> (tensor<8xi32>, tensor<8xi32>)
      %two = tt.make_range {start = 4, end = 6} : tensor<2xi32>
      %eights = arith.constant dense<8> : tensor<2xi32>
      %1 = arith.muli %two, %eights : tensor<2xi32>
      %a, %b = tt.split %1 : tensor<2xi32> -> (i32, i32)
      %r1 = tt.make_range {start = 4, end = 5} : tensor<1xi32>
      %one = tt.unsplat %r1 : tensor<1xi32> -> i32
      %both = tt.cat %r, %0 : (tensor<8xi32>, tensor<8xi32>) -> tensor<16xi32>
    """)
    assert found["left"] == found["right"] == AxisInfo((8,), (8,), (1,), None, True)
    assert found["a"] == found["b"] == AxisInfo((1,), (8,), (1,))
    assert found["one"] == AxisInfo((1,), (4,), (1,), None, True)
    assert found["both"] == AxisInfo((1,), (1,), (1,), None, True)


def test_masks_are_constant_as_far_as_the_bound_divides() -> None:
    body = """
      %pid = tt.get_program_id {axis = 0} : i32
      %c = arith.constant 64 : i32
      %start = arith.muli %pid, %c : i32
      %0 = tt.splat %start : i32 -> tensor<64xi32>
      %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %offs = arith.addi %0, %r : tensor<64xi32>
      %bound = tt.splat %BOUND : i32 -> tensor<64xi32>
      %mask = arith.cmpi %offs, %bound {predicate = "slt"} : (tensor<64xi32>, tensor<64xi32>)
          -> tensor<64xi1>
    """
    assert facts(body.replace("BOUND", "n"))["mask"].constancy == (16,)
    assert facts(body.replace("BOUND", "m"))["mask"].constancy == (1,)


def test_remainder_of_a_program_grid_keeps_runs() -> None:
    found = facts("""
      %pid = tt.get_program_id {axis = 0} : i32
      %group = arith.remsi %pid, %m : i32
      %c = arith.constant 64 : i32
      %start = arith.muli %group, %c : i32
      %0 = tt.splat %start : i32 -> tensor<64xi32>
      %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %run = arith.addi %0, %r : tensor<64xi32>
      %1 = tt.splat %n : i32 -> tensor<64xi32>
      %offs = arith.remsi %run, %1 : tensor<64xi32>
    """)
    assert found["offs"] == AxisInfo((16,), (16,), (1,), None, True)


def test_remainder_of_what_may_be_negative_keeps_none() -> None:
    found = facts("""
      %0 = tt.splat %n : i32 -> tensor<64xi32>
      %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %run = arith.addi %0, %r : tensor<64xi32>
      %c = arith.constant dense<16> : tensor<64xi32>
      %offs = arith.remsi %run, %c : tensor<64xi32>
    """)
    assert found["offs"].contiguity == (1,)


def test_hints_on_one_value() -> None:
    found = facts("""
      %0 = tt.splat %m : i32 -> tensor<64xi32>
      %1 = tt.hint %0 {kind = "divisibility", values = [48]} : tensor<64xi32>
      %2 = tt.hint %1 {kind = "contiguity", values = [64]} : tensor<64xi32>
      %offs = tt.hint %2 {kind = "constancy", values = [8]} : tensor<64xi32>
    """)
    assert found["offs"] == AxisInfo((64,), (16,), (64,))


def test_assumptions_about_arguments() -> None:
    found = facts("""
      %c0 = arith.constant 0 : i32
      %c32 = arith.constant 32 : i32
      %0 = arith.remsi %m, %c32 : i32
      %1 = arith.cmpi %0, %c0 {predicate = "eq"} : (i32, i32) -> i1
      tt.assume %1 : i1
      %2 = arith.cmpi %c0, %m {predicate = "sle"} : (i32, i32) -> i1
      tt.assume %2 : i1
    """)
    assert found["m"] == AxisInfo((1,), (32,), (1,), None, True)


@pytest.mark.parametrize("name", ["first", "second", "both"])
def test_a_choice_is_not_negative_if_neither_side_is(name: str) -> None:
    found = facts("""
      %yes = arith.cmpi %n, %m {predicate = "slt"} : (i32, i32) -> i1
      %pid = tt.get_program_id {axis = 0} : i32
      %other = tt.get_program_id {axis = 1} : i32
      %first = arith.select %yes, %pid, %n : (i1, i32, i32) -> i32
      %second = arith.select %yes, %n, %pid : (i1, i32, i32) -> i32
      %both = arith.select %yes, %pid, %other : (i1, i32, i32) -> i32
    """)
    assert found[name].non_negative == (name == "both")


@pytest.mark.parametrize("divisor", ["%n", "%c0", "%c32"])
def test_an_assumed_remainder_says_something_of_known_divisors(divisor: str) -> None:
    found = facts(f"""
      %c0 = arith.constant 0 : i32
      %c32 = arith.constant 32 : i32
      %0 = arith.remsi %m, {divisor} : i32
      %1 = arith.cmpi %0, %c0 {{predicate = "eq"}} : (i32, i32) -> i1
      tt.assume %1 : i1
    """)
    assert found["m"].divisibility == (32 if divisor == "%c32" else 1,)
    assert not found["m"].non_negative


@pytest.mark.parametrize(
    ("predicate", "bound", "mirrored", "expected"),
    [
        ("sge", 0, "sle", True),
        ("sge", -1, "sle", False),
        ("sgt", -1, "slt", True),
        ("sgt", -2, "slt", False),
        ("slt", 5, "sgt", False),
        ("sle", 0, "sge", False),
        ("uge", 0, "ule", False),
        ("eq", 0, "eq", False),
    ],
)
def test_an_assumed_bound_tells_the_sign(
    predicate: str, bound: int, mirrored: str, expected: bool
) -> None:
    found = facts(f"""
      %c = arith.constant {bound} : i32
      %0 = arith.cmpi %n, %c {{predicate = "{predicate}"}} : (i32, i32) -> i1
      %1 = arith.cmpi %c, %m {{predicate = "{mirrored}"}} : (i32, i32) -> i1
      %2 = arith.andi %0, %1 : i1
      tt.assume %2 : i1
    """)
    assert [found[name].non_negative for name in ("n", "m")] == [expected, expected]


def test_assumption_in_a_branch_says_nothing_outside() -> None:
    found = facts("""
      %c0 = arith.constant 0 : i32
      %0 = arith.cmpi %n, %c0 {predicate = "sgt"} : (i32, i32) -> i1
      scf.if %0 {
        %c32 = arith.constant 32 : i32
        %1 = arith.remsi %m, %c32 : i32
        %2 = arith.cmpi %1, %c0 {predicate = "eq"} : (i32, i32) -> i1
        tt.assume %2 : i1
        scf.yield
      } else {
        scf.yield
      }
    """)
    assert found["m"].divisibility == (1,)


def test_what_an_iteration_assumes_does_not_hold_after_the_last_one() -> None:
    found = facts("""
      %c0 = arith.constant 0 : i32
      %c8 = arith.constant 8 : i32
      %last = scf.for %i = %c0 to %m step %c8 iter_args(%x = %c8) -> (i32) : i32 {
        %0 = arith.cmpi %x, %c0 {predicate = "sge"} : (i32, i32) -> i1
        tt.assume %0 : i1
        %next = arith.subi %x, %n : i32
        scf.yield %next : i32
      }
    """)
    assert (found["x"].non_negative, found["last"].non_negative) == (True, False)


def test_pointer_carried_by_a_loop_keeps_what_each_step_keeps() -> None:
    found = facts("""
      %r = tt.make_range {start = 0, end = 64} : tensor<64xi32>
      %base = tt.splat %p : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>
      %first = tt.addptr %base, %r : (tensor<64x!tt.ptr<f16>>, tensor<64xi32>)
          -> tensor<64x!tt.ptr<f16>>
      %c0 = arith.constant 0 : i32
      %c4 = arith.constant 4 : i32
      %step = arith.constant dense<4> : tensor<64xi32>
      %last = scf.for %i = %c0 to %m step %c4 iter_args(%ptrs = %first)
          -> (tensor<64x!tt.ptr<f16>>) : i32 {
        %next = tt.addptr %ptrs, %step : (tensor<64x!tt.ptr<f16>>, tensor<64xi32>)
            -> tensor<64x!tt.ptr<f16>>
        scf.yield %next : tensor<64x!tt.ptr<f16>>
      }
    """)
    assert found["i"] == AxisInfo((1,), (4,), (1,), None, True)
    for name in ("ptrs", "next", "last"):
        assert found[name] == AxisInfo((64,), (8,), (1,))


def test_what_a_loop_counts_up_before_it_is_used() -> None:
    """It starts one step too low, so the carried number itself may be negative."""
    found = facts("""
      %pid = tt.get_program_id {axis = 0} : i32
      %step = arith.constant 132 : i32
      %more = arith.constant 133 : i32
      %early = arith.subi %pid, %step : i32
      %far_off = arith.subi %pid, %more : i32
      %a, %b, %c = scf.for %i = %pid to %n step %step iter_args(%x = %early, %y = %far_off, %z = %m)
          -> (i32, i32, i32) : i32 {
        %next = arith.addi %x, %step : i32
        %far = arith.addi %y, %step : i32
        %any = arith.addi %z, %step : i32
        scf.yield %next, %far, %any : i32, i32, i32
      }
    """)
    signs = [found[name].non_negative for name in ("next", "x", "far", "any")]
    assert signs == [True, False, False, False]


def test_while_loop_joins_every_way_in() -> None:
    found = facts("""
      %c0 = arith.constant 0 : i32
      %c24 = arith.constant 24 : i32
      %left = scf.while (%i = %n) : (i32) -> (i32) {
        %more = arith.cmpi %i, %c0 {predicate = "sgt"} : (i32, i32) -> i1
        scf.condition(%more) %i : i32
      } do {
      ^bb0(%j: i32):
        %next = arith.subi %j, %c24 : i32
        scf.yield %next : i32
      }
    """)
    assert found["left"].divisibility == found["j"].divisibility == (8,)


def test_runs_that_begin_below_zero_are_no_runs_without_sign() -> None:
    found = facts("""
      %i = tt.make_range {start = 0, end = 16} : tensor<16xi32>
      %one = arith.constant dense<1> : tensor<16xi32>
      %before = arith.subi %i, %one : tensor<16xi32>
      %least = arith.minui %before, %i : tensor<16xi32>
      %most = arith.maxui %before, %i : tensor<16xi32>
      %signed = arith.minsi %before, %i : tensor<16xi32>
      %sixteen = arith.constant dense<16> : tensor<16xi32>
      %lower = arith.subi %i, %sixteen : tensor<16xi32>
      %aligned = arith.minui %lower, %i : tensor<16xi32>
    """)
    # [0, 0, 1, 2, …] and [-1, 1, 2, …].
    assert found["least"].contiguity == found["most"].contiguity == (1,)
    assert found["signed"].contiguity == found["aligned"].contiguity == (16,)
