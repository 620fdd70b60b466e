"""Elementwise expressions, their inputs, and how near native results must come to interpreted ones.

A case is an expression over tiles x, y and z of one dtype. What is exact in the language must agree
bit for bit (any NaN equals any NaN). Approximations, by CUDA's documentation of the instructions
and of libdevice, have an allowance in units in the last place; instructions with .ftz see no
subnormal inputs, and subnormal results count as zero.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOATS8 = ("float8e4nv", "float8e5", "float8e4b8", "float8e5b16", "float8e4b15")
ELEMENTS = 2048
PER_PROGRAM = 512
OUTPUTS_PER_KERNEL = 8

_TORCH = {
    "int1": torch.bool,
    "float8e4nv": torch.float8_e4m3fn,
    "float8e5": torch.float8_e5m2,
    "float8e4b8": torch.float8_e4m3fnuz,
    "float8e5b16": torch.float8_e5m2fnuz,
    # torch has no such type: its bits.
    "float8e4b15": torch.uint8,
}


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of the memory that holds language type `name`."""
    return _TORCH.get(name) or getattr(torch, name)


@dataclass(frozen=True)
class Case:
    """One expression.

    Attributes:
        expression: of tiles x, y, z.
        result: language type of what is stored.
        ulps: how far apart the results may be.
        per_unit: allowed ulps more for each unit of |x|.
        inputs: what is special about the inputs: "division" (y is no divisor that is undefined),
            "shift" (y is an amount), "normal" (no subnormals: the instruction flushes them),
            "positive", "unit" (within -1 and 1), "moderate" (within -30 and 30).
        any_zero: the sign of zero is not defined.
    """

    expression: str
    result: str
    ulps: int = 0
    per_unit: float = 0.0
    inputs: str = ""
    any_zero: bool = False


def integer_cases(dtype: str) -> list[Case]:
    """Everything on integers of one dtype; all of it exact."""
    exact = ["x + y", "x - y", "x * y", "x & y", "x | y", "x ^ y", "~x", "-x"]
    exact += ["tl.minimum(x, y)", "tl.maximum(x, y)", "tl.abs(x)", "tl.where(x < y, x, z)"]
    cases = [Case(text, dtype) for text in exact]
    cases += [Case(f"x {sign} y", dtype, inputs="division") for sign in ("//", "%")]
    cases += [Case(f"x {sign} y", dtype, inputs="shift") for sign in ("<<", ">>")]
    cases += [Case(f"x {sign} 3", dtype) for sign in ("<<", ">>")]
    cases += _comparisons()
    if dtype.endswith(("32", "64")):
        cases.append(Case("tl.umulhi(x, y)", dtype))
    return cases


def _comparisons() -> list[Case]:
    return [Case(f"x {sign} y", "int1") for sign in ("==", "!=", "<", "<=", ">", ">=")]


def float_cases(dtype: str) -> list[Case]:
    """Arithmetic on floats of one dtype."""
    divided = dtype if dtype in ("float32", "float64") else "float32"
    wide = "float32" if dtype == "bfloat16" else dtype
    cases = [Case(text, dtype) for text in ("x + y", "x - y", "x * y", "-x", "tl.abs(x)")]
    cases += [
        # div.full: 2 ulp (PTX ISA).
        Case("x / y", divided, ulps=0 if dtype == "float64" else 2, inputs="normal"),
        Case("x % y", dtype),
        Case("tl.fma(x, y, z)", dtype),
        Case("tl.where(x < y, x, z)", dtype),
    ]
    for name, rule in itertools.product(("minimum", "maximum"), ("ALL", "NONE")):
        text = f"tl.{name}(x, y, propagate_nan=tl.PropagateNan.{rule})"
        cases.append(Case(text, wide, any_zero=True))
    return cases + _comparisons()


def math_cases(dtype: str) -> list[Case]:
    """Functions of fp32 and fp64."""
    single = dtype == "float32"
    # libdevice's functions: 1 or 2 ulp (CUDA C++ Programming Guide, "Mathematical Functions"); as
    # much again for torch's.
    cases = [Case(f"tl.{name}(x)", dtype, ulps=4) for name in ("log", "log2", "sin", "cos", "erf")]
    cases += [Case(f"tl.{name}(x)", dtype) for name in ("floor", "ceil")]
    if not single:
        cases += [Case(f"tl.{name}(x)", dtype, ulps=4) for name in ("exp", "exp2", "rsqrt")]
        return [*cases, Case("tl.sqrt(x)", dtype)]
    return [
        *cases,
        # x * log2(e) is rounded before ex2.approx (2 ulp): the error grows with |x|.
        Case("tl.exp(x)", dtype, ulps=4, per_unit=1.2),
        Case("tl.exp2(x)", dtype, ulps=4, inputs="normal"),
        Case("tl.sqrt(x)", dtype, ulps=2, inputs="normal"),
        Case("tl.rsqrt(x)", dtype, ulps=2, inputs="normal"),
        Case("tl.sqrt_rn(x)", dtype),
        Case("tl.div_rn(x, y)", dtype),
        Case("tl.fdiv(x, y)", dtype, ulps=2, inputs="normal"),
        Case("tl.sigmoid(x)", dtype, ulps=8, per_unit=1.2, inputs="moderate"),
    ]


