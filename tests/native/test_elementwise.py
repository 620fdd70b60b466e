"""Every elementwise op and dtype: native against interpreted (GPU), and interpreted alone (CPU)."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import textwrap

import elementwise_cases as cases
import pytest
import torch
from elementwise_cases import Case

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.dialects.libdevice import FUNCTIONS, Overload

GRID = (cases.ELEMENTS // cases.PER_PROGRAM,)


def run(kernel, inputs, group, mode, device):
    tiles = [tile.to(device) for tile in inputs]
    outputs = [
        torch.empty(cases.ELEMENTS, dtype=cases.torch_dtype(case.result), device=device)
        for case in group
    ]
    with tkdebug.mode(mode):
        kernel[GRID](*tiles, *outputs, N=cases.PER_PROGRAM)
    return [output.cpu() for output in outputs]


def compare(tmp_path, name, dtype, wanted_cases, make_inputs=None):
    """Run all cases both ways; one line for each that disagrees."""
    groups = cases.grouped(wanted_cases)
    module = cases.write_kernels(tmp_path, f"{name}_{dtype}", dtype, groups)
    problems = []
    for number, group in enumerate(groups):
        kernel = getattr(module, f"kernel{number}")
        if make_inputs is None:
            inputs = cases.inputs_of(dtype, group[0].inputs)
        else:
            inputs = make_inputs(group[0].inputs)
        interpreted = run(kernel, inputs, group, "interpret", "cpu")
        native = run(kernel, inputs, group, "native", "cuda")
        for case, got, wanted in zip(group, native, interpreted, strict=True):
            problem = cases.disagreement(case, inputs, got, wanted)
            if problem is not None:
                problems.append(problem)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", cases.INTEGERS)
def test_integers_agree(tmp_path, dtype):
    compare(tmp_path, "integers", dtype, cases.integer_cases(dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", cases.FLOATS)
def test_floats_agree(tmp_path, dtype):
    compare(tmp_path, "floats", dtype, cases.float_cases(dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_agree(tmp_path, dtype):
    compare(tmp_path, "functions", dtype, cases.math_cases(dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int1", *cases.INTEGERS, *cases.FLOATS, *cases.FLOATS8])
def test_casts_agree(tmp_path, dtype):
    compare(tmp_path, "casts", dtype, cases.cast_cases(dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "float8e4b15"])
def test_cases_run_interpreted(tmp_path, dtype):
    """The comparisons rest on this: inputs and kernels are valid."""
    wanted = list(cases.cast_cases(dtype))
    if dtype in cases.INTEGERS:
        wanted += cases.integer_cases(dtype)
    if dtype in cases.FLOATS:
        wanted += cases.float_cases(dtype)
    if dtype == "float32":
        wanted += cases.math_cases(dtype)
    groups = cases.grouped(wanted)
    module = cases.write_kernels(tmp_path, f"interpreted_{dtype}", dtype, groups)
    for number, group in enumerate(groups):
        inputs = cases.inputs_of(dtype, group[0].inputs)
        kernel = getattr(module, f"kernel{number}")
        results = run(kernel, inputs, group, "interpret", "cpu")
        for case, result in zip(group, results, strict=True):
            assert cases.disagreement(case, inputs, result, result) is None


# libdevice. Functions that are exact or rounded once by definition agree bit for bit, signs of zero
# too; of the others those that may differ by more than 6 ulp are listed, with what CUDA documents
# (C++ Programming Guide, "Mathematical Functions") and what the interpreter's own may be off by.
EXACT = (
    "_rn", "_rz", "_rd", "_ru", "clz", "popc", "brev", "ffs", "byte_perm", "mulhi", "mul24", "sad",
    "hadd", "abs", "floor", "ceil", "trunc", "rint", "nearbyint", "round", "copysign", "fmod",
    "isinf", "isnan", "finite", "signbit", "_as_", "hiloint", "ilogb", "logb", "ldexp", "scalbn",
    "nextafter", "remainder", "fdim", "llrint", "llround", "saturate", "fmin", "fmax", "sqrt",
)  # fmt: skip
LOOSE_ULPS = {
    # 10 of CUDA's fp64; 9 of the interpreter's.
    "tgamma": 20,
    # Absolute accuracy only near its zeros at 1 and 2.
    "lgamma": 4000,
    # 5 of CUDA's; the interpreter's erfcinv and normcdfinv are torch's ndtri, seen 50 off.
    "erfinv": 64, "erfcinv": 64, "normcdfinv": 64,
    # Cephes against CUDA: 6 documented, torch's lose more at large arguments.
    "cyl_bessel_i0": 64, "cyl_bessel_i1": 64,
    "erfcx": 8, "normcdf": 8, "pow": 8, "norm3d": 8, "norm4d": 8, "rnorm3d": 8, "rnorm4d": 8,
    # torch computes them in fp32 from exp or pow.
    "exp10": 16, "sinh": 8, "cosh": 8,
    # An approximation that keeps 20 bits: the last of them (PTX ISA, rcp.approx.ftz.f64).
    "rcp64h": 2**32,
}  # fmt: skip
# sqrt of fp32 is sqrt.approx.f32, as upstream's: libdevice asks whether
# roots are to be precise (__CUDA_PREC_SQRT): 0. Within 2**-23 of the root (PTX ISA): 2 ulp below a
# power of 4.
APPROXIMATE_SQRT_ULPS = 2
# Which of 0 and -0 is smaller is not defined, nor which .sat gives for -0.
ANY_ZERO = ("fmin", "fmax", "saturatef")
# Bessel functions lose all relative accuracy near their zeros; fast_* everywhere but in a range.
LOOSE_ABSOLUTE = ("j0", "j1", "jn", "y0", "y1", "yn", "fast_")


def _language_name(dtype: object) -> str:
    """The name that torch has too: `float32` of fp32, `uint32` of u32, `int32` of i32 or int32."""
    kind, bits = str(dtype).rstrip("0123456789"), str(dtype).lstrip("abcdefghijklmnopqrstuvwxyz")
    return {"fp": "float", "u": "uint", "i": "int"}.get(kind, kind) + bits


def libdevice_case(name: str, overload: Overload) -> Case | None:
    result = _language_name(overload.result)
    if FUNCTIONS[name].native_only or any(part in name for part in LOOSE_ABSOLUTE):
        return None
    arguments = ", ".join("xyzx"[: len(overload.arguments)])
    exact = any(part in name for part in EXACT) and "rsqrt" not in name
    # Whole powers are products in a fixed order.
    exact |= name == "pow" and _language_name(overload.arguments[1]) == "int32"
    ulps = 0 if exact else LOOSE_ULPS.get(name, 6)
    if name == "sqrt" and result == "float32":
        ulps = APPROXIMATE_SQRT_ULPS
    target = "int1" if FUNCTIONS[name].is_predicate else result
    zero = any(part in name for part in ANY_ZERO)
    return Case(
        f"libdevice.{name}({arguments})", target, ulps=ulps, any_zero=zero, inputs="libdevice"
    )


def libdevice_groups():
    """(dtypes of the arguments, the functions that take them)."""
    found: dict[tuple[str, ...], list[Case]] = {}
    for name, function in FUNCTIONS.items():
        for overload in function.overloads:
            case = libdevice_case(name, overload)
            if case is not None:
                key = tuple(_language_name(type_) for type_ in overload.arguments)
                found.setdefault(key, []).append(case)
    return sorted(found.items())


@pytest.mark.gpu
@pytest.mark.parametrize(("types", "group"), libdevice_groups(), ids=lambda v: str(v)[:40])
def test_libdevice_agrees(tmp_path, types, group):
    # The fourth argument is x again.
    padded = (*types, *(types[-1],) * 3)[:3]

    def make_inputs(kind):
        tiles = [cases.inputs_of(dtype, "")[i] for i, dtype in enumerate(padded)]
        return [t.clamp(-1000, 1000) if t.is_floating_point() else t for t in tiles]

    compare(tmp_path, "libdevice_" + "_".join(types), types[0], group, make_inputs)


# Mapped functions, inline PTX, atomics


@tkdebug.jit
def collatz(x):
    steps = 0
    while x > 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps


@tkdebug.jit
def order(a, b, c, d):
    return (a, b, c, d) if a < c else (c, d, a, b)


@tkdebug.jit
def mapped_kernel(X, Y, OUT, PACKED, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(X + at)
    tl.store(OUT + at, tl.map_elementwise(collatz, x))
    low, high = tl.map_elementwise(order, x, tl.load(Y + at), pack=2)
    tl.store(PACKED + at, low * 7 + high)


@pytest.mark.gpu
def test_mapped_functions_diverge_for_each_element():
    x = torch.randint(1, 10000, (2048,), dtype=torch.int32)
    y = torch.randint(0, 10000, (2048,), dtype=torch.int32)
    results = {}
    for mode, device in (("interpret", "cpu"), ("native", "cuda")):
        out = [torch.zeros(2048, dtype=torch.int32, device=device) for _ in range(2)]
        with tkdebug.mode(mode):
            mapped_kernel[(4,)](x.to(device), y.to(device), *out, N=512)
        results[mode] = [tile.cpu() for tile in out]
    assert torch.equal(results["native"][0], results["interpret"][0])


@tkdebug.jit
def inline_kernel(X, B, H, ADDED, BYTES, HALVES, LOW, HIGH, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    x, b, h = tl.load(X + at), tl.load(B + at), tl.load(H + at)
    added = tl.inline_asm_elementwise(
        "add.s32 $0, $1, $2;", "=r,r,r", [x, x], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(ADDED + at, added)
    flipped = tl.inline_asm_elementwise(
        "xor.b32 $0, $1, 0x0f0f0f0f;", "=r,r", [b], dtype=tl.int8, is_pure=True, pack=4
    )
    tl.store(BYTES + at, flipped)
    doubled = tl.inline_asm_elementwise(
        "and.b32 $0, $1, 0x7fff7fff;", "=r,r", [h], dtype=tl.float16, is_pure=True, pack=2
    )
    tl.store(HALVES + at, doubled)
    low, high = tl.inline_asm_elementwise(
        "and.b32 $0, $2, 0xffff; shr.u32 $1, $2, 16;", "=&r,=r,r", [x],
        dtype=(tl.int32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(LOW + at, low)
    tl.store(HIGH + at, high)


@pytest.mark.gpu
def test_inline_ptx_agrees():
    x = torch.randint(-(2**31), 2**31 - 1, (1024,), dtype=torch.int32)
    b = torch.randint(-128, 127, (1024,), dtype=torch.int8)
    h = torch.randn(1024).half()
    kinds = (torch.int32, torch.int8, torch.float16, torch.int32, torch.int32)
    results = {}
    for mode, device in (("interpret", "cpu"), ("native", "cuda")):
        out = [torch.zeros(1024, dtype=kind, device=device) for kind in kinds]
        with tkdebug.mode(mode):
            inline_kernel[(2,)](x.to(device), b.to(device), h.to(device), *out, N=512)
        results[mode] = [tile.cpu() for tile in out]
    for native, interpreted in zip(results["native"], results["interpret"], strict=True):
        assert torch.equal(native, interpreted)


@tkdebug.jit
def atomics_kernel(SUM, MAX, MIN, COUNT, OLD, X, SWAP, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(X + at)
    tl.atomic_add(SUM + tl.arange(0, N), x)
    tl.atomic_max(MAX + at % 16, x, mask=at % 3 != 0)
    tl.atomic_min(MIN + at % 16, x)
    ticket = tl.atomic_add(COUNT, 1)
    tl.atomic_xchg(OLD + ticket, 5)
    tl.atomic_cas(SWAP + tl.arange(0, N), 0, 3)
    tl.atomic_or(OLD + ticket, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_atomics_agree(dtype):
    # Sums of small whole numbers are exact in any order.
    x = torch.randint(-50, 50, (8 * 256,)).to(dtype)
    results = {}
    for mode, device in (("interpret", "cpu"), ("native", "cuda")):
        make = [torch.zeros(256), torch.full((16,), -3.0), torch.full((16,), 3.0)]
        out = [tile.to(dtype).to(device) for tile in make]
        out += [torch.zeros(n, dtype=torch.int32, device=device) for n in (1, 8)]
        swap = torch.zeros(256, dtype=torch.int32, device=device)
        with tkdebug.mode(mode):
            atomics_kernel[(8,)](*out, x.to(device), swap, N=256)
        results[mode] = [tile.cpu() for tile in (*out, swap)]
    for native, interpreted in zip(results["native"], results["interpret"], strict=True):
        assert torch.equal(native, interpreted)


@tkdebug.jit
def half_sum_kernel(SUM, X, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.atomic_add(SUM + at, tl.load(X + tl.program_id(0) * N + at), sem="relaxed")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_vector_sums_agree(dtype):
    x = torch.randint(-4, 4, (8 * 1024,)).to(dtype)
    total = torch.zeros(1024, dtype=dtype, device="cuda")
    with tkdebug.mode("native"):
        half_sum_kernel[(8,)](total, x.cuda(), N=1024)
    assert torch.equal(total.cpu(), x.reshape(8, 1024).float().sum(0).to(dtype))


@tkdebug.jit
def lock_kernel(LOCK, TOTAL, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    while tl.atomic_cas(LOCK, 0, 1) == 1:
        pass
    tl.store(TOTAL + at, tl.load(TOTAL + at, volatile=True) + 1)
    tl.atomic_xchg(LOCK, 0)


@pytest.mark.gpu
def test_a_spin_lock_keeps_programs_apart():
    lock = torch.zeros(1, dtype=torch.int32, device="cuda")
    total = torch.zeros(1024, dtype=torch.int32, device="cuda")
    with tkdebug.mode("native"):
        lock_kernel[(500,)](lock, total, COUNT=1024)
    assert total.eq(500).all()


# Prints and asserts

PRINTS = """
    import torch, tkdebug, tkdebug.language as tl

    @tkdebug.jit
    def kernel(X, F):
        at = tl.arange(0, 64)
        tl.device_print("x: ", tl.load(X + at))
        tl.device_print("f: ", tl.load(F + at), at)
        tl.device_print("h: ", tl.load(X + at), hex=True)
        tl.device_print("a: ", tl.load(F + at) * 0.7, hex=True)
        tl.device_print("s: ", tl.program_id(0))
        tl.device_print("only text")

    device = "cuda" if {mode!r} == "native" else "cpu"
    with tkdebug.mode({mode!r}):
        x = torch.arange(-32, 32, dtype=torch.int16, device=device)
        kernel[(2,)](x, x.half() / 4)
    if device == "cuda":
        torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_prints_agree(tmp_path):
    lines = {}
    for mode in ("native", "interpret"):
        script = tmp_path / f"prints_{mode}.py"
        script.write_text(textwrap.dedent(PRINTS).format(mode=mode))
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=True, timeout=300
        )
        lines[mode] = sorted(done.stdout.splitlines())
    assert lines["native"] == lines["interpret"]


