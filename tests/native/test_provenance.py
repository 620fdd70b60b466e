"""A pass that loses a line or an op fails the corpus, wherever in the pipeline it stands."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import pytest
import torch
from corpus import Corpus

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.nvptx import pipeline as nvptx_pipeline

FIRST, LAST = 0, 99


@tkdebug.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x * 2.0, mask=offs < n)


def op_named(module: Module, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


@dataclass(frozen=True)
class DropLocation:
    """Says that the loads of a kernel come from where it begins."""

    name: str = "drop-location"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for op in module.walk():
            if op.location.primary.line == op_named(module, "tt.load").location.primary.line:
                op.location = module.function.location


@dataclass(frozen=True)
class EraseSilently:
    """Takes an unused op out of its block by itself."""

    name: str = "erase-silently"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        mul = op_named(module, "arith.mulf")
        mul.result.replace_all_uses_with(mul.operands[0])
        mul.erase()


@dataclass(frozen=True)
class BuildSilently:
    """Builds an op in another's stead and records nothing."""

    name: str = "build-silently"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        mul = op_named(module, "arith.mulf")
        new = rewriter.build_before(
            mul, mul.name, mul.operands, [mul.result.type], mul.attributes, location=mul.location
        )
        mul.result.replace_all_uses_with(new.result)


def rows(*planted: object, at: int = LAST) -> list[str]:
    """Return the failures, by cause, of a kernel compiled with a pass planted in the pipeline."""
    real = nvptx_pipeline.gpu_pipeline

    def pipeline(*arguments, **options):
        passes = real(*arguments, **options)
        return (*passes[:at], *planted, *passes[at:])

    corpus = Corpus(["sm_90a"])
    x, out = torch.ones(128), torch.zeros(128)
    with mock.patch.object(nvptx_pipeline, "gpu_pipeline", pipeline), corpus.collecting():
        scaled[(1,)](x, out, 100, BLOCK=128)
    assert len(corpus.rows) == 1
    return [row.cause + row.detail for row in corpus.failures]


def test_corpus_holds_every_pass_to_its_provenance() -> None:
    assert rows() == []


@pytest.mark.parametrize("at", [FIRST, LAST])
@pytest.mark.parametrize(
    ("planted", "message"),
    [
        (DropLocation(), "pass drop-location lost this source line"),
        (EraseSilently(), "pass erase-silently"),
        (BuildSilently(), "pass build-silently changed ops without a record"),
    ],
)
def test_planted_pass_that_loses_its_way_fails_the_corpus(planted, message, at) -> None:
    (failure,) = rows(planted, at=at)
    assert message in failure
