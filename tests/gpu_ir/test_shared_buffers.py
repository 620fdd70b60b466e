# ruff: noqa: E501  IR lines are long.
"""Buffers in shared memory, as the interpreter runs them."""

from __future__ import annotations

import pytest
import torch
from gpu_ir_support import kernel, lanes, run

from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import IRError, LaunchError
from tkdebug.interpreter.memory.shared_buffers import POISON

POINTERS = """
%i = tt.make_range {start = 0, end = 32} : tensor<32xi32, #line>
%px = tt.splat %x : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #line>
%from = tt.addptr %px, %i : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
%py = tt.splat %y : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #line>
%to = tt.addptr %py, %i : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
"""
XY = "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32"
LOAD = "%v = tt.load %from : tensor<32x!tt.ptr<f32>, #line> -> tensor<32xf32, #line>\n"
BUFFER = "%b = ttg.local_alloc : () -> !ttg.memdesc<32xf32, #shared, mutable>\n"
STORE = "ttg.local_store %v, %b : tensor<32xf32, #line>, !ttg.memdesc<32xf32, #shared, mutable>\n"
READ = "%r = ttg.local_load %b : !ttg.memdesc<32xf32, #shared, mutable> -> tensor<32xf32, #line>\n"
OUT = "tt.store %to, %r : tensor<32x!tt.ptr<f32>, #line>, tensor<32xf32, #line>\n"
COPY = (
    "%t = ttg.async_copy_global_to_local %from, %b : (tensor<32x!tt.ptr<f32>, #line>, "
    "!ttg.memdesc<32xf32, #shared, mutable>) -> !ttg.async.token\n"
)
COMMIT = "%g = ttg.async_commit_group %t : !ttg.async.token\n"


def wait(num: int) -> str:
    return f"%w{num} = ttg.async_wait {{num = {num}}} : () -> !ttg.async.token\n"


def result(body: str, n: int = 0, rows: int = 1) -> torch.Tensor:
    x, y = lanes(), torch.full((32,), -1.0)
    assert run(kernel(XY, POINTERS + body), x, y, n) == []
    return y


def test_store_then_load_gives_the_tile() -> None:
    assert torch.equal(result(LOAD + BUFFER + STORE + READ + OUT), lanes())


def test_load_before_store_gives_poison() -> None:
    assert result(LOAD + BUFFER + READ + STORE + OUT).isnan().all()


def test_poison_of_integers_is_a_pattern() -> None:
    body = """
    %b = ttg.local_alloc : () -> !ttg.memdesc<32xi32, #shared, mutable>
    %r = ttg.local_load %b : !ttg.memdesc<32xi32, #shared, mutable> -> tensor<32xi32, #line>
    %i = tt.make_range {start = 0, end = 32} : tensor<32xi32, #line>
    %py = tt.splat %y : !tt.ptr<i32> -> tensor<32x!tt.ptr<i32>, #line>
    %to = tt.addptr %py, %i : (tensor<32x!tt.ptr<i32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<i32>, #line>
    tt.store %to, %r : tensor<32x!tt.ptr<i32>, #line>, tensor<32xi32, #line>
    """
    y = torch.zeros(32, dtype=torch.int32)
    run(kernel("%y: !tt.ptr<i32>", body), y)
    assert (y.to(torch.int64) & 0xFFFFFFFF == POISON & 0xFFFFFFFF).all()


def test_dealloc_leaves_poison() -> None:
    dealloc = "ttg.local_dealloc %b : !ttg.memdesc<32xf32, #shared, mutable>\n"
    assert result(LOAD + BUFFER + STORE + dealloc + READ + OUT).isnan().all()


def test_initialised_buffer_holds_its_operand() -> None:
    body = LOAD + (
        "%b = ttg.local_alloc %v : tensor<32xf32, #line> -> !ttg.memdesc<32xf32, #shared>\n"
        "%r = ttg.local_load %b : !ttg.memdesc<32xf32, #shared> -> tensor<32xf32, #line>\n"
    )
    assert torch.equal(result(body + OUT), lanes())


