"""Short scripts of 20 mistakes in kernels of libraries: how short, and how long they take.

    python bench/reproduced_libraries.py SOURCES [--only NAME] [--budget 120]

SOURCES has the checkouts `liger`, `attorch` and `conch`. Each case plants a mistake in a copy, runs
a driver under `tkdebug reproduce`, and the short script under `tkdebug run`. A case counts if the
script has at most 40 lines and shows a fault of the same kind at the same statement.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {
    "liger": "src/liger_kernel",
    "attorch": "attorch",
    "conch": "conch",
}
MOST_LINES, MOST_SECONDS = 40, 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """A mistake that is planted in a kernel.

    Attributes:
        file: below the package's folder.
        before: text of the file, whose first occurrence is replaced; "" where the driver is wrong.
        driver: a script that comes upon it.
        options: of `tkdebug reproduce` and `run`.
    """

    name: str
    library: str
    file: str
    before: str
    after: str
    driver: str
    options: tuple[str, ...] = ()


_LIGER = "from liger_kernel.ops"
CASES = (
    Case(
        "rms_norm: mean of the block",
        "liger",
        "ops/rms_norm.py",
        "mean_square = tl.sum(X_row * X_row, axis=0) / n_cols",
        "mean_square = tl.sum(X_row * X_row, axis=0) / BLOCK_SIZE",
        f"""{_LIGER}.rms_norm import rms_norm_forward
x, w = torch.randn(8, 100, device="cuda"), torch.randn(100, device="cuda")
y = rms_norm_forward(x, w, 1e-6, 0.0, "llama", True)[0]
torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (100,), w, 1e-6))
""",
    ),
    Case(
        "rms_norm: load without a mask",
        "liger",
        "ops/rms_norm.py",
        "X_row = tl.load(x_base + col_offsets, mask=mask, other=0)",
        "X_row = tl.load(x_base + col_offsets)",
        f"""{_LIGER}.rms_norm import rms_norm_forward
x, w = torch.randn(8, 100, device="cuda"), torch.randn(100, device="cuda")
rms_norm_forward(x, w, 1e-6, 0.0, "llama", True)
""",
    ),
    Case(
        "softmax: padding with zeros",
        "liger",
        "ops/softmax.py",
        'mask=mask, other=-float("inf"), cache_modifier=".ca")',
        'mask=mask, other=0.0, cache_modifier=".ca")',
        f"""{_LIGER}.softmax import _softmax_forward
x = torch.randn(16, 100, device="cuda")
y = _softmax_forward(x)[0]
torch.testing.assert_close(y, torch.softmax(x, dim=-1))
""",
    ),
    Case(
        "softmax backward: brackets",
        "liger",
        "ops/softmax.py",
        "dx = y * (dy - dot)",
        "dx = y * dy - dot",
        f"""{_LIGER}.softmax import _softmax_single_block_backward_kernel as kernel
y = torch.softmax(torch.randn(16, 100, device="cuda"), dim=-1)
dy, dx = torch.randn(16, 100, device="cuda"), torch.empty(16, 100, device="cuda")
kernel[(16,)](dy, 100, y, 100, dx, 100, 100, BLOCK_SIZE=128)
torch.testing.assert_close(dx, y * (dy - (dy * y).sum(-1, keepdim=True)))
""",
    ),
    Case(
        "layer_norm: padding in the variance",
        "liger",
        "ops/layer_norm.py",
        "X_centered_masked = tl.where(mask, X_centered, 0.0)",
        "X_centered_masked = X_centered",
        f"""{_LIGER}.layer_norm import layer_norm_forward
x = torch.randn(16, 100, device="cuda") + 1
w, b = torch.randn(100, device="cuda"), torch.randn(100, device="cuda")
y = layer_norm_forward(x, w, b, 1e-6)[0]
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (100,), w, b, 1e-6))
""",
    ),
    Case(
        "swiglu: mask off by one",
        "liger",
        "ops/swiglu.py",
        "mask = col_offsets < n_cols",
        "mask = col_offsets <= n_cols",
        f"""{_LIGER}.swiglu import swiglu_forward
a, b = torch.randn(16, 100, device="cuda"), torch.randn(16, 100, device="cuda")
swiglu_forward(a, b)
""",
    ),
    Case(
        "kl_div: logarithm of zero",
        "liger",
        "ops/kl_div.py",
        "tl.log(tl.maximum(y_true, eps))",
        "tl.log(y_true)",
        f"""{_LIGER}.kl_div import kldiv_forward_triton
