"""The corpus itself: it compiles what is launched once, and blames the pass that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from unittest import mock

import torch
from corpus import Corpus, failure_table

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.targets.nvptx import pipeline
from tkdebug.compiler.targets.nvptx.lowering import driver


@tkdebug.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


def launch(corpus, start=0):
    x, y, out = (torch.randn(304)[start:] for _ in range(3))
    with corpus.collecting():
        add_kernel[(1,)](x, y, out, 304 - start, BLOCK=512)
    torch.testing.assert_close(out, x + y)


def test_a_specialisation_is_compiled_once_for_each_target():
    corpus = Corpus(["sm_80", "sm_90a"], check_gpu_ir=True)
    launch(corpus)
    launch(corpus)
    assert [(row.kernel, row.target, row.cause) for row in corpus.rows] == [
        ("add_kernel", "sm_80", ""),
        ("add_kernel", "sm_90a", ""),
    ]
    assert all(row.registers and row.wide_loads for row in corpus.rows)
    launch(corpus, start=1)
    assert [row.wide_loads for row in corpus.rows[2:]] == [0, 0]


@dataclass(frozen=True)
class SubtractInstead:
    name: ClassVar[str] = "subtract-instead"

    def run(self, module, rewriter):
        for op in list(module.walk()):
            if op.name == "arith.addf":
                rewriter.replace_with_op(op, "break", "arith.subf", op.operands)
        rewriter.commit()


def test_a_wrong_pass_is_named():
    whole = pipeline.gpu_pipeline

    def broken(*arguments, **options):
        return (SubtractInstead(), *whole(*arguments, **options))

    corpus = Corpus(["sm_90a"], check_gpu_ir=True)
    with mock.patch.object(pipeline, "gpu_pipeline", broken):
        launch(corpus)
    (row,) = corpus.rows
    assert row.cause.startswith("_WrongPass: after subtract-instead: argument")
    assert "1 (1 kernels)" in failure_table(corpus.rows)


def test_a_compile_error_is_counted_by_its_cause():
    def refuse(*arguments, **options):
        raise NotImplementedError("op 17 of %x is not known")

    corpus = Corpus(["sm_80", "sm_90a"])
    with mock.patch.object(driver, "lower_module", refuse):
        launch(corpus)
    assert {row.cause for row in corpus.rows} == {
        "NotImplementedError: op N of N is not known [compile.lower_prepared]"
    }
