"""A shorthand for IR on shared-memory buffers: one op a line, such as `store %a`."""

from __future__ import annotations

TILE = "tensor<32xf32, #line>"
BUFFER = "!ttg.memdesc<32xf32, #shared, mutable>"
RING = "!ttg.memdesc<3x32xf32, #shared, mutable>"
PARAMETERS = "%c: i1, %n: i32, %i: i32"
HEAD = f"""
%v = arith.constant dense<1.0> : {TILE}
%p = arith.constant dense<0> : tensor<32xi64, #line>
%px = tt.int_to_ptr %p : tensor<32xi64, #line> -> tensor<32x!tt.ptr<f32>, #line>
%zero = arith.constant 0 : i32
%one = arith.constant 1 : i32
%two = arith.constant 2 : i32
%three = arith.constant 3 : i32
"""


def body(lines: str) -> str:
    """IR for a shorthand: one op a line, everything else taken as it is."""
    out = []
    for number, line in enumerate(lines.strip().splitlines()):
        word, *names = line.split()
        out.append(_op(word, names, number) or line)
    return HEAD + "\n".join(out)


def _op(word: str, names: list[str], number: int) -> str | None:
    match word, names:
        case "alloc", [name]:
            return f"{name} = ttg.local_alloc : () -> {BUFFER}"
        case "ring", [name]:
            return f"{name} = ttg.local_alloc : () -> {RING}"
        case "index", [name, ring, index]:
            return f"{name} = ttg.memdesc_index {ring}, {index} : ({RING}, i32) -> {BUFFER}"
        case "store", [name]:
            return f"ttg.local_store %v, {name} : {TILE}, {BUFFER}"
        case "load", [name]:
            return f"%r{number} = ttg.local_load {name} : {BUFFER} -> {TILE}"
        case "copy", [name]:
            return (
                f"%t{number} = ttg.async_copy_global_to_local %px, {name} : "
                f"(tensor<32x!tt.ptr<f32>, #line>, {BUFFER}) -> !ttg.async.token"
            )
        case "commit", []:
            return f"%g{number} = ttg.async_commit_group : () -> !ttg.async.token"
        case "wait", [count]:
            return f"%w{number} = ttg.async_wait {{num = {count}}} : () -> !ttg.async.token"
        case "barrier", []:
            return "gpu.barrier"
        case "loop", []:
            return "scf.for %k = %zero to %n step %one : i32 {"
        case "end", []:
            return "scf.yield\n}"
        case "then", []:
            return "scf.if %c {"
        case "else", []:
            return "scf.yield\n} else {"
    return None