@pytest.mark.parametrize(
    ("steps", "is_there"),
    [
        (COPY + COMMIT + wait(0) + READ, True),
        (COPY + COMMIT + READ, False),
        (COPY + READ, False),
        (COPY + wait(0) + READ, False),
        (COPY + COMMIT + wait(1) + READ, False),
        (COPY + COMMIT + COMMIT.replace("%g", "%h") + wait(1) + READ, True),
        (COPY + COMMIT + READ + wait(0), False),
    ],
)
def test_async_copy_lands_at_the_wait_that_covers_it(steps: str, is_there: bool) -> None:
    y = result(BUFFER + steps + OUT)
    assert torch.equal(y, lanes()) if is_there else y.isnan().all()


def test_copy_on_its_way_spoils_what_was_there() -> None:
    assert result(LOAD + BUFFER + STORE + COPY + COMMIT + READ + OUT).isnan().all()


def test_masked_copy_fills_with_other_or_zero() -> None:
    mask = """
    %pn = tt.splat %n : i32 -> tensor<32xi32, #line>
    %m = arith.cmpi %i, %pn {predicate = "slt"} : (tensor<32xi32, #line>, tensor<32xi32, #line>) -> tensor<32xi1, #line>
    """
    copy = COPY.replace("%b :", "%b, %m :").replace("mutable>)", "mutable>, tensor<32xi1, #line>)")
    y = result(BUFFER + mask + copy + COMMIT + wait(0) + READ + OUT, n=5)
    assert torch.equal(y, torch.where(lanes() < 5, lanes(), 0.0))


def test_copy_outside_its_tensor_is_a_fault() -> None:
    module = kernel(XY, POINTERS + BUFFER + COPY + COMMIT + wait(0) + READ + OUT)
    faults = run(module, lanes(count=20), torch.zeros(32), 0)
    assert [(fault.kind, fault.index, fault.tensor) for fault in faults] == [("oob-load", 20, "x")]


RING = """
%ring = ttg.local_alloc : () -> !ttg.memdesc<3x32xf32, #shared, mutable>
%one = arith.constant 1 : i32
%b = ttg.memdesc_index %ring, %n : (!ttg.memdesc<3x32xf32, #shared, mutable>, i32) -> !ttg.memdesc<32xf32, #shared, mutable>
%c = ttg.memdesc_index %ring, %one : (!ttg.memdesc<3x32xf32, #shared, mutable>, i32) -> !ttg.memdesc<32xf32, #shared, mutable>
"""


def test_index_names_one_buffer_of_several() -> None:
    from_c = READ.replace("%b", "%c")
    assert torch.equal(result(RING + LOAD + STORE + from_c + OUT, n=1), lanes())
    assert result(RING + LOAD + STORE + from_c + OUT, n=2).isnan().all()


def test_index_outside_the_buffers_is_an_error() -> None:
    with pytest.raises(LaunchError, match="got buffer 3 of 3"):
        result(RING + READ + OUT, n=3)


def test_index_may_differ_between_programs() -> None:
    body = (
        POINTERS
        + LOAD
        + """
    %p = tt.get_program_id {axis = 0} : i32
    %three = arith.constant 3 : i32
    %n = arith.remui %p, %three : i32
    """
        + RING
        + STORE
        + READ.replace("%b", "%c")
        + """
    %c32 = arith.constant 32 : i32
    %row = arith.muli %p, %c32 : i32
    %rows = tt.splat %row : i32 -> tensor<32xi32, #line>
    %at = tt.addptr %to, %rows : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
    tt.store %at, %r : tensor<32x!tt.ptr<f32>, #line>, tensor<32xf32, #line>
    """
    )
    y = torch.zeros(5, 32)
    run(kernel("%x: !tt.ptr<f32>, %y: !tt.ptr<f32>", body), lanes(), y, grid=(5, 1, 1))
    holds = [bool(torch.equal(row, lanes())) for row in y]
    assert holds == [False, True, False, False, True]
    assert y[[0, 2, 3]].isnan().all()


