"""Kernels that people reported: the first remark, at sizes of a test and at real ones."""

import advised_kernels as corpus
import pytest

from tkdebug.compiler.targets.registered_backends import backend_of, target_of

# One of each cause that only such kernels have; `--slow` runs the others, and all at a real size.
SOME = (
    *("pages", "decays", "norms_by_parts", "rotations", "grams", "upcasts"),
    *("outer_products", "first_of_eight", "tile_product", "windowed"),
)
PUBLISHED = ("low_ranks", "cumulatives")
GOOD = (
    *("gelu", "bias_of_heads", "wide_attention", "log_softmax", "rope", "store_kv", "lookups"),
    *("layer_norm_grad", "matmul", "attention"),
)
SMALL, REAL = 256, 4096

pytestmark = pytest.mark.skipif(
    backend_of(target_of("sm_90a")).obstacle() is not None, reason="needs code generation"
)


def runs(files, quick):
    """A parameter for each case of files at both sizes, slow ones marked."""
    for file in files:
        for case in corpus.cases(file):
            for size in (SMALL, REAL):
                if size == SMALL and case in corpus.ONLY_REAL:
                    continue
                marks = () if size == SMALL and case in quick else pytest.mark.slow
                yield pytest.param(file, case, size, marks=marks, id=f"{case}-{size}")


def published():
    """A parameter for each case at a real size, which is slow, and for some at a small one."""
    for file in corpus.PUBLISHED:
        for case in sorted(set(corpus.cases(file)) - set(MISSED)):
            yield pytest.param(file, case, REAL, marks=pytest.mark.slow, id=f"{case}-{REAL}")
            if case in PUBLISHED:
                yield pytest.param(file, case, SMALL, id=f"{case}-{SMALL}")


@pytest.mark.parametrize(("file", "case", "size"), [*runs(corpus.STORIES, SOME)])
def test_what_was_reported_ranks_first_at_its_line(file, case, size):
    told = corpus.run(file, case, size)
    line, kind = corpus.planted_at(file, told.cost.kernel)
    found = [(remark.kind, remark.line) for remark in told.remarks]
    assert found[:1] == [(kind, line)]


# Of two the model says something else: loads of shifted rows are split, and programs are short.
MISSED = ("filtered", "cached")


@pytest.mark.parametrize(("file", "case", "size"), [*published()])
def test_what_was_published_ranks_first(file, case, size):
    told = corpus.run(file, case, size)
    found = [(remark.line, remark.kind) for remark in told.remarks]
    assert set(found[:1]) & corpus.planted_in(file, told.cost.kernel)


@pytest.mark.parametrize("case", corpus.cases(corpus.SMALL_STORIES))
def test_few_programs_and_rounds_show_it_too(case):
    told = corpus.run(corpus.SMALL_STORIES, case, SMALL)
    line, kind = corpus.planted_at(corpus.SMALL_STORIES, told.cost.kernel)
    assert [(remark.kind, remark.line) for remark in told.remarks][:1] == [(kind, line)]


@pytest.mark.parametrize(
    ("file", "case", "size"), [*runs(("good_stories", "good_published"), GOOD)]
)
def test_nothing_is_said_of_kernels_as_libraries_have_them(file, case, size):
    assert corpus.run(file, case, size).remarks == ()


def test_the_same_place_of_another_tensor_is_no_load_again_and_128_programs_no_small_grid():
    told = corpus.run(corpus.SMALL_STORIES, "addressed", SMALL)
    kinds = [remark.kind for remark in told.remarks]
    assert "redundant-load" not in kinds
    assert kinds[0] == "dependent-loads"
    assert "small-grid" in kinds


def test_no_larger_tile_is_advised_for_a_product_of_16_rows():
    told = corpus.run(corpus.SMALL_STORIES, "steps", SMALL)
    assert [remark.kind for remark in told.remarks] == ["small-grid"]
