"""Facts of a launch: instructions of unrolled loops, and sectors that rounds touch again."""

from types import SimpleNamespace

import advised_kernels as corpus
import pytest

from tkdebug.compiler.targets.registered_backends import backend_of, target_of
from tkdebug.linemap.code_flow import CodeLoop
from tkdebug.runtime.advising import launches
from tkdebug.runtime.advising.machine_code import _Spread

KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def window(x, out, width, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(SIDE):
        for column in range(SIDE):
            total += tl.load(x + row * width + i + column)
    tl.store(out + tl.program_id(1) * width + i, total)


def window_of(size):
    x, out = torch.ones(8 * 4096, device="cuda"), torch.empty(2 * 4096, device="cuda")
    return lambda: window[(4, 2)](x, out, 4096, SIDE=5, BLOCK=128)


CASES = {"window": window_of}
"""

pytestmark = pytest.mark.skipif(
    backend_of(target_of("sm_90a")).obstacle() is not None, reason="needs code generation"
)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "good_window.py").write_text(KERNELS)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        judge = launches.judge
        patch.setattr(corpus, "KERNELS", folder)
        patch.setattr(corpus, "GOOD", ("good_window",))
        patch.setattr(launches, "judge", lambda f, *rest: (found.append(f), judge(f, *rest))[1])
        corpus.run("good_window", "window")
    return found[0]


@pytest.mark.parametrize(("copies", "loop", "rounds"), [(7.0, "outer", 5.0), (1.0, "inner", 7.0)])
def test_code_that_has_all_rounds_of_a_loop_is_the_loop_around_it(copies, loop, rounds):
    function = SimpleNamespace(name="tt.func", id=0, block=None)
    outer = SimpleNamespace(name="scf.for", id=1, block=SimpleNamespace(parent_op=function))
    inner = SimpleNamespace(name="scf.for", id=2, block=SimpleNamespace(parent_op=outer))
    body = CodeLoop(tuple(range(40)))
    of_code = [outer] * 5 + [inner] * 35
    spread = _Spread((body,), of_code, {1: 1.0, 2: copies}, lambda loop: {1: 5.0, 2: 7.0}[loop.id])
    expected = {"outer": outer, "inner": inner}[loop]
    assert spread.of(body) == (expected, rounds)


def test_rounds_that_move_on_by_an_element_touch_sectors_of_the_round_before(facts):
    load, store = facts.accesses
    assert load.kept > 0.9
    assert store.kept == 0


def test_axes_of_the_grid_are_those_that_addresses_depend_on(facts):
    load, store = facts.accesses
    assert load.axes == {0}
    assert store.axes == {0, 1}
