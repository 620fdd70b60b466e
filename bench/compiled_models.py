# ruff: noqa: SLF001 (torch has no other name for the reset of its compiler)
"""Compiled models on a GPU: tkdebug's kernels and upstream's, results, speed and compile times.

    python bench/compiled_models.py [MODEL ...]       # both, with empty caches

Without a GPU, kernels are interpreted, and results compared with eager ones; a graph that ran
uncompiled is a failure. Random numbers differ there: of a dropout what is kept is compared.

On a GPU, each compiler has a process of its own, with the same settings. Both measure one model in
turns, then the next: cold compiles are of the first turn, times the least of all turns. tkdebug is
installed there and records nothing: what recording costs is in `overhead.py`. A model is equal
where all of its results are within tolerance of upstream's. Times of calls are between two CUDA
events around many of them, and so the host's where that is slower; times of the GPU are of a CUDA
graph of calls, which has no host.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, CALLS_MS, TURNS, GRAPH_CALLS = 5, 30.0, 2, 10
MODELS = {}
UNCOMPILED = "without being compiled"


def model(options=None, tolerance=1e-2):
    def add(make):
        MODELS[make.__name__] = (make, options or {}, tolerance)
        return make

    return add


def randn(*shape, dtype=None, grad=False):
    import torch

    return torch.randn(*shape, device="cuda", dtype=dtype or torch.float32, requires_grad=grad)


def half(*shape, grad=False):
    import torch

    return (torch.randn(*shape, device="cuda") * 0.5).bfloat16().requires_grad_(grad)


@model()
def pointwise_chain():
    import torch

    def f(x, y):
        return torch.relu(x) * torch.tanh(y) + (x - y).sigmoid() * torch.exp(-x * x)

    return f, (randn(4096, 4096), randn(4096, 4096))


@model(tolerance=3e-2)
def gelu_bias_bf16():
    import torch.nn.functional as F

    return lambda x, b: F.gelu(x + b) * 1.5, (half(8192, 4096), half(4096))


@model()
def broadcast():
    return lambda x, y: (x + y).exp() * 2, (randn(4096, 1), randn(1, 4096))


@model()
def transpose():
    return lambda x: (x.t() + 1).contiguous(), (randn(4096, 4096),)


@model()
def concatenate():
    import torch

    return lambda x, y: torch.cat([x * 2, y.relu(), x + y], -1), (
        randn(4096, 1024),
        randn(4096, 1024),
    )


@model()
def softmax():
    import torch.nn.functional as F

    return lambda x: F.softmax(x, -1), (randn(8192, 2048),)


@model()
def long_softmax():
    import torch.nn.functional as F

    return lambda x: F.softmax(x.float(), -1), (half(512, 50257),)


@model()
def cross_entropy():
    import torch
    import torch.nn.functional as F

    return F.cross_entropy, (randn(4096, 32000), torch.randint(0, 32000, (4096,), device="cuda"))


@model()
def layer_norm():
    from torch import nn

    return nn.LayerNorm(4096).to("cuda"), (randn(8192, 4096),)


@model(tolerance=3e-2)
def rms_norm():
    import torch

    def f(x, w):
        y = x.float()
        return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w

    return f, (half(8192, 4096), half(4096))


@model()
def group_norm():
    from torch import nn

    return nn.GroupNorm(8, 64).to("cuda"), (randn(16, 64, 64, 64),)


@model()
def whole_reductions():
    return lambda x: (x.mean(), x.var(), x.amax()), (randn(1 << 24),)


@model()
def column_sums():
    return lambda x: (x * x).sum(0), (randn(16384, 1024),)


@model()
def argmax():
    return lambda x: x.argmax(-1), (randn(4096, 4096),)


@model()
def cumsum():
    return lambda x: x.cumsum(-1), (randn(4096, 2048),)


@model(tolerance=5e-2)
def split_scan():
    return lambda x: x.cumsum(0), (randn(1 << 21) * 0.1,)


@model()
def index_add():
    import torch

    indices = torch.randint(0, 1000, (16384,), device="cuda")

    def f(x, i):
        return torch.zeros(1000, 256, device=x.device).index_add(0, i, x)

    return f, (randn(16384, 256), indices)


@model(tolerance=3e-2)
def rotary():
    import torch

    def f(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    return f, (half(8, 32, 2048, 128), half(2048, 128), half(2048, 128))


@model(tolerance=5e-2)
def swiglu():
    import torch.nn.functional as F

    def f(x, w, v):
        return F.silu(x @ w) * (x @ v)

    return f, (half(4096, 2048), half(2048, 4096) * 0.02, half(2048, 4096) * 0.02)


@model()
def convolution_norm():
    from torch import nn

    layers = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    return layers.to("cuda").eval(), (randn(16, 32, 64, 64),)


@model()
def pooling():
    import torch.nn.functional as F

    return lambda x: F.avg_pool2d(F.max_pool2d(x, 2).relu(), 2), (randn(32, 64, 64, 64),)


@model(tolerance=5e-2)
def plain_attention():
    import torch

    def f(q, k, v):
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1)
        return weights @ v

    return f, tuple(half(4, 16, 1024, 64) for _ in range(3))


@model(tolerance=5e-2)
def flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s + (n - m) * 0.01)

    return f, tuple(half(4, 16, 2048, 64) for _ in range(3))


@model(tolerance=5e-2)
def flex_attention_causal():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, m, n: m >= n, None, None, 2048, 2048, device="cuda")

    def f(q, k, v):
        return flex_attention(q, k, v, block_mask=mask)

    return f, tuple(half(4, 16, 2048, 64) for _ in range(3))


@model(tolerance=5e-2)
def flex_attention_backward():
    from torch.nn.attention.flex_attention import flex_attention

    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s + (n - m) * 0.01)

    return f, tuple(half(2, 8, 1024, 64, grad=True) for _ in range(3))


@model(tolerance=5e-2)
def mlp_backward():
    from torch import nn

    layers = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
    return layers.to("cuda").bfloat16(), (half(4096, 1024, grad=True),)


@model({"mode": "max-autotune-no-cudagraphs"}, tolerance=5e-2)
def matmul_template():
    import torch

    return lambda x, w, b: torch.relu(x @ w + b), (half(2048, 2048), half(2048, 2048), half(2048))


@model({"mode": "max-autotune-no-cudagraphs"}, tolerance=5e-2)
def bmm_template():
    import torch

    return lambda x, w: torch.bmm(x, w).relu(), (half(16, 512, 512), half(16, 512, 512))


@model({"mode": "reduce-overhead"})
def reduce_overhead():
    import torch.nn.functional as F

    def f(x):
        for _ in range(6):
            x = F.layer_norm(x.relu() + 1, (256,))
        return x

    return f, (randn(64, 256),)


@model({"dynamic": True})
def dynamic_shapes():
    import torch.nn.functional as F

    def f(x):
        return F.softmax(x * 2 + 1, -1), x.sum(0)

    return f, (randn(4000, 1000),)


@model(tolerance=5e-2)
def transformer_block_backward():
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True)
    return layer.to("cuda").to(torch.bfloat16), (half(8, 512, 512, grad=True),)


@model()
def dropout():
    import torch.nn.functional as F

    return lambda x: F.dropout(x.relu(), 0.5), (randn(4096, 4096),)


@model()
def kernel_of_the_user():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def scale_add(X, Y, OUT, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.store(OUT + i, tl.load(X + i, mask) * 2 + tl.load(Y + i, mask), mask)

    def f(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        scale_add[(triton.cdiv(n, 1024),)](x.relu(), y, out, n, 1024)
        return out.sin() + y

    return f, (randn(1 << 22), randn(1 << 22))


def results_of(function, arguments):
    """Return the result of a call, and the gradients of inputs that require them."""
    import torch

    wanted = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    got = function(*arguments)
    outputs = list(got) if isinstance(got, tuple | list) else [got]
    if wanted:
        outputs += torch.autograd.grad(outputs[0].float().square().mean(), wanted)
    return [each.detach() for each in outputs]


def call_us(call):
    """Microseconds of a call: the least of some rounds."""
    import torch

    def round_ms(calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls

    calls = max(3, min(200, int(CALLS_MS / max(round_ms(3), 1e-3))))
    return 1000 * min(round_ms(calls) for _ in range(ROUNDS))


def graph_us(call):
    """Microseconds of a call on the GPU alone; None where calls cannot be captured."""
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_CALLS):
                call()
    except RuntimeError:
        return None
    return call_us(graph.replay) / GRAPH_CALLS


def measure(name, folder):
    """Compile and run one model: a line of JSON, its results in a file."""
    import torch

    make, options, _ = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    function, arguments = make()
    compiled = torch.compile(function, **options)
    torch.manual_seed(1)
    torch.cuda.synchronize()
    start = time.perf_counter()
    results = [each.clone() for each in results_of(compiled, arguments)]
    torch.cuda.synchronize()
    cold_s = time.perf_counter() - start
    torch.save([each.cpu() for each in results], folder / f"{name}.pt")
    if options.get("dynamic"):
        results_of(compiled, tuple(a[: len(a) // 2 + 3] for a in arguments))
    for _ in range(3):
        results_of(compiled, arguments)
    torch.cuda.synchronize()

    def call():
        return results_of(compiled, arguments)

    # Graphs of its own cannot be captured into another.
    on_gpu = None if options.get("mode") == "reduce-overhead" else graph_us(call)
    return {"model": name, "cold_s": cold_s, "us": call_us(call), "gpu_us": on_gpu}


def interpreted(name):
    """Compile and interpret one model: a line with its distance from eager results and its time."""
    import torch

    make, options, _ = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    function, arguments = make()
    wanted = [each.cpu() for each in results_of(function, arguments)]
    start = time.process_time()
    got = [each.cpu() for each in results_of(torch.compile(function, **options), arguments)]
    seconds = time.process_time() - start
    if name == "dropout":
        kept = [(one != 0) & (other != 0) for one, other in zip(got, wanted, strict=True)]
        shares = [(one != 0).float().mean().sub(0.25).abs() for one in got]
        assert max(shares) < 0.01, f"a share of {0.25 - max(shares)} is kept, not of 0.25"
        got, wanted = ([x[k] for x, k in zip(xs, kept, strict=True)] for xs in (got, wanted))
    return {"model": name, "off": distance(got, wanted), "cpu_s": seconds}


def worker(compiler, folder):
    """Measure the models whose names come in, in this process, a line for each."""
    if compiler != "upstream":
        import tkdebug

        tkdebug.install(mode="native" if compiler == "tkdebug" else "interpret")
    import torch

    if compiler == "interpreted":
        # fp32 inside, as the eager results have it.
        torch.set_float32_matmul_precision("highest")
    else:
        torch.set_float32_matmul_precision("high")
    # Contexts, libraries and imports are no part of a model's compile time.
    torch.compile(lambda x: x + 1)(torch.ones(8, device="cuda"))
    for name in map(str.strip, sys.stdin):
        try:
            line = interpreted(name) if compiler == "interpreted" else measure(name, folder)
        except Exception as error:
            line = {"model": name, "error": f"{type(error).__name__}: {str(error)[:400]}"}
        print(json.dumps(line), flush=True)


class Worker:
    """A process that has one of the compilers, with empty caches."""

    def __init__(self, compiler, folder):
        self._compiler = compiler
        folder = folder / compiler
        folder.mkdir()
        caches = {name: str(folder / name) for name in ("inductor", "triton", "tkdebug")}
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": caches["inductor"],
            "TRITON_CACHE_DIR": caches["triton"],
            "TKDEBUG_CACHE_DIR": caches["tkdebug"],
        }
        command = [sys.executable, __file__, "--worker", compiler, str(folder)]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if compiler == "interpreted" else None,
            text=True,
        )

    def measured(self, name):
        """The line of one model; of a worker that has died, its error."""
        # Of one that has died the output ends, which is reported below.
        with contextlib.suppress(BrokenPipeError):
            print(name, file=self._process.stdin, flush=True)
        said = []
        for line in self._process.stdout:
            if line.startswith("{") and '"model"' in line:
                return {**json.loads(line), "said": said}
            said.append(line.rstrip())
        return {"model": name, "error": f"the process ended with {self._process.wait()}"}

    def close(self):
        """End it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def difference(name, folder):
    """Return how far results are from upstream's."""
    import torch

    return distance(*(torch.load(folder / c / f"{name}.pt") for c in ("tkdebug", "upstream")))