p = torch.log_softmax(torch.randn(16, 100, device="cuda"), dim=-1)
q = torch.softmax(torch.randn(16, 100, device="cuda"), dim=-1)
q[3, 40] = 0
kldiv_forward_triton(p, q, False, "batchmean", 1e-10)
""",
    ),
    Case(
        "jsd: the wrong weight",
        "liger",
        "ops/jsd.py",
        "one_minus_beta_Q = (1 - beta) * Q",
        "one_minus_beta_Q = beta * Q",
        f"""{_LIGER}.jsd import _jsd_kernel
def jsd(x, y, beta):
    p, q = y.exp(), x.exp()
    m = beta * p + (1 - beta) * q
    return (beta * p * y + (1 - beta) * q * x - m * m.log()) / 16

x = torch.log_softmax(torch.randn(16, 100, device="cuda"), dim=-1)
y = torch.log_softmax(torch.randn(16, 100, device="cuda"), dim=-1)
loss, dx = torch.empty_like(x), torch.empty_like(x)
label = torch.zeros(16, dtype=torch.int64, device="cuda")
_jsd_kernel[(16,)](
    x, 100, y, 100, loss, 100, dx, 100, label, 0.1, 16, -100, 100, BLOCK_SIZE=128, HAS_LABEL=False
)
torch.testing.assert_close(loss, jsd(x, y, 0.1))
""",
    ),
    Case(
        "rope: a sign",
        "liger",
        "ops/rope.py",
        "new_q_tile_2 = q_tile_2 * cos_row + q_tile_1 * sin_row",
        "new_q_tile_2 = q_tile_2 * cos_row - q_tile_1 * sin_row",
        f"""{_LIGER}.rope import rope_forward
def rotated(q, cos, sin):
    a, b = q.chunk(2, dim=-1)
    return q * cos[:, None] + torch.cat([-b, a], dim=-1) * sin[:, None]

q = torch.randn(2, 4, 12, 24, device="cuda")
k = torch.randn(2, 2, 12, 24, device="cuda")
angles = torch.randn(1, 12, 12, device="cuda").repeat(1, 1, 2)
cos, sin = angles.cos(), angles.sin()
want = rotated(q, cos, sin)
got = rope_forward(q, k, cos, sin)[0]
torch.testing.assert_close(got, want)
""",
    ),
    Case(
        "tvd: all rows store one loss",
        "liger",
        "ops/tvd.py",
        "loss_ptr += pid * loss_stride",
        "loss_ptr += 0 * loss_stride",
        f"""{_LIGER}.tvd import tv_distance_forward_triton
p = torch.softmax(torch.randn(16, 100, device="cuda"), dim=-1)
q = torch.softmax(torch.randn(16, 100, device="cuda"), dim=-1)
tv_distance_forward_triton(p, q, None, "batchmean", -100, False)
""",
        ("--check", "race"),
    ),
    Case(
        "group_norm: channels of the next group",
        "liger",
        "ops/group_norm.py",
        "global_channel = group_idx * channels_per_group + local_channel",
        "global_channel = (group_idx + 1) * channels_per_group + local_channel",
        f"""{_LIGER}.group_norm import group_norm_forward
x = torch.randn(4, 6, 50, device="cuda")
group_norm_forward(x, 6, 3, torch.randn(6, device="cuda"), torch.randn(6, device="cuda"), 1e-6)
""",
    ),
    Case(
        "cross_entropy: the class of the next row",
        "liger",
        "ops/cross_entropy.py",
        "ori_X_y = tl.load(X_ptr + y)",
        "ori_X_y = tl.load(X_ptr + y + X_stride)",
        f"""{_LIGER}.cross_entropy import cross_entropy_forward
x = torch.randn(16, 100, device="cuda")
y = torch.randint(0, 100, (16,), device="cuda")
cross_entropy_forward(x, y, None, -100, 0.0, 0.1, "mean", None, False)
""",
    ),
    Case(
        "dyt: sum in place of a product",
        "liger",
        "ops/dyt.py",
        "y = tanh_x * gamma",
        "y = tanh_x + gamma",
        f"""{_LIGER}.dyt import liger_dyt_fwd
