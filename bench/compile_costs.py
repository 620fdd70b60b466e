"""Costs of a cold compile, bare and with native checks, step by step. Needs no GPU.

Processor time of this process and of the assemblers that it starts, so a busy machine does not
matter much; the two builds take turns, and each figure is the median of the rounds. Code
generation, which a worker does otherwise, runs in this process.

    python bench/compile_costs.py [--only matmul] [--rounds 5] [--target sm_90a] [--no-assembler]
        [--markdown bench/RESULTS.md] [--profile gpu]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from tkdebug.compat import install

install("interpret")

from kernels_native import (  # noqa: E402
    add_kernel,
    attention_kernel,
    embedding_kernel,
    gather_kernel,
    layer_norm_kernel,
    matmul_kernel,
    softmax_kernel,
)
from sections import machine, replace_section  # noqa: E402

from tkdebug.compiler.sites.checks import CheckOptions  # noqa: E402
from tkdebug.compiler.targets import target_of  # noqa: E402
from tkdebug.compiler.targets.backend import Observers  # noqa: E402
from tkdebug.compiler.targets.nvptx.architectures import ptx_versions  # noqa: E402
from tkdebug.compiler.targets.nvptx.codegen import ptx_stage  # noqa: E402
from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import LlvmStage  # noqa: E402
from tkdebug.compiler.targets.nvptx.compile import LoweredModule, lower_to_llvm  # noqa: E402
from tkdebug.compiler.targets.target import Target  # noqa: E402
from tkdebug.linemap.nvidia.ptx_locations import rewrite_locations  # noqa: E402
from tkdebug.runtime.arguments.specialize import alignment_key  # noqa: E402
from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor  # noqa: E402
from tkdebug.runtime.compile.compilation import compile_tile_ir  # noqa: E402
from tkdebug.runtime.compile.native_compilation import native_options  # noqa: E402
from tkdebug.runtime.compile.specialization import Specialization  # noqa: E402

LIMIT = 1.5
# Of a build: front end and Tile IR passes, GPU passes, LLVM IR, PTX with its places, cubin.
STEPS = ("tile", "gpu", "lower", "llvm", "assemble")


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, as it is launched.

    Attributes:
        name: of its row.
        kernel: the jit function.
        arguments: by name; a string names the element type of a tensor.
        options: of the launch.
    """

    name: str
    kernel: Any
    arguments: Mapping[str, Any]
    options: Mapping[str, int]

    @property
    def tensors(self) -> frozenset[str]:
        """The parameters that get tensors, all of which end at multiples of 16 bytes."""
        return frozenset(name for name, value in self.arguments.items() if isinstance(value, str))


def _matmul() -> Case:
    n = 4096
    tensors = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "float16")
    strides = {"stride_am": n, "stride_ak": 1, "stride_bk": n, "stride_bn": 1}
    strides |= {"stride_cm": n, "stride_cn": 1}
    blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}
    import triton.language as tl

    arguments = {**tensors, "M": n, "N": n, "K": n, **strides, "ACC": tl.float32, **blocks}
    return Case("matmul fp16", matmul_kernel.fn, arguments, {"num_warps": 8, "num_stages": 3})


def _attention(width: int, is_causal: bool) -> Case:
    names = ("q_ptr", "k_ptr", "v_ptr", "out_ptr")
    arguments = {
        **dict.fromkeys(names, "float16"),
        **{"scale": 0.5, "stride_head": 4096 * width, "stride_token": width, "n_tokens": 4096},
        **{"HEAD_DIM": width, "CAUSAL": is_causal, "BLOCK_M": 128, "BLOCK_N": 64},
    }
    name = f"attention {width}{' causal' if is_causal else ''}"
    warps = 4 if width == 64 else 8
    return Case(name, attention_kernel.fn, arguments, {"num_warps": warps, "num_stages": 3})


def _softmax(columns: int, block: int, warps: int) -> Case:
    tensors = dict.fromkeys(("x_ptr", "out_ptr"), "float32")
    numbers = {"x_stride": columns, "out_stride": columns, "n_cols": columns, "BLOCK": block}
    return Case(f"softmax {columns}", softmax_kernel, {**tensors, **numbers}, {"num_warps": warps})


def _layer_norm() -> Case:
    tensors = dict.fromkeys(("x_ptr", "out_ptr", "weight_ptr", "bias_ptr"), "float16")
    numbers = {"stride": 8192, "n_cols": 8192, "eps": 1e-5, "BLOCK": 8192}
    return Case("layer norm 8192", layer_norm_kernel, {**tensors, **numbers}, {"num_warps": 8})


def _gathers() -> tuple[Case, ...]:
    looked_up = {"tokens": "int64", "table": "float16", "out": "float16"}
    sizes = {"n_rows": 50257, "width": 768, "BLOCK": 1024}
    gathered = {"index": "int64", "table": "float32", "out": "float32", "n": 1 << 24, "BLOCK": 1024}
    return (
        Case("embedding 768", embedding_kernel, {**looked_up, **sizes}, {}),
        Case("gather", gather_kernel, gathered, {}),
    )


def _add() -> Case:
    tensors = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "float32")
    return Case("vector add", add_kernel, {**tensors, "n": 1 << 24, "BLOCK": 1024}, {})


CASES = (
    _add(),
    _softmax(781, 1024, 4),
    _softmax(4096, 4096, 8),
    _layer_norm(),
    _matmul(),
    _attention(64, False),
    _attention(64, True),
    _attention(128, False),
    _attention(128, True),
    *_gathers(),
)


