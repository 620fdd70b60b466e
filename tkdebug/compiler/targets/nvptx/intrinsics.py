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
    *((f"llvm.fptosi.sat.{i}.{s}", i, t) for i in _INTS for s, t in _FLOATS),
    *((f"llvm.fptoui.sat.{i}.{s}", i, t) for i in _INTS for s, t in _FLOATS),
)
