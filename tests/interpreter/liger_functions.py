"""Functions of liger-kernel against torch in fp32; prints what they differ by, as JSON.

Run by `test_liger_kernel.py` under `tkdebug run`. A difference is relative to the largest value of
what torch gives: "forward" for the result, "backward" for the worst of the gradients.
"""

import json
import sys

import torch
import torch.nn.functional as F
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.ops.tvd import LigerTVDLossFunction

ROWS, COLUMNS, GROUPS, EPS = 9, 300, 4, 1e-6


def random(*shape):
    """Values that bf16 holds exactly."""
    return torch.randn(*shape, device="cuda").bfloat16().float()


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def jensen_shannon(log_p, log_q):
    p, q = log_p.exp(), log_q.exp()
    m = (0.5 * (p + q)).log()
    both = F.kl_div(m, p, reduction="sum") + F.kl_div(m, q, reduction="sum")
    return 0.5 * both / p.shape[0]


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos[:, None] + turned * sin[:, None]


def rope_by_liger(q, k, cos, sin):
    return torch.cat([x.flatten() for x in LigerRopeFunction.apply(q, k, cos, sin)])


def rope_by_torch(q, k, cos, sin):
    return torch.cat([rotated(x, cos, sin).flatten() for x in (q, k)])


def cases():
    """Name, liger's function, torch's, the inputs with a gradient, the others."""
    x, y, w, b = random(ROWS, COLUMNS), random(ROWS, COLUMNS), random(COLUMNS), random(COLUMNS)
    labels = torch.randint(0, COLUMNS, (ROWS,), device="cuda")
    ignoring = torch.where(torch.arange(ROWS, device="cuda") % 4 == 1, -100, labels)
    log_p, log_q = F.log_softmax(x, -1), F.log_softmax(y, -1)
    hidden, head = random(ROWS, 64), random(COLUMNS, 64) * 0.125
    angles = random(1, 16, 16).repeat(1, 1, 2)
    yield "softmax", LigerSoftmaxFunction.apply, lambda x: F.softmax(x, -1), (x,), ()
    yield (
        "rms_norm",
        lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False),
        rms_norm, (x, w), (),
    )  # fmt: skip
    yield (
        "layer_norm",
        lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, EPS),
        lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b, EPS), (x, w, b), (),
    )  # fmt: skip
    yield (
        "group_norm",
        lambda x, w, b: LigerGroupNormFunction.apply(x, w, b, 8, GROUPS, EPS),
        lambda x, w, b: F.group_norm(x, GROUPS, w, b, EPS), (random(2, 8, 40), w[:8], b[:8]), (),
    )  # fmt: skip
    for name, options in (
        ("cross_entropy", {}),
        ("cross_entropy, sum, smoothed", {"reduction": "sum", "label_smoothing": 0.1}),
    ):
        yield (
            name,
            lambda x, t, o=options: LigerCrossEntropyFunction.apply(
                x, t, None, -100, 0.0, o.get("label_smoothing", 0.0), o.get("reduction", "mean")
            )[0],
            lambda x, t, o=options: F.cross_entropy(x, t, **o), (x,), (ignoring,),
        )  # fmt: skip
    yield "rope", rope_by_liger, rope_by_torch, (
        random(2, 4, 16, 32), random(2, 2, 16, 32)), (angles.cos(), angles.sin())  # fmt: skip
    yield "swiglu", LigerSiLUMulFunction.apply, lambda a, b: F.silu(a) * b, (x, y), ()
    yield (
        "geglu",
        LigerGELUMulFunction.apply,
        lambda a, b: F.gelu(a, approximate="tanh") * b, (x, y), (),
    )  # fmt: skip
    yield (
        "dyt",
        LigerDyTFunction.apply,
        lambda x, alpha, w, b: torch.tanh(alpha * x) * w + b,
        (x, torch.full((1,), 0.5, device="cuda"), w, b), (),
    )  # fmt: skip
    yield (
        "fused_linear_cross_entropy",
        lambda h, w, t: LigerFusedLinearCrossEntropyFunction.apply(h, w, t)[0],
        lambda h, w, t: F.cross_entropy(h @ w.T, t), (hidden, head), (ignoring,),
    )  # fmt: skip
    yield (
        "jsd",
        lambda p, q: LigerJSDFunction.apply(p, q, None, 0.5, -100), jensen_shannon,
        (log_p,), (log_q,),
    )  # fmt: skip
    yield (
        "kl_div",
        lambda p, q: LigerKLDivLossFunction.apply(p, q, "batchmean", False, 1e-10),
        lambda p, q: F.kl_div(p, q, reduction="batchmean"), (log_p,), (log_q.exp(),),
    )  # fmt: skip
    yield (
        "tvd",
        lambda p, q: LigerTVDLossFunction.apply(p, q, None, "batchmean", -100),
        lambda p, q: 0.5 * (p - q).abs().sum() / p.shape[0], (log_p.exp(),), (log_q.exp(),),
    )  # fmt: skip


def rounded(tensors, dtype):
    return [t.to(dtype) if t.is_floating_point() else t for t in tensors]


def difference(got, expected):
    return ((got.float() - expected).abs().max() / expected.abs().max()).item()


def compare(ours, theirs, inputs, others, dtype):
    """The differences forward and backward of `ours` in `dtype` from `theirs` in fp32."""
    mine = [t.detach().clone().requires_grad_() for t in rounded(inputs, dtype)]
    exact = [t.detach().float().clone().requires_grad_() for t in mine]
    others = rounded(others, dtype)
    got, expected = ours(*mine, *others), theirs(*exact, *rounded(others, torch.float32))
    # Compared before `backward`, in which liger reuses memory; its rope writes to its gradient.
    forward = difference(got, expected)
    gradient = random(*expected.shape) if expected.ndim else torch.tensor(1.0, device="cuda")
    got.backward(gradient.to(got.dtype).clone())
    expected.backward(gradient)
    backward = max(difference(a.grad, b.grad) for a, b in zip(mine, exact, strict=True))
    return {"forward": forward, "backward": backward}


def main():
    torch.manual_seed(0)
    found = {
        f"{name}, {dtype_name}": compare(ours, theirs, inputs, others, dtype)
        for name, ours, theirs, inputs, others in cases()
        for dtype_name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    }
    json.dump(found, sys.stdout)


main()
