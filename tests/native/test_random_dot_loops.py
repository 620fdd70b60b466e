"""Random loops with dots: interpreted and native agree to the bit, whatever the compiler made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from corpus import Corpus
from random_dot_loops import PROGRAMS, written

import tkdebug

sys.path.append(str(Path(__file__).resolve().parents[1] / "interpreter"))
from differential import load_kernel

GROUPS, PER_GROUP = 24, 10


def run(kernel, loop, mode, device):
    inputs, outputs = loop.arguments()
    moved = [value.to(device) for value in (*inputs, *outputs)]
    with tkdebug.mode(mode):
        kernel[(PROGRAMS,)](
            *moved, loop.depth, loop.limit, **loop.constants, num_warps=loop.num_warps
        )
    return [value.cpu() for value in moved[len(inputs) :]]


@pytest.mark.gpu
@pytest.mark.parametrize("group", range(GROUPS))
def test_loops_agree(tmp_path, group):
    wrong = []
    for seed in range(group * PER_GROUP, (group + 1) * PER_GROUP):
        loop = written(seed)
        kernel = load_kernel(tmp_path, loop.source)
        native = run(kernel, loop, "native", "cuda")
        interpreted = run(kernel, loop, "interpret", "cpu")
        if not all(map(torch.equal, native, interpreted)):
            wrong.append(f"seed {seed}: {loop.constants}, {loop.num_warps} warps\n{loop.source}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_loops_compile_and_keep_their_meaning(tmp_path, target):
    corpus = Corpus([target], check_gpu_ir=True)
    first = 1000 if target == "sm_80" else 2000
    with corpus.collecting():
        for seed in range(first, first + 6):
            loop = written(seed)
            run(load_kernel(tmp_path, loop.source), loop, "interpret", "cpu")
    assert not corpus.failures, corpus.failures[0].detail
    assert len(corpus.rows) == 6
