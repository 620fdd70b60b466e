"""The LLVM intrinsics that lowering may call, with their signatures.

LLVM takes a misspelt `llvm.nvvm.*` for an external function, so no name is written anywhere else:
a test declares each of these and sees that no external call is left in the PTX.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An intrinsic's result type and its declaration."""

    result: str
    declaration: str


def _table(*rows: tuple[str, str, str]) -> dict[str, Intrinsic]:
    return {
        name: Intrinsic(result, f"declare {result} @{name}({arguments})")
        for name, result, arguments in rows
    }


_FLOATS = (("f16", "half"), ("bf16", "bfloat"), ("f32", "float"), ("f64", "double"))
_INTS = ("i8", "i16", "i32", "i64")

# LLVM Language Reference, "Intrinsic Functions"; LLVM's "User Guide for NVPTX Back-end".
INTRINSICS: dict[str, Intrinsic] = _table(
    *(
        (f"llvm.nvvm.read.ptx.sreg.{register}", "i32", "")
        for register in (
            "tid.x",
            "ctaid.x",
            "ctaid.y",
            "ctaid.z",
            "nctaid.x",
            "nctaid.y",
            "nctaid.z",
            "smid",
        )
    ),
    ("llvm.nvvm.shfl.sync.bfly.i32", "i32", "i32, i32, i32, i32"),
    ("llvm.nvvm.shfl.sync.idx.i32", "i32", "i32, i32, i32, i32"),
    ("llvm.nvvm.shfl.sync.up.i32", "i32", "i32, i32, i32, i32"),
    ("llvm.nvvm.barrier.cta.sync.aligned.all", "void", "i32"),
    *(
        (
            f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{trans}.b16.p3",
            "i32" if count == 1 else f"{{ {', '.join(['i32'] * count)} }}",
            "ptr addrspace(3)",
        )
        for count in (1, 2, 4)
        for trans in ("", ".trans")
    ),
    *(
        (
            f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{trans}.b16.p3",
            "void",
            ", ".join(["ptr addrspace(3)"] + ["i32"] * count),
        )
        for count in (1, 2, 4)
        for trans in ("", ".trans")
    ),
    *(
        (f"llvm.nvvm.redux.sync.{name}", "i32", "i32, i32")
        for name in ("add", "and", "or", "xor", "min", "max", "umin", "umax")
    ),
    ("llvm.assume", "void", "i1"),
    *(
        (f"llvm.{name}.{suffix}", type_, type_)
        for suffix, type_ in _FLOATS
        for name in ("fabs", "floor", "ceil", "sqrt")
    ),
    *(
        (f"llvm.{name}.{suffix}", type_, f"{type_}, {type_}")
        for suffix, type_ in _FLOATS
        for name in ("minnum", "maxnum", "minimum", "maximum", "copysign")
    ),
    *((f"llvm.fma.{suffix}", type_, ", ".join((type_,) * 3)) for suffix, type_ in _FLOATS),
    *(
        (f"llvm.{name}.{type_}", type_, f"{type_}, {type_}")
        for type_ in _INTS
        for name in ("smin", "smax", "umin", "umax")
    ),
    ("llvm.nvvm.mulhi.ui", "i32", "i32, i32"),
    ("llvm.nvvm.mulhi.ull", "i64", "i64, i64"),
    ("llvm.nvvm.div.full", "float", "float, float"),
    ("llvm.nvvm.div.approx.f", "float", "float, float"),
    # Float to integer; they saturate.
    *(
        (f"llvm.nvvm.{letter}2{sign}{size}.{mode}", integer, floating)
        for letter, floating in (("f", "float"), ("d", "double"))
        for size, integer in (("i", "i32"), ("ll", "i64"))
        for sign in ("", "u")
        for mode in ("rz", "rn")
    ),
    ("llvm.nvvm.d2f.rz", "float", "double"),
    *(
        (f"llvm.nvvm.{name}", "float", "float")
        for name in (
            "ex2.approx.f",
            "ex2.approx.ftz.f",
            "sqrt.approx.f",
            "sqrt.approx.ftz.f",
            "rsqrt.approx.f",
            "rsqrt.approx.ftz.f",
            "sqrt.rn.f",
        )
    ),
    ("llvm.nvvm.sqrt.rn.d", "double", "double"),
    # Pairs of fp8: the high element comes first in ff.to.
    *(
        row
        for name in ("e4m3", "e5m2")
        for row in (
            (f"llvm.nvvm.ff.to.{name}x2.rn", "i16", "float, float"),
            (f"llvm.nvvm.f16x2.to.{name}x2.rn", "i16", "<2 x half>"),
            (f"llvm.nvvm.{name}x2.to.f16x2.rn", "<2 x half>", "i16"),
        )
    ),
)