x, alpha = torch.randn(8, 100, device="cuda"), torch.full((1,), 0.5, device="cuda")
gamma, beta = torch.randn(100, device="cuda"), torch.randn(100, device="cuda")
y = liger_dyt_fwd(x, alpha, gamma, beta)
torch.testing.assert_close(y, torch.tanh(alpha * x) * gamma + beta)
""",
    ),
    Case(
        "relu_squared: a name that is not there",
        "liger",
        "ops/relu_squared.py",
        "relu_x = tl.maximum(x_row, 0)",
        "relu_x = tl.maximum(x_row, zero)",
        f"""{_LIGER}.relu_squared import relu_squared_forward
relu_squared_forward(torch.randn(8, 100, device="cuda"))
""",
    ),
    Case(
        "softmax: no maximum is subtracted",
        "attorch",
        "softmax_kernels.py",
        "input -= tl.max(input, axis=1)[:, None]",
        "input -= 0 * tl.max(input, axis=1)[:, None]",
        """from attorch.softmax_layers import Softmax
Softmax(dim=-1)(torch.randn(16, 100, device="cuda") * 200)
""",
    ),
    Case(
        "layer_norm: variance of the block",
        "attorch",
        "layer_norm_kernels.py",
        "inv_std = tl.rsqrt(tl.sum(diff * diff, axis=1) / feat_dim + eps)",
        "inv_std = tl.rsqrt(tl.sum(diff * diff, axis=1) / BLOCK_SIZE_FEAT + eps)",
        """from attorch.layer_norm_kernels import layer_norm_forward_kernel as kernel
x, w = torch.randn(16, 100, device="cuda"), torch.randn(100, device="cuda")
b, y = torch.randn(100, device="cuda"), torch.empty(16, 100, device="cuda")
kernel[lambda meta: (triton.cdiv(16, meta["BLOCK_SIZE_BATCH"]),)](
    x, w, b, None, None, y, 16, 100, *x.stride(), *y.stride(), 1e-6,
    scale_by_weight=True, add_bias=True, save_stats=False,
)
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (100,), w, b, 1e-6))
""",
    ),
    Case(
        "cross_entropy: strides exchanged",
        "attorch",
        "cross_entropy_loss_kernels.py",
        "input_feat_stride * target +",
        "input_batch_stride * target +",
        """from attorch.cross_entropy_loss_layer import CrossEntropyLoss
x, y = torch.randn(16, 100, device="cuda"), torch.randint(0, 100, (16,), device="cuda")
CrossEntropyLoss()(x, y)
""",
    ),
    Case(
        "linear: weights transposed",
        "attorch",
        "linear_kernels.py",
        "weight_in_feat_stride * in_feat_offset[:, None]",
        "weight_out_feat_stride * in_feat_offset[:, None]",
        """from attorch.linear_kernels import linear_forward_kernel as kernel
x, w = torch.randn(40, 64, device="cuda"), torch.randn(64, 64, device="cuda")
y = torch.empty(40, 64, device="cuda")
grid = lambda m: (
    triton.cdiv(40, m["BLOCK_SIZE_BATCH"]) * triton.cdiv(64, m["BLOCK_SIZE_OUT_FEAT"]),
)
kernel[grid](
    x, w, x, y, y, 40, 64, 64, *x.stride(), *w.stride(), *y.stride(), *y.stride(), 0.0,
    add_bias=False, act_func=None, save_pre_act=False, fp16=False,
)
torch.testing.assert_close(y, x @ w, rtol=1e-2, atol=1e-2)
""",
    ),
    Case(
        "rms_norm: store without a mask",
        "conch",
        "kernels/normalization/rms_norm.py",
        "tl.store(output_ptr + token_offset + block_offsets, result, mask=mask)",
        "tl.store(output_ptr + token_offset + block_offsets, result)",
        """from conch.kernels.normalization.rms_norm import rms_norm_launcher
x, w = torch.randn(16, 100, device="cuda"), torch.randn(100, device="cuda")
rms_norm_launcher(torch.empty_like(x), x, w, 1e-6)
""",
    ),
    Case(
        "reshape_and_cache: a slot that is not there",
        "conch",
        "kernels/vllm/reshape_and_cache.py",
        "",
        "",
        """from conch.kernels.vllm.reshape_and_cache import reshape_and_cache_launcher
