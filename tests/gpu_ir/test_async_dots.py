# ruff: noqa: E501  IR lines are long.
"""Async dots of a warp group, as the interpreter runs them."""

from __future__ import annotations

import torch
from gpu_ir_support import kernel, run

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import blocked, nvmma_shared, wgmma

M, N, K = 64, 16, 16
ACC = wgmma((M, N), (4, 1), N)
A = blocked((1, 4), (8, 4), (4, 1), (1, 0), (M, K))
B = blocked((1, 1), (2, 16), (4, 1), (1, 0), (K, N))
PARAMETERS = "%a: !tt.ptr<f16>, %b: !tt.ptr<f16>, %y: !tt.ptr<f32>, %n: i32"
LAYOUTS = {
    "#acc": ACC,
    "#a": A,
    "#b": B,
    "#sa": nvmma_shared((M, K), 32, 16),
    "#sb": nvmma_shared((K, N), 32, 16),
}
TYPES = {
    "ACC": f"tensor<{M}x{N}xf32, #acc>",
    "BUFA": f"!ttg.memdesc<{M}x{K}xf16, #sa, mutable>",
    "BUFB": f"!ttg.memdesc<{K}x{N}xf16, #sb, mutable>",
}


def tile(name: str, pointer: str, element: str, rows: int, columns: int, layout: str) -> str:
    """Pointers `%name` to a row-major tile."""
    shape = f"{rows}x{columns}"
    return f"""
    %{name}0 = arith.constant dense<0> : tensor<{shape}xi32, {layout}>
    %{name}1 = tt.make_range {{start = 0, end = {rows * columns}}} : tensor<{rows * columns}xi32, #flat_{name}>
    %{name}2 = tt.reshape %{name}1 : tensor<{rows * columns}xi32, #flat_{name}> -> tensor<{shape}xi32, {layout}>
    %{name}3 = tt.splat {pointer} : !tt.ptr<{element}> -> tensor<{shape}x!tt.ptr<{element}>, {layout}>
    %{name} = tt.addptr %{name}3, %{name}2 : (tensor<{shape}x!tt.ptr<{element}>, {layout}>, tensor<{shape}xi32, {layout}>) -> tensor<{shape}x!tt.ptr<{element}>, {layout}>
    """


def text(steps: str) -> str:
    body = tile("pa", "%a", "f16", M, K, "#a") + tile("pb", "%b", "f16", K, N, "#b")
    body += tile("py", "%y", "f32", M, N, "#acc")
    body += f"""
    %va = tt.load %pa : tensor<{M}x{K}x!tt.ptr<f16>, #a> -> tensor<{M}x{K}xf16, #a>
    %vb = tt.load %pb : tensor<{K}x{N}x!tt.ptr<f16>, #b> -> tensor<{K}x{N}xf16, #b>
    %sa = ttg.local_alloc %va : tensor<{M}x{K}xf16, #a> -> BUFA
    %sb = ttg.local_alloc %vb : tensor<{K}x{N}xf16, #b> -> BUFB
    %zero = arith.constant dense<0.0> : ACC
    {steps}
    tt.store %py, %r : tensor<{M}x{N}x!tt.ptr<f32>, #acc>, ACC
    """
    for name, type_ in TYPES.items():
        body = body.replace(name, type_)
    return body


def dot(result: str, acc: str) -> str:
    return (
        f'{result} = ttng.warp_group_dot %sa, %sb, {acc} {{input_precision = "tf32", async = true}} '
        ": (BUFA, BUFB, ACC) -> ACC\n"
    )


def wait(result: str, value: str, pendings: int) -> str:
    return f"{result} = ttng.warp_group_dot_wait {value} {{pendings = {pendings}}} : ACC\n"


SPOIL = f"ttg.local_store %va, %sa : tensor<{M}x{K}xf16, #a>, BUFA\n".replace("%va", "%vz")
ZEROS = f"%vz = arith.constant dense<0.0> : tensor<{M}x{K}xf16, #a>\n"


def outcome(steps: str, n: int = 1, programs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the stored tile and one product."""
    from tkdebug.compiler.ir import types as ir
    from tkdebug.compiler.layouts import reshape

    torch.manual_seed(0)
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    y = torch.zeros(M, N)
    flats = {"#flat_pa": (A, M * K), "#flat_pb": (B, K * N), "#flat_py": (ACC, M * N)}
    layouts = dict(LAYOUTS)
    for name, (layout, size) in flats.items():
        layouts[name] = reshape(layout, (size,))
    assert ir.TOKEN is not None
    body = text(steps)
    for name in sorted(layouts, key=len, reverse=True):
        body = body.replace(name + ">", layout_text(layouts[name]) + ">")
        body = body.replace(name + ",", layout_text(layouts[name]) + ",")
    assert run(kernel(PARAMETERS, body, warps=4), a, b, y, n, grid=(programs, 1, 1)) == []
    return y, a.float() @ b.float()


def test_result_is_there_after_its_wait() -> None:
    y, product = outcome(dot("%d", "%zero") + wait("%r", "%d", 0))
    torch.testing.assert_close(y, product, rtol=1e-5, atol=1e-5)


def test_result_before_its_wait_is_poison() -> None:
    y, _ = outcome(dot("%r", "%zero") + wait("%w", "%r", 0))
    assert y.isnan().all()


def test_wait_that_leaves_it_pending_hands_on_poison() -> None:
    y, _ = outcome(dot("%d", "%zero") + wait("%r", "%d", 1))
    assert y.isnan().all()


def test_dots_add_to_those_still_running() -> None:
    steps = dot("%d", "%zero") + dot("%e", "%d") + wait("%f", "%e", 1) + dot("%g", "%f")
    y, product = outcome(steps + wait("%r", "%g", 0))
    torch.testing.assert_close(y, 3 * product, rtol=1e-5, atol=1e-5)


def test_operand_overwritten_before_the_wait_is_poison() -> None:
    y, _ = outcome(ZEROS + dot("%d", "%zero") + SPOIL + wait("%r", "%d", 0))
    assert y.isnan().all()


def test_operand_overwritten_after_the_wait_that_covers_it_is_used() -> None:
    steps = ZEROS + dot("%d", "%zero") + wait("%e", "%d", 0) + SPOIL + dot("%f", "%e")
    y, product = outcome(steps + wait("%r", "%f", 0))
    torch.testing.assert_close(y, product, rtol=1e-5, atol=1e-5)


def test_loop_carries_what_is_pending() -> None:
    """Programs run as many iterations as their id says, so that they diverge."""
    steps = """
    %p = tt.get_program_id {axis = 0} : i32
    %i0 = arith.constant 0 : i32
    %i1 = arith.constant 1 : i32
    %count = arith.addi %p, %n : i32
    %l = scf.for %k = %i0 to %count step %i1 iter_args(%acc = %zero) -> (ACC) : i32 {
    """
    steps += dot("%d", "%acc") + wait("%e", "%d", 1) + "scf.yield %e : ACC\n}\n"
    steps += wait("%all", "%l", 0)
    steps += """
    %i2 = arith.constant 2 : i32
    %is_last = arith.cmpi %p, %i2 {predicate = "eq"} : (i32, i32) -> i1
    %r = arith.select %is_last, %all, %zero : (i1, ACC, ACC) -> ACC
    """
    y, product = outcome(steps, n=0, programs=3)
    torch.testing.assert_close(y, 2 * product, rtol=1e-5, atol=1e-5)
