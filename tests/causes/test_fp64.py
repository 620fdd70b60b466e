"""Kernels in fp64, whole and but for one line."""

import mismatched_kernels as kernels
import pytest
import torch
from marked_lines import line_of

from tkdebug.causes.fp64 import NotLiftableError, lift, rounding_lines, shortest_decimal
from tkdebug.causes.launches import RememberedLaunches
from tkdebug.causes.rerun import Budget, Rerun
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS


@pytest.fixture
def rerun_of():
    launches = HOOKS.follower = RememberedLaunches()

    def rerun(out):
        return Rerun([next(launches.newest_first())], out, Budget(60))

    with scope(mode="interpret"):
        yield rerun
    HOOKS.follower = None


def test_a_kernel_gives_what_fp64_gives(rerun_of):
    x, y = torch.randn(5, 100), torch.empty(5, 100)
    kernels.right_softmax[(5,)](x, y, 100, BLOCK=128)
    exact = rerun_of(y).run_in_fp64()
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, torch.softmax(x.double(), 1), rtol=1e-14, atol=0)
    assert y.dtype == torch.float32


def test_one_line_alone_rounds(rerun_of):
    x, out = torch.ones(64), torch.empty(64)
    x[:32] = 1e8
    kernels.suffix_sums[(1,)](x, out, N=64)
    rerun = rerun_of(out)
    want = x.double().flip(0).cumsum(0).flip(0)
    assert torch.equal(rerun.run_in_fp64(), want)
    places = rounding_lines(rerun.launches[0].kernel.module)
    lossy = (kernels.__file__, line_of(kernels, "WRONG precision"))
    assert lossy in places
    wrong = [place for place in places if not torch.allclose(rerun.run_in_fp64(place), want)]
    assert wrong == [lossy]


@pytest.mark.parametrize(("value", "short"), [(0.1, 0.1), (1.0, 1.0), (2.5e-7, 2.5e-7)])
def test_constants_are_as_they_were_written(value, short):
    rounded = torch.tensor(value, dtype=torch.float32).item()
    assert shortest_decimal(rounded) == short


def test_a_kernel_that_looks_at_bits_is_refused():
    import tkdebug
    import tkdebug.language as tl
    from tkdebug.runtime.compile.compilation import compile_with_sources

    @tkdebug.jit
    def bits(x_ptr, o_ptr):
        tl.store(o_ptr, tl.load(x_ptr).to(tl.int32, bitcast=True))

    with scope(mode="interpret"):
        out = torch.zeros(1, dtype=torch.int32)
        kernel = bits[(1,)](torch.ones(1), out)
    with pytest.raises(NotLiftableError, match="looks at the bits of floats"):
        lift(compile_with_sources(kernel.src, {}))