key, value = torch.randn(6, 2, 24, device="cuda"), torch.randn(6, 2, 24, device="cuda")
cache = torch.zeros(4, 16, 2, 24, device="cuda")
slots = torch.tensor([3, 17, 40, 64, 5, 9], device="cuda")
reshape_and_cache_launcher(key, value, cache, cache.clone(), slots)
""",
    ),
)
_HEAD = "import sys\nsys.path.insert(0, {folder!r})\nimport torch\nimport triton\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", default="120")
    parser.add_argument("--keep", type=Path, help="a folder for the short scripts")
    options = parser.parse_args()
    print("| library | mistake | kind | lines | grid | elements | statements | CPU s | |")
    print("|---|---|---|---|---|---|---|---|---|")
    passed = 0
    chosen = [case for case in CASES if options.only in f"{case.library} {case.name}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for library, package in PACKAGES.items():
            source = options.sources / library / package
            if source.exists():
                shutil.copytree(source, folder / source.name)
        for number, case in enumerate(chosen):
            row, is_right = in_a_child(case, folder, number, options)
            passed += is_right
            print(f"| {case.library} | {case.name} | {row}", flush=True)
    print(
        f"\n{passed} of {len(chosen)}: at most {MOST_LINES} lines, {MOST_SECONDS:g} s, same symptom"
    )
    return 0 if passed == len(chosen) else 1


def in_a_child(
    case: Case, folder: Path, number: int, options: argparse.Namespace
) -> tuple[str, bool]:
    """Return a case's row, and whether it counts; the child's imports leave nothing behind."""
    import torch  # noqa: F401

    import tkdebug.cli
    import tkdebug.compat  # here, so that children need not import it  # noqa: F401

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = reproduced(case, folder, number, options)
        except BaseException as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = json.loads(file.read() or '{"failed": "it died"}')
    os.waitpid(child, 0)
    if "failed" in answer:
        return f"{' '.join(answer['failed'].split())[:150]} | | | | | | no |", False
    is_short = answer["lines"] <= MOST_LINES and answer["cpu_s"] <= MOST_SECONDS
    is_right = is_short and bool(answer["same"])
    sizes = " | ".join(
        f"{_shown(answer['from'][key])} → {_shown(answer['to'][key])}"
        for key in ("grid", "elements", "statements")
    )
    verdict = "yes" if is_right else "no"
    row = f"{answer['kind']} | {answer['lines']} | {sizes} | {answer['cpu_s']:.1f} | {verdict} |"
    return row, is_right


def _shown(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else f"{value:,}"


def reproduced(
    case: Case, folder: Path, number: int, options: argparse.Namespace
) -> dict[str, object]:
    """Plant a mistake, write its short script, run that; return what it came to."""
    from tkdebug.cli import main as tkdebug

    file = folder / Path(PACKAGES[case.library]).name / case.file
    text = file.read_text()
    assert case.before in text, f"{case.file}: another version"
    file.write_text(text.replace(case.before, case.after, 1))
    script = folder / f"case_{number}.py"
    script.write_text(_HEAD.format(folder=str(folder)) + case.driver)
    short = (options.keep or folder) / f"short_{number:02}.py"
    out, err = io.StringIO(), io.StringIO()
    words = ["--budget", options.budget, "--format", "json", "-o", str(short), *case.options]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = tkdebug(["reproduce", *words, str(script)])
    finally:
        file.write_text(text)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    if status:
        return {"failed": err.getvalue().strip().splitlines()[-1]}
    answer: dict[str, object] = json.loads(out.getvalue())
    report = folder / "short.json"
    shown = str(answer["command"]).split()[1:-1]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        tkdebug([*shown, "--no-tui", "--report", str(report), str(short)])
    faults = json.loads(report.read_text())["faults"]
    lines = short.read_text().splitlines()
    # Lines of causes are edits'; the statement of a mismatch is the one that the answer names.
    same = [
        one
        for one in faults
        if one["kind"] == answer["kind"]
        and (one["kind"] == "mismatch" or lines[one["line"] - 1].strip() == answer["statement"])
    ]
    has_statement = any(line.strip() == answer["statement"] for line in lines)
    return {
        **answer,
        "same": bool(same) and has_statement,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


if __name__ == "__main__":
    sys.exit(main())