TILE = """
%i = tt.make_range {start = 0, end = 16} : tensor<16xi32>
"""


def test_views_of_a_buffer_share_its_memory() -> None:
    """A store to the transposed upper right quarter shows in the whole."""
    body = """
    %zero = arith.constant dense<0.0> : tensor<16x16xf32, #rows>
    %b = ttg.local_alloc %zero : tensor<16x16xf32, #rows> -> !ttg.memdesc<16x16xf32, #tile, mutable>
    %q = ttg.memdesc_subslice %b {offsets = [0, 8]} : !ttg.memdesc<16x16xf32, #tile, mutable> -> !ttg.memdesc<8x8xf32, #tile, mutable>
    %t = ttg.memdesc_trans %q {order = [1, 0]} : !ttg.memdesc<8x8xf32, #tile, mutable> -> !ttg.memdesc<8x8xf32, #ttg.shared_linear<{offset = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 1], [0, 2], [0, 4], [0, 8]]}>, mutable>
    %r = tt.load %x : !tt.ptr<f32> -> f32
    """
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.fault_log import FaultLog
    from tkdebug.interpreter.fusion import Fusion
    from tkdebug.interpreter.memory import shared_buffers
    from tkdebug.interpreter.plan import planned
    from tkdebug.interpreter.state import Batch

    module = kernel("%x: !tt.ptr<f32>", body)
    grid = (1, 1, 1)
    cpu = torch.device("cpu")
    evaluator = Evaluator(planned(module), Batch(grid, 0, 2, cpu, FaultLog("k", 0, grid), Fusion()))
    ops = {op.name: OpView(op) for op in module.walk()}
    zero = torch.zeros(1, 16, 16)
    whole = shared_buffers.local_alloc(evaluator, ops["ttg.local_alloc"], zero)
    quarter = shared_buffers.memdesc_subslice(evaluator, ops["ttg.memdesc_subslice"], whole)
    turned = shared_buffers.memdesc_trans(evaluator, ops["ttg.memdesc_trans"], quarter)
    values = lanes(count=64).reshape(1, 8, 8)
    shared_buffers.write_view(evaluator, turned, values, torch.tensor([False, True]))
    got = shared_buffers.read_view(evaluator, whole)
    expected = torch.zeros(2, 16, 16)
    expected[1, :8, 8:] = values[0].T
    assert torch.equal(got, expected)


def test_divergent_programs_wait_for_their_own_copies() -> None:
    """Programs 0 and 2 copy and commit in a branch; all wait for what they have."""
    body = (
        POINTERS
        + """
    %p = tt.get_program_id {axis = 0} : i32
    %one = arith.constant 1 : i32
    %odd = arith.andi %p, %one : i32
    %zero = arith.constant 0 : i32
    %even = arith.cmpi %odd, %zero {predicate = "eq"} : (i32, i32) -> i1
    """
        + LOAD
        + BUFFER
        + STORE
        + """
    scf.if %even {
      %t = ttg.async_copy_global_to_local %from, %b : (tensor<32x!tt.ptr<f32>, #line>, !ttg.memdesc<32xf32, #shared, mutable>) -> !ttg.async.token
      %g = ttg.async_commit_group %t : !ttg.async.token
      scf.yield
    } else {
      scf.yield
    }
    %w = ttg.async_wait {num = NUM} : () -> !ttg.async.token
    """
        + READ
        + """
    %c32 = arith.constant 32 : i32
    %row = arith.muli %p, %c32 : i32
    %rows = tt.splat %row : i32 -> tensor<32xi32, #line>
    %at = tt.addptr %to, %rows : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
    tt.store %at, %r : tensor<32x!tt.ptr<f32>, #line>, tensor<32xf32, #line>
    """
    )
    y = torch.zeros(4, 32)
    text = body.replace("NUM", "0")
    run(kernel("%x: !tt.ptr<f32>, %y: !tt.ptr<f32>", text), lanes(), y, grid=(4, 1, 1))
    assert torch.equal(y, lanes().expand(4, 32))
    text = body.replace("NUM", "1")
    run(kernel("%x: !tt.ptr<f32>, %y: !tt.ptr<f32>", text), lanes(), y, grid=(4, 1, 1))
    assert y[[0, 2]].isnan().all()
    assert torch.equal(y[[1, 3]], lanes().expand(2, 32))


