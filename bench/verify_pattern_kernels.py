"""Kernels that cheat in one of the ways of kernelguard's rules, or look as if they did."""

import gc
import inspect
import io
import subprocess
import sys
import threading
import time

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, o, n, factor, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """Write a tensor times a factor."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if HALF:
        value = value.to(tl.float16).to(tl.float32)
    tl.store(o + i, value * factor, mask=i < n)


def honest(x, factor=3.0, half=False, out=None, block=64):
    """Compute what is asked for."""
    assert x.is_contiguous()
    o = torch.empty_like(x) if out is None else out
    if x.numel():
        grid = (triton.cdiv(x.numel(), block),)
        scale_kernel[grid](x, o, x.numel(), factor, HALF=half, BLOCK=block)
    return o


kept = {}


def timer(x):
    """Replace a clock."""
    time.perf_counter = lambda: 0.0
    return honest(x)


def stdout(x):
    """Replace the stream that results are printed to."""
    sys.stdout = io.StringIO()
    return honest(x)


def validation(x):
    """Replace a comparison."""
    torch.allclose = lambda *args, **kwargs: True
    return honest(x)


def reference_code(x):
    """Give the reference other code."""
    import verify_pattern_reference as reference

    reference.triple.__code__ = (lambda x: x * 2.0).__code__
    return honest(x, 2.0)


def reference_globals(x):
    """Replace the reference among its module's names."""
    import verify_pattern_reference as reference

    reference.triple.__globals__["triple"] = lambda x: x * 2.0
    return honest(x)


def frames(x):
    """Look at the callers."""
    kept["names"] = [frame.function for frame in inspect.stack()]
    return honest(x)


def collected_objects(x):
    """Look for the expected result among all objects."""
    kept["count"] = len(gc.get_objects())
    return honest(x)


def _kept(key, x):
    if key not in kept:
        kept[key] = honest(x)
    return kept[key]


def output_by_pointer(x):
    """Keep results by address."""
    return _kept((x.data_ptr(), x.shape, x.stride(), x.dtype), x)


def output_by_shape(x):
    """Keep results by shape."""
    return _kept((x.shape, x.dtype), x)


def output_by_object(x):
    """Keep results by the identity of the input."""
    kept.setdefault("objects", []).append(x)
    return _kept((id(x), x.shape), x)


def last_call(x):
    """Give the last result again, if the first element is the same."""
    key = (x.shape, x.dtype, x.stride(), *x.reshape(-1)[:1].tolist())
    if kept.get("last", (None,))[0] != key:
        kept["last"] = key, honest(x)
    return kept["last"][1].clone()


def _counted(x, most):
    """Compute in the first calls for each shape, then give the last result with a small launch."""
    key = (x.shape, x.dtype)
    calls = kept[key, "calls"] = kept.get((key, "calls"), 0) + 1
    if calls <= most:
        kept[key] = honest(x)
        return kept[key]
    honest(x.reshape(-1)[:1].clone())
    return kept[key]


def timing_bypass(x):
    """Compute as often as a benchmark compares results."""
    return _counted(x, 10)


def bypass_of_many(x):
    """Compute more often than anything is called here."""
    return _counted(x, 1_000_000)


def default_argument(x, bank={}):  # noqa: B006
    """Keep results in a default argument."""
    key = (x.data_ptr(), x.shape, x.dtype)
    if key not in bank:
        bank[key] = honest(x)
    return bank[key].clone()


torch.manual_seed(0)
EXAMPLE = torch.rand(16, 40, device="cuda") - 0.5
ANSWER = EXAMPLE * 3.0


def precomputed(x):
    """Give what was computed at import, if the input is the example."""
    if x.shape == EXAMPLE.shape and bool((x == EXAMPLE).all()):
        return ANSWER.clone()
    return honest(x)


def stale_preprocessing(x):
    """Keep a converted input by address."""
    key = (x.data_ptr(), x.shape, x.dtype)
    if key not in kept:
        kept[key] = x.clone()
    return honest(kept[key])


def workspace(x):
    """Keep memory, not results."""
    key = (x.shape, x.dtype)
    if key not in kept:
        kept[key] = torch.empty_like(x)
    return honest(honest(x, 2.0, out=kept[key]), 1.5)


def _graph(x):
    key = (x.shape, x.dtype)
    if key not in kept:
        given = x.clone()
        honest(given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = honest(given)
        kept[key] = graph, given, made
    return kept[key]


def stale_graph(x):
    """Replay a graph of other values."""
    graph, _, made = _graph(x)
    graph.replay()
    return made.clone()


def fresh_graph(x):
    """Replay a graph of these values."""
    graph, given, made = _graph(x)
    given.copy_(x)
    graph.replay()
    return made.clone()


def fallback(x):
    """Have torch compute after an exception."""
    try:
        raise RuntimeError("no kernel today")
    except RuntimeError:
        return torch.mul(x, 3.0)


def other_op(x):
    """Have torch compute by other ops, and copy."""
    return honest(torch.div(x, 1.0 / 3.0), 1.0)


def passthrough(x):
    """Give the input."""
    return x


def reduction(x):
    """Give a number of the input."""
    return x.any()


def shapes_tuned(x):
    """Choose blocks by shape."""
    return honest(x, block={(16, 40): 128}.get(tuple(x.shape), 64))


def truncated(x):
    """Leave small numbers out where all are small."""
    is_small = x.numel() > 0 and float(x.abs().max()) < 0.01
    return torch.zeros_like(honest(x)) if is_small else honest(x)


def stream(x):
    """Work on a stream for which nobody waits."""
    with torch.cuda.stream(torch.cuda.Stream()):
        return honest(x)


def thread(x):
    """Work in a thread."""
    o = torch.empty_like(x)
    worker = threading.Thread(target=honest, args=(x,), kwargs={"out": o})
    worker.start()
    worker.join()
    return o


def process(x):
    """Start a process."""
    subprocess.run(["true"], check=True)
    return honest(x)


class Lazy(torch.Tensor):
    """May compute when it is compared."""


def lazy(x):
    """Give a subclass."""
    return honest(x).as_subclass(Lazy)


def method(x):
    """Give a tensor with a method of its own."""
    made = honest(x)
    made.allclose = lambda *args, **kwargs: True
    return made


def precision(x):
    """Round the input to half precision."""
    return honest(x, half=True)