def cast_cases(dtype: str) -> list[Case]:
    """Conversions of one dtype to all others."""
    cases = []
    for target in ("int1", *INTEGERS, *FLOATS, *FLOATS8):
        if target == dtype:
            continue
        if "float8e4b15" in (dtype, target) and not _is_small(dtype, target):
            continue
        cases.append(Case(f"x.to(tl.{target})", target))
        narrower = target in FLOATS8 or (dtype, target) in _DOWNCASTS
        if dtype in FLOATS and narrower:
            cases.append(Case(f"x.to(tl.{target}, fp_downcast_rounding='rtz')", target))
    return cases


_DOWNCASTS = {("float32", "float16"), ("float32", "bfloat16")}


def _is_small(*dtypes: str) -> bool:
    """Whether all are types that convert to and from fp8e4b15."""
    return all(dtype in ("float16", "float32", "bfloat16", "float8e4b15") for dtype in dtypes)


# Inputs


@functools.cache
def inputs_of(dtype: str, kind: str) -> tuple[torch.Tensor, ...]:
    """Tiles x, y and z: special values in all pairs, then random ones; nobody writes to them."""
    generator = torch.Generator().manual_seed(0)
    tiles = []
    special = _special_values(dtype)
    pairs = list(itertools.product(special, repeat=2))[: ELEMENTS // 2]
    for place in range(3):
        random = _random(dtype, generator)
        for index, pair in enumerate(pairs):
            random[index] = pair[(place + index) % 2] if place == 2 else pair[place]
        tiles.append(random)
    return tuple(_restricted([_as_dtype(tile, dtype) for tile in tiles], dtype, kind))


def _special_values(dtype: str) -> list[float] | list[int]:
    if dtype == "int1":
        return [0, 1]
    if dtype in INTEGERS:
        info = torch.iinfo(torch_dtype(dtype))
        low, high = info.min, info.max
        known = {0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, low, low + 1, high // 2, high - 1, high}
        # As 64-bit integers, which wrap to the dtype later.
        return sorted(value - 2**64 if value >= 2**63 else value for value in known)
    common = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        100.0,
        255.5,
        2.0**31,
        -(2.0**31),
    ]
    common += [2.0**63, -(2.0**63), 65504.0, 1e-7, -1e-7, float("inf"), float("-inf"), float("nan")]
    if dtype in FLOATS:
        info = torch.finfo(torch_dtype(dtype))
        common += [info.max, info.min, info.tiny, info.tiny / 2, info.eps, 1 + info.eps]
    return common


def _random(dtype: str, generator: torch.Generator) -> torch.Tensor:
    if dtype == "int1":
        return torch.randint(0, 2, (ELEMENTS,), generator=generator)
    if dtype in INTEGERS:
        bits = torch.randint(-(2**63), 2**63 - 1, (ELEMENTS,), generator=generator)
        width = torch.iinfo(torch_dtype(dtype)).bits
        kept = torch.randint(1, width + 1, (ELEMENTS,), generator=generator)
        return bits >> (64 - kept)
    if dtype in FLOATS8:
        return torch.randint(0, 256, (ELEMENTS,), generator=generator).double()
    scale = torch.randint(-12, 12, (ELEMENTS,), generator=generator).double()
    values = torch.randn(ELEMENTS, generator=generator, dtype=torch.float64) * 2.0**scale
    near = torch.rand(ELEMENTS, generator=generator) < 0.5
    return torch.where(near, torch.randn(ELEMENTS, generator=generator).double(), values)


def _as_dtype(values: torch.Tensor, dtype: str) -> torch.Tensor:
    if dtype in FLOATS8:
        # Every bit pattern.
        bits = torch.arange(ELEMENTS) % 256
        return bits.to(torch.uint8).view(torch_dtype(dtype))
    if dtype in UNSIGNED:
        return values.to(torch.int64).to(getattr(torch, dtype[1:])).view(torch_dtype(dtype))
    return values.to(torch_dtype(dtype))


def _restricted(tiles: list[torch.Tensor], dtype: str, kind: str) -> list[torch.Tensor]:
    x, y, z = tiles
    match kind:
        case "division":
            bits = y.view(getattr(torch, dtype[1:])) if dtype in UNSIGNED else y
            bits[(bits == 0) | (bits == -1)] = 3
        case "shift":
            # Negative ones too, which are beyond the width.
            amount = torch.arange(ELEMENTS) % (torch.iinfo(y.dtype).bits + 16) - 8
            y = amount.to(y.dtype)
        case "normal":
            tiny = torch.finfo(x.dtype).tiny
            for tile in (x, y, z):
                tile[tile.abs() < tiny] = 0
        case "moderate":
            x = x.nan_to_num(0.0).clamp(-30, 30)
        case "positive":
            x, y, z = x.abs(), y.abs(), z.abs()
        case "unit":
            x, y, z = (tile.nan_to_num(0.5).clamp(-1, 1) for tile in (x, y, z))
    return [x, y, z]


# Kernels


def write_kernels(
    folder: Path, name: str, dtype: str, groups: Sequence[Sequence[Case]]
) -> ModuleType:
    """A module with one kernel for each group of expressions."""
    lines = ["import tkdebug", "import tkdebug.language as tl"]
    lines += ["from tkdebug.language.extra import libdevice", ""]
    load = "{}.to(tl.float8e4b15, bitcast=True)" if dtype == "float8e4b15" else "{}"
    for number, group in enumerate(groups):
        outputs = ", ".join(f"O{i}" for i in range(len(group)))
        lines += [
            "",
            "@tkdebug.jit",
            f"def kernel{number}(X, Y, Z, {outputs}, N: tl.constexpr):",
            "    at = tl.program_id(0) * N + tl.arange(0, N)",
            *(
                f"    {tile} = " + load.format(f"tl.load({tile.upper()} + at)")
                for tile in ("x", "y", "z")
            ),
        ]
        for i, case in enumerate(group):
            value = f"({case.expression})"
            if case.result == "float8e4b15":
                value += ".to(tl.uint8, bitcast=True)"
            lines.append(f"    tl.store(O{i} + at, {value})")
    path = folder / f"{name}.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def grouped(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that share inputs, a kernel's worth at a time."""
    groups: list[list[Case]] = []
    for _, same in itertools.groupby(sorted(cases, key=lambda c: c.inputs), lambda c: c.inputs):
        members = list(same)
        for first in range(0, len(members), OUTPUTS_PER_KERNEL):
            groups.append(members[first : first + OUTPUTS_PER_KERNEL])
    return groups


# Comparison


def disagreement(
    case: Case, inputs: Sequence[torch.Tensor], native: torch.Tensor, wanted: torch.Tensor
) -> str | None:
    """Return where native and interpreted results differ by more than allowed; None for nowhere."""
    bad = _differs(case, inputs[0], native, wanted)
    if case.result == "float8e4b15" and inputs[0].dtype.is_floating_point:
        # It has no NaN: what one becomes is undefined.
        bad &= ~inputs[0].double().isnan()
    if not bad.any():
        return None
    place = int(bad.nonzero()[0])
    given = ", ".join(f"{n}={_text(t[place])}" for n, t in zip("xyz", inputs, strict=True))
    return (
        f"{case.expression}: {int(bad.sum())} of {bad.numel()} differ, first at {given}: "
        f"native {_text(native[place])}, interpreted {_text(wanted[place])}"
    )


def _text(value: torch.Tensor) -> str:
    return f"{value.item()!r}" if value.dtype.itemsize > 1 else f"{value.view(torch.uint8).item()}"


def _differs(
    case: Case, x: torch.Tensor, native: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    if not wanted.dtype.is_floating_point:
        return native.view(torch.uint8 if native.dtype == torch.bool else native.dtype) != (
            wanted.view(torch.uint8 if wanted.dtype == torch.bool else wanted.dtype)
        )
    a, b = native.double(), wanted.double()
    both_nan = a.isnan() & b.isnan()
    if case.any_zero or case.ulps:
        same = (a == b) | both_nan
    else:
        integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        kind = integer[wanted.itemsize]
        same = (native.view(kind) == wanted.view(kind)) | both_nan
    if not case.ulps:
        return ~same
    return ~(same | _near(case, x, native, wanted))


def _near(case: Case, x: torch.Tensor, native: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    info = torch.finfo(wanted.dtype)
    a, b = native.double(), wanted.double()
    # One ulp of the number wanted.
    ulp = torch.exp2(torch.floor(torch.log2(b.abs().clamp(min=info.tiny)))) * info.eps
    allowed = ulp * (case.ulps + case.per_unit * x.double().nan_to_num(0.0).abs().clamp(max=1e4))
    smallest = info.tiny if case.inputs in ("normal", "moderate") else 0.0
    near = (a - b).abs() <= allowed + smallest
    # The largest number and infinity are neighbours too.
    overflow = (a.abs() >= info.max) & (b.abs() >= info.max * (1 - 1e-4)) & (a.sign() == b.sign())
    return near | overflow