def test_copies_that_some_programs_commit_are_left_to_the_others() -> None:
    body = (
        POINTERS
        + """
    %p = tt.get_program_id {axis = 0} : i32
    %zero = arith.constant 0 : i32
    %first = arith.cmpi %p, %zero {predicate = "eq"} : (i32, i32) -> i1
    """
        + LOAD
        + BUFFER
        + STORE
        + """
    %t = ttg.async_copy_global_to_local %from, %b : (tensor<32x!tt.ptr<f32>, #line>, !ttg.memdesc<32xf32, #shared, mutable>) -> !ttg.async.token
    scf.if %first {
      %g = ttg.async_commit_group %t : !ttg.async.token
      scf.yield
    } else {
      scf.yield
    }
    %rest = ttg.async_commit_group : () -> !ttg.async.token
    %w = ttg.async_wait {num = 0} : () -> !ttg.async.token
    """
        + READ
        + """
    %c32 = arith.constant 32 : i32
    %row = arith.muli %p, %c32 : i32
    %rows = tt.splat %row : i32 -> tensor<32xi32, #line>
    %at = tt.addptr %to, %rows : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
    tt.store %at, %r : tensor<32x!tt.ptr<f32>, #line>, tensor<32xf32, #line>
    """
    )
    y = torch.zeros(2, 32)
    run(kernel("%x: !tt.ptr<f32>, %y: !tt.ptr<f32>", body), lanes(), y, grid=(2, 1, 1))
    assert torch.equal(y, lanes().expand(2, 32))


def test_buffer_chosen_by_a_branch_is_written_in_its_programs() -> None:
    body = (
        POINTERS
        + """
    %p = tt.get_program_id {axis = 0} : i32
    %one = arith.constant 1 : i32
    %first = arith.cmpi %p, %one {predicate = "slt"} : (i32, i32) -> i1
    """
        + LOAD
        + BUFFER
        + BUFFER.replace("%b", "%c")
        + """
    %d = scf.if %first -> (!ttg.memdesc<32xf32, #shared, mutable>) {
      scf.yield %b : !ttg.memdesc<32xf32, #shared, mutable>
    } else {
      scf.yield %c : !ttg.memdesc<32xf32, #shared, mutable>
    }
    """
        + STORE.replace("%b", "%d")
        + READ
        + """
    %s = ttg.local_load %d : !ttg.memdesc<32xf32, #shared, mutable> -> tensor<32xf32, #line>
    %c64 = arith.constant 64 : i32
    %c32 = arith.constant 32 : i32
    %row = arith.muli %p, %c64 : i32
    %next = arith.addi %row, %c32 : i32
    %rows = tt.splat %row : i32 -> tensor<32xi32, #line>
    %nexts = tt.splat %next : i32 -> tensor<32xi32, #line>
    %at = tt.addptr %to, %rows : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
    tt.store %at, %r : tensor<32x!tt.ptr<f32>, #line>, tensor<32xf32, #line>
    %au = tt.addptr %to, %nexts : (tensor<32x!tt.ptr<f32>, #line>, tensor<32xi32, #line>) -> tensor<32x!tt.ptr<f32>, #line>
    tt.store %au, %s : tensor<32x!tt.ptr<f32>, #line>, tensor<32xf32, #line>
    """
    )
    y = torch.zeros(2, 2, 32)
    run(kernel("%x: !tt.ptr<f32>, %y: !tt.ptr<f32>", body), lanes(), y, grid=(2, 1, 1))
    assert torch.equal(y[0, 0], lanes())
    assert y[1, 0].isnan().all()
    assert torch.equal(y[:, 1], lanes().expand(2, 32))


