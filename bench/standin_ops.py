# ruff: noqa: SLF001 (torch names what its dispatcher has in no other way)
"""Operators on the CUDA device that machines without a GPU have, compared with the CPU.

    python bench/standin_ops.py                       # 1,000 cases, drawn by a seed
    python bench/standin_ops.py --cases 200 --seed 7 --report ops.json
    python bench/standin_ops.py --only nn.functional  # operators whose names contain this

A case is an operator of `torch.testing`'s table, a type that it supports on CUDA, one of its sample
inputs, and a way to call it: as a function, as a method in place, with `out=`, with strided inputs,
or its gradients. The reference is the same call with CPU tensors; halves have two: computed in
fp32, and, as a GPU does, each operator of it in fp32 and rounded. A result that is NaN on the CPU
alone has none. Cases run in processes of their own, so that one that crashes is a line of the
report. Needs `expecttest`, which torch's table imports.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

WAYS = ("function",) * 4 + ("gradient",) * 3 + ("strided",) * 2 + ("in place", "out")
MOST_SAMPLES, LIMIT_S = 40, 120
# Outcomes. Refused: an error that says that there is no such kernel.
EQUAL, WRONG, REFUSED, FAILED, CRASHED = "equal", "wrong", "refused", "failed", "crashed"
NO_REFERENCE = "no reference"
REFUSALS = ("not implemented", "could not run", "no kernel", "is not supported", "unsupported")


def drawn(seed, only):
    """Yield cases without end: an index, an operator of the table, a type, a way, a number."""
    from torch.testing._internal.common_methods_invocations import op_db

    operators = [op for op in op_db if only in op.name]
    chance = random.Random(seed)
    for index in itertools.count():
        op = chance.choice(operators)
        types = sorted(op.supported_dtypes("cuda"), key=str)
        yield index, op, chance.choice(types) if types else None, chance.choice(WAYS), chance


def outcome(op, dtype, way, chance):
    """Run a case: an outcome, and what to say of it."""
    import torch
    from torch.utils._pytree import tree_map

    draw = chance.random()
    if dtype is None or not applies(op, dtype, way):
        return NO_REFERENCE, "way"
    try:
        torch.manual_seed(0)
        samples = op.sample_inputs("cpu", dtype, requires_grad=way == "gradient")
        samples = list(itertools.islice(samples, MOST_SAMPLES))
        sample = samples[int(draw * len(samples))]
        sample = sample.noncontiguous() if way == "strided" else sample
        cuda = sample.transform(on_cuda)
        # The transformation passes over devices.
        cuda.args, cuda.kwargs = tree_map(on_cuda, (cuda.args, cuda.kwargs))
        wanted = result(op, reference_of(sample, dtype, way), way)
    except Exception as error:
        return NO_REFERENCE, first_line(error)
    try:
        got = result(op, cuda, way)
    except Exception as error:
        text = first_line(error)
        if "to be on cpu, but it's on cuda" in text:
            return NO_REFERENCE, text
        refused = isinstance(error, NotImplementedError) or any(
            word in text.lower() for word in REFUSALS
        )
        return (REFUSED if refused else FAILED), f"{type(error).__name__}: {text}"
    # A GPU has its own random numbers.
    repeat = reference_of(sample, dtype, way)
    seen, again = with_random_operators(lambda: result(op, repeat, way))
    try:
        compare(got, wanted, again, dtype, "empty" in op.name or bool(seen))
    except AssertionError as error:
        said = first_line(error)
    else:
        return EQUAL, ""
    if all(map(is_nan, wanted)) and not any(map(is_nan, got)):
        return NO_REFERENCE, "NaN on the CPU alone"
    if dtype in (torch.float16, torch.bfloat16, torch.complex32):
        with contextlib.suppress(AssertionError):
            with each_in_fp32():
                stepwise = result(op, sample.transform(copied), way)
            compare(got, stepwise, stepwise, dtype, False)
            return EQUAL, ""
    return WRONG, said


def is_nan(value):
    """Whether a tensor has nothing but NaNs."""
    import torch

    return isinstance(value, torch.Tensor) and bool(value.numel() and value.isnan().all())


def each_in_fp32():
    """Return a mode in which operators of the CPU take halves as fp32, and round their results."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map

    wide_types = {torch.complex32: torch.complex64}
    wide_types |= dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    keys, within = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), []

    def widened(value):
        if isinstance(value, torch.dtype):
            return wide_types.get(value, value)
        is_half = isinstance(value, torch.Tensor) and value.dtype in wide_types
        return copied(value, dtype=wide_types[value.dtype]) if is_half else value

    class EachInFp32(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            returns = func._schema.returns
            is_composite = has_kernel(func.name(), "CompositeExplicitAutograd")
            if is_composite and not has_kernel(func.name(), "CPU") and func not in within:
                within.append(func)
                try:
                    with self:
                        return func.redispatch(keys, *args, **kwargs)
                finally:
                    within.pop()
            if func._schema.is_mutable or any(each.alias_info for each in returns):
                return func(*args, **kwargs)
            plain = tree_leaves(func(*args, **kwargs))
            wide = tree_leaves(func(*tree_map(widened, args), **tree_map(widened, kwargs)))
            made = [
                one.to(other.dtype) if isinstance(one, torch.Tensor) else one
                for one, other in zip(wide, plain, strict=True)
            ]
            return made[0] if len(returns) == 1 and len(made) == 1 else tuple(made)

    return EachInFp32()


def with_random_operators(run):
    """Return the operators in a run that draw random numbers, and what it returns."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    drew = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if torch.Tag.nondeterministic_seeded in func.tags:
                drew.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        result = run()
    return drew, result


def applies(op, dtype, way):
    """Whether the operator has this way to be called."""
    if way == "gradient":
        return op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
    if way == "in place":
        return op.inplace_variant is not None
    return way != "out" or op.supports_out


def on_cuda(value):
    """Return a sample's value for the CUDA device."""
    import torch

    if isinstance(value, torch.Tensor):
        return copied(value, "cuda")
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device("cuda")
    return value


def copied(value, device="cpu", dtype=None):
    """Return a copy of a tensor, with the memory around it; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    options = {"device": device, "dtype": dtype or value.dtype, "copy": True}
    if value.layout is not torch.strided or not value.numel():
        return value.detach().to(**options).requires_grad_(value.requires_grad)
    with torch.no_grad():
        length = value.untyped_storage().nbytes() // value.element_size()
        whole = value.detach().as_strided((length,), (1,), 0).to(**options)
        again = whole.as_strided(value.shape, value.stride(), value.storage_offset())
    return again.detach().requires_grad_(value.requires_grad)


def reference_of(sample, dtype, way):
    """Return a copy of a sample; halves in fp32, where what is returned has the operands' type."""
    import torch

    halves = dtype in (torch.float16, torch.bfloat16) and way not in ("in place", "out")

    def wide(value):
        if not isinstance(value, torch.Tensor):
            return torch.float32 if halves and value is dtype else value
        return copied(value, dtype=torch.float32 if halves and value.dtype is dtype else None)

    return sample.transform(wide)


def result(op, sample, way):
    """Return all tensors that a call returns, or its gradients."""
    import torch
    from torch.utils._pytree import tree_leaves

    torch.manual_seed(0)
    function = op.inplace_variant if way == "in place" else op
    keywords = dict(sample.kwargs)
    if way == "out":
        made = op(sample.input, *sample.args, **keywords)
        if not isinstance(made, torch.Tensor):
            raise TypeError("several results")
        keywords["out"] = torch.empty_like(made)
    first = sample.input
    if way == "in place":
        first = first.detach().clone(memory_format=torch.preserve_format)
    returned = function(first, *sample.args, **keywords)
    leaves = [x for x in tree_leaves(returned) if not isinstance(x, str)]
    if way != "gradient":
        return leaves
    outputs = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    inputs = [
        x
        for x in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    if not outputs or not inputs:
        raise TypeError("no gradients")
    sums = [(x.abs() if x.is_complex() else x).to_dense().sum() for x in outputs]
    return list(torch.autograd.grad(sums, inputs, allow_unused=True))


def compare(got, wanted, again, dtype, random_too):
    """Raise AssertionError where results differ in kind, device or value."""
    import torch

    assert len(got) == len(wanted), f"{len(got)} results, not {len(wanted)}"
    halves = dtype in (torch.float16, torch.bfloat16)
    for mine, other, repeated in zip(got, wanted, again, strict=True):
        if not isinstance(other, torch.Tensor):
            assert random_too or mine == other or (mine != mine and other != other), (
                f"{mine}, not {other}"
            )
            continue
        assert mine.is_cuda or other.is_cuda, f"a result on {mine.device}"
        assert mine.layout == other.layout, f"{mine.layout}, not {other.layout}"
        assert mine.shape == other.shape, f"shape {mine.shape}, not {other.shape}"
        if halves and other.dtype in (torch.float32, torch.complex64):
            other, repeated = other.to(mine.dtype), repeated.to(mine.dtype)
        assert mine.dtype == other.dtype, f"{mine.dtype}, not {other.dtype}"
        if random_too:
            continue
        rtol, atol = tolerance(mine.dtype)
        if mine.element_size() == 1:
            mine, other, repeated = (x.to(torch.float32) for x in (mine, other, repeated))
        mine, other, repeated = (dense(x) for x in (mine.cpu(), other.cpu(), repeated.cpu()))
        if close(other, repeated, 0, 0) is None:
            said = close(mine, other, rtol, atol)
            assert said is None, said


def close(mine, other, rtol, atol):
    """Return how two tensors differ, or None where they do not."""
    import torch

    try:
        torch.testing.assert_close(mine, other, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return first_line(error)
    return None


def dense(tensor):
    """Return a detached, strided tensor of the same values, of a type that can be compared."""
    import torch

    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def tolerance(dtype):
    """Return the relative and the absolute tolerance for results of a type."""
    import torch

    known = {torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2)}
    known |= {torch.complex32: known[torch.float16]}
    if dtype in known:
        return known[dtype]
    return (1e-4, 1e-4) if dtype.is_floating_point or dtype.is_complex else (0, 0)


def first_line(error):
    """Return the first line of an error's text."""
    return " / ".join(line for line in str(error).strip().splitlines()[:4] if line)[:300]


def work(arguments):
    """Run cases from `--first` on, and print a line for each before and after it."""
    import warnings

    import torch

    from tkdebug.compat import cuda_standin

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cases = itertools.islice(
        drawn(arguments.seed, arguments.only), arguments.first, arguments.first + 4000
    )
    with cuda_standin.install():
        for index, op, dtype, way, _ in cases:
            signal.alarm(LIMIT_S)
            chance = random.Random(f"{arguments.seed} {index}")
            case = {"index": index, "op": op.formatted_name, "dtype": str(dtype), "way": way}
            print(json.dumps({**case, "outcome": CRASHED, "said": ""}), flush=True)
            kind, said = outcome(op, dtype, way, chance)
            print(json.dumps({**case, "outcome": kind, "said": said}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="operators named like this")
    parser.add_argument("--report", type=Path, metavar="FILE", help="all cases, as JSON")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first is not None:
        return work(arguments)
    started = time.monotonic()
    done = run(arguments)
    if arguments.report:
        arguments.report.write_text(json.dumps(done, indent=1), "utf-8")
    for kind in (WRONG, CRASHED, FAILED, REFUSED):
        for case in (case for case in done if case["outcome"] == kind):
            print(f"{kind}: {case['op']} {case['dtype']} {case['way']}: {case['said']}")
    counts = collections.Counter(case["outcome"] for case in done)
    print(f"{len(done)} cases in {time.monotonic() - started:.0f} s:", dict(counts))
    return 1 if counts[WRONG] or counts[CRASHED] or counts[FAILED] else 0


def run(arguments):
    """Run cases until enough have a reference: a record of each."""
    done, first = [], 0
    while len(done) < arguments.cases:
        last = None
        options = ["--seed", str(arguments.seed), "--only", arguments.only, "--first", str(first)]
        with subprocess.Popen(
            [sys.executable, __file__, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        ) as worker:
            for line in worker.stdout:
                with contextlib.suppress(json.JSONDecodeError):
                    case = json.loads(line)
                    if (
                        last is not None
                        and last["outcome"] == CRASHED
                        and case["outcome"] != CRASHED
                    ):
                        last = None
                        if case["outcome"] != NO_REFERENCE:
                            done.append(case)
                    else:
                        last = case
                    first = case["index"] + 1
                if len(done) >= arguments.cases:
                    worker.kill()
                    return done
        if last is None:
            raise SystemExit(f"the worker ended with status {worker.returncode} at case {first}")
        done.append({**last, "said": f"status {worker.returncode}"})
    return done


if __name__ == "__main__":
    sys.exit(main())