def distance(ours, theirs):
    """Return how far results are from others, relative to 1 or the value, which is larger."""
    return max(
        ((a.double() - b.double()).abs() / b.double().abs().clamp(min=1)).max().item()
        for a, b in zip(ours, theirs, strict=True)
    )


def best(turns):
    """A model's line: the first turn's, with the least times of all."""
    found = turns[0]
    for line in turns[1:]:
        for key in ("us", "gpu_us"):
            times = [each[key] for each in (found, line) if each.get(key) is not None]
            if times:
                found[key] = min(times)
    return found


def compared(name, ours, theirs, folder):
    """A model's figures: equal, speed of calls, of the GPU, cold compiles; None with an error."""
    errors = [
        f"{who}: {line.get('error', 'no result')}"
        for who, line in (("tkdebug", ours), ("upstream", theirs))
        if "us" not in line
    ]
    if errors:
        print(f"{name:28} {'; '.join(errors)}", flush=True)
        return None
    off = difference(name, folder)
    is_equal = off <= MODELS[name][2]
    gpu, speed = "", None
    calls = f"{ours['us']:8.1f} us, upstream {theirs['us']:8.1f}: {theirs['us'] / ours['us']:5.2f}x"
    if ours["gpu_us"] and theirs["gpu_us"]:
        speed = theirs["gpu_us"] / ours["gpu_us"]
        gpu = f"GPU {ours['gpu_us']:8.1f} us, upstream {theirs['gpu_us']:8.1f}: {speed:5.2f}x"
    print(
        f"{name:28} {'equal' if is_equal else 'DIFFERENT'} {off:8.1e}  {calls}  {gpu:46}"
        f"  cold {ours['cold_s']:6.2f} s, upstream {theirs['cold_s']:6.2f}",
        flush=True,
    )
    return is_equal, theirs["us"] / ours["us"], speed, ours["cold_s"], theirs["cold_s"]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def interpret(names):
    """Interpret models without a GPU, a line for each; the status is 1 where one is not equal."""
    equal = 0
    with tempfile.TemporaryDirectory() as temporary:
        worker = Worker("interpreted", Path(temporary))
        for name in names:
            line = worker.measured(name)
            reasons = [said for said in line.get("said", ()) if UNCOMPILED in said]
            if "error" in line:
                reasons.append(line["error"])
            elif not line["off"] <= MODELS[name][2]:
                reasons.append(f"off by {line['off']:.1e}")
            equal += not reasons
            outcome = f"equal {line['off']:8.1e}  {line['cpu_s']:6.1f} s of processors"
            print(f"{name:28} {'; '.join(reasons) if reasons else outcome}", flush=True)
        worker.close()
    print(f"{equal} of {len(names)} equal")
    return 0 if equal == len(names) else 1


def main(names):
    import torch

    unknown = [name for name in names if name not in MODELS]
    if unknown:
        raise SystemExit(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    names = names or list(MODELS)
    if not torch.cuda.is_available():
        return interpret(names)
    threads = os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", "as torch chooses")
    print(f"TORCHINDUCTOR_COMPILE_THREADS: {threads}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workers = [Worker(compiler, folder) for compiler in ("upstream", "tkdebug")]
        found = []
        for name in names:
            turns = [[worker.measured(name) for worker in workers] for _ in range(TURNS)]
            theirs, ours = (best(lines) for lines in zip(*turns, strict=True))
            found.append(compared(name, ours, theirs, folder))
        for worker in workers:
            worker.close()
    done = [each for each in found if each is not None]
    if done:
        equal, calls, speeds, ours_s, theirs_s = zip(*done, strict=True)
        speeds = [speed for speed in speeds if speed is not None]
        print(
            f"{sum(equal)} of {len(names)} equal; of upstream's speed, geometric means: "
            f"calls {geometric_mean(calls):.3f}, on the GPU {geometric_mean(speeds):.3f} "
            f"({len(speeds)} models); "
            f"cold compiles {sum(ours_s):.1f} s, upstream {sum(theirs_s):.1f} s"
        )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