def placed(first: int, second: int) -> str:
    """Two buffers at given offsets: one is stored to, then the other is made."""
    at = "ttg.local_alloc {{offset = {}}}"
    other = BUFFER.replace("%b", "%c").replace("ttg.local_alloc", at.format(second))
    return LOAD + BUFFER.replace("ttg.local_alloc", at.format(first)) + STORE + other + READ + OUT


@pytest.mark.parametrize(("second", "spoiled"), [(0, 32), (64, 16), (128, 0)])
def test_buffers_that_were_placed_wrongly_spoil_each_other(second: int, spoiled: int) -> None:
    x, y = lanes(), torch.zeros(32)
    run(kernel(XY, POINTERS + placed(0, second), shared_bytes=256), x, y, 0)
    kept = 32 - spoiled
    assert torch.equal(y[:kept], lanes(count=kept))
    assert y[kept:].isnan().all()


def test_buffer_outside_shared_memory_is_an_error() -> None:
    module = kernel(XY, POINTERS + placed(0, 192), shared_bytes=256)
    with pytest.raises(LaunchError, match="bytes 192 to 320 are outside the 256"):
        run(module, lanes(), torch.zeros(32), 0)


def test_scratch_memory_spoils_what_lies_there() -> None:
    """A conversion between two warps takes 256 bytes from its offset on."""
    body = """
    %v = arith.constant dense<1.0> : tensor<64xf32, #a>
    %s = ttg.local_alloc {offset = 0} : !ttg.memdesc<64xf32, #s, mutable>
    ttg.local_store %v, %s : tensor<64xf32, #a>, !ttg.memdesc<64xf32, #s, mutable>
    %w = ttg.convert_layout %v {scratch_offset = 128} : tensor<64xf32, #a> -> tensor<64xf32, #b>
    %r = ttg.local_load %s : !ttg.memdesc<64xf32, #s, mutable> -> tensor<64xf32, #a>
    %i = tt.make_range {start = 0, end = 64} : tensor<64xi32, #a>
    %p = tt.splat %y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>, #a>
    %to = tt.addptr %p, %i : (tensor<64x!tt.ptr<f32>, #a>, tensor<64xi32, #a>) -> tensor<64x!tt.ptr<f32>, #a>
    tt.store %to, %r : tensor<64x!tt.ptr<f32>, #a>, tensor<64xf32, #a>
    """
    layouts = {
        "#a": "#ttg.linear<{register = [], lane = [[1], [2], [4], [8], [16]], warp = [[32]], block = []}>",
        "#b": "#ttg.linear<{register = [], lane = [[2], [4], [8], [16], [32]], warp = [[1]], block = []}>",
        "#s": "#ttg.shared_linear<{offset = [[1], [2], [4], [8], [16], [32]]}>",
    }
    for name, layout in layouts.items():
        body = body.replace(f"{name}>", f"{layout}>").replace(f"{name},", f"{layout},")
    y = torch.zeros(64)
    run(kernel("%y: !tt.ptr<f32>", body, warps=2, shared_bytes=384), y)
    assert torch.equal(y[:32], torch.ones(32))
    assert not torch.equal(y[32:], torch.ones(32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (READ.replace("32xf32, #line", "16xf32, #line"), "differ in shape"),
        (STORE.replace(", mutable", ""), "as where it is defined"),
        (wait(0).replace("num = 0", "num = -1"), "expected an int from 0 up"),
    ],
)
def test_malformed_ops_are_refused(text: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        kernel(XY, POINTERS + LOAD + BUFFER + text)