def specialization(case: Case, target: str) -> Specialization:
    """Return the target that a launch on that GPU compiles for."""
    values = {
        name: MockTensor(getattr(torch, value)) if isinstance(value, str) else value
        for name, value in case.arguments.items()
    }
    src = case.kernel.warmup(**values, grid=(1,), **case.options).src
    alignment = alignment_key(case.kernel.params, list(values.values()))
    return replace(src, alignment=alignment, options=replace(src.options, arch=target))


def processor_ns() -> int:
    """Return the processor time of this process, and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + int(1e9 * (children.ru_utime + children.ru_stime))


class Compiler:
    """Compiles, and keeps what each step takes of the processor.

    Args:
        target: the architecture.
        is_assembled: whether a cubin is made.
        profiled: the step that is profiled, "" for none.
    """

    def __init__(self, target: Target, is_assembled: bool, profiled: str = "") -> None:
        self.target = target
        self._is_assembled = is_assembled
        self._llvm = LlvmStage()
        self._profiled = profiled
        self.profile = cProfile.Profile()

    def times_ms(self, src: Specialization) -> dict[str, float]:
        """Return the times of one compile, by step."""
        begun, step, times = processor_ns(), STEPS[0], dict.fromkeys(STEPS, 0.0)

        def begin(next_step: str) -> None:
            nonlocal begun, step
            self.profile.disable()
            times[step] += (processor_ns() - begun) / 1e6
            step = next_step
            if step == self._profiled:
                self.profile.enable()
            begun = processor_ns()

        begin("tile")
        module = compile_tile_ir(src).module
        begin("gpu")
        options, target = native_options(src), self.target
        # This is asked when all passes are done.
        lowered = lower_to_llvm(
            module, options, target, Observers(on_resources=lambda *_: begin("lower"))
        )
        begin("llvm")
        ptx = self._ptx(lowered)
        begin("assemble")
        if self._is_assembled:
            arguments = [f"-arch={target.name}", "-lineinfo", "-O3", "-verbose", "-no-cache"]
            ptx_stage.assemble(
                ptx.encode(),
                lowered.symbol,
                arguments,
                600.0,
                lowered.shared_bytes,
                is_checked=lowered.is_checked,
            )
        begin("")
        return times

    def _ptx(self, lowered: LoweredModule) -> str:
        least, wanted = ptx_versions(self.target)
        version = ptx_stage.newest_ptx(wanted, least, self.target.name)
        name = self.target.name
        ptx, _ = self._llvm.emit_ptx(lowered.llvm_ir, name, version, lambda stage: None)
        places = {op.id: op.location.frames for op in lowered.module.walk()}
        return rewrite_locations(ptx, places, lowered.module.function.location.frames)[0]


def measure(case: Case, compiler: Compiler, rounds: int) -> dict[str, dict[str, float]]:
    """Medians by build and step."""
    bare = specialization(case, compiler.target.name)
    builds = {
        "bare": bare,
        "checked": replace(bare, checks=CheckOptions(aligned_ends=frozenset(case.tensors))),
    }
    kept: dict[str, list[dict[str, float]]] = {name: [] for name in builds}
    for _ in range(rounds):
        for name, src in builds.items():
            kept[name].append(compiler.times_ms(src))
    return {
        name: {step: statistics.median(times[step] for times in all_times) for step in STEPS}
        for name, all_times in kept.items()
    }


def row(name: str, times: Mapping[str, Mapping[str, float]]) -> str:
    """A line of the table."""
    bare, checked = (sum(times[build].values()) for build in ("bare", "checked"))
    steps = (f"{times['bare'][step]:.0f} / {times['checked'][step]:.0f}" for step in STEPS)
    verdict = "pass" if checked <= LIMIT * bare else "miss"
    cells = (name, *steps, f"{bare:.0f} / {checked:.0f}", f"{checked / bare:.2f}x", verdict)
    return f"| {' | '.join(cells)} |"


HEAD = """# Costs of compiling

Written by `python bench/compile_costs.py --markdown bench/RESULTS.md`: processor time of cold
compiles for {target} in ms, bare / with native checks, assemblers included; medians of {rounds}
rounds in turn. The step `tile` is the front end and passes of Tile IR, `gpu` the passes of
GPU IR, `lower` LLVM IR as text, `llvm` PTX, and `assemble` the cubin. Target: at most {limit}x.

- date: {date}
- machine: {machine}

| kernel | {steps} | sum | ratio |  |
| --- | {rules} | ---: | ---: | ---: |
"""


def main() -> None:
    """Measure all rows, print them, and put them into a file if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="parts of names, by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--no-assembler", action="store_true")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--profile", choices=STEPS, default="", help="print where a step spends")
    arguments = parser.parse_args()
    target = target_of(arguments.target)
    compiler = Compiler(target, not arguments.no_assembler, arguments.profile)
    lines = []
    for case in CASES:
        if any(part in case.name for part in arguments.only.split(",")):
            lines.append(row(case.name, measure(case, compiler, arguments.rounds)))
            print(lines[-1], flush=True)
    if arguments.profile:
        pstats.Stats(compiler.profile).sort_stats("tottime").print_stats(40)
    if arguments.markdown is not None:
        head = HEAD.format(
            target=target,
            rounds=arguments.rounds,
            limit=LIMIT,
            date=datetime.now(timezone.utc).date(),
            machine=machine(),
            steps=" | ".join(STEPS),
            rules=" | ".join("---:" for _ in STEPS),
        )
        replace_section(arguments.markdown, head + "\n".join(lines))


if __name__ == "__main__":
    main()