ASSERTS = """
    import torch, tkdebug, tkdebug.language as tl

    @tkdebug.jit(debug=True)
    def kernel(X):
        x = tl.load(X + tl.arange(0, 128))
        tl.device_assert(x < {limit}, "x is small")

    with tkdebug.mode("native"):
        kernel[(1,)](torch.arange(128, device="cuda"))
    torch.cuda.synchronize()
    print("survived")
"""


@pytest.mark.gpu
@pytest.mark.parametrize(("limit", "survives"), [(128, True), (127, False)])
def test_assert_stops_the_kernel(tmp_path, limit, survives):
    script = tmp_path / f"asserts_{limit}.py"
    script.write_text(textwrap.dedent(ASSERTS).format(limit=limit))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert ("survived" in done.stdout) == survives
    if not survives:
        assert "thread: [127,0,0] Assertion `x is small` failed" in done.stdout + done.stderr
        assert f"{script}:7" in done.stdout + done.stderr


def test_prints_are_lines_of_elements():
    @tkdebug.jit
    def kernel(X):
        tl.device_print("x: ", tl.load(X + tl.arange(0, 2)))

    with contextlib.redirect_stdout(io.StringIO()) as out:
        kernel[(1,)](torch.tensor([5, 6]))
    assert out.getvalue().splitlines()[0].endswith("x: 5")
