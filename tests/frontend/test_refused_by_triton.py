"""Kernels that Triton refuses and tkdebug runs, with a warning at the line."""

from __future__ import annotations

import warnings

import pytest
import torch

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def in_a_loop(p, s, n):
    for i in range(n):
        tl.store(p + i, s)
        s = n


@tkdebug.jit
def in_a_while(p, s, n):
    while s < n:
        tl.store(p + s, s)
        s *= 2


@tkdebug.jit
def in_a_branch(p, s, n):
    if n > 3:
        s = n
    tl.store(p, s)


@tkdebug.jit
def in_a_branch_that_returns(p, s, n):
    if n > 3:
        s += n
        tl.store(p, s)
        return
    tl.store(p, 0)


@tkdebug.jit
def in_a_nested_loop(p, s, n):
    for i in range(n):
        for _ in range(i):
            s += i
    tl.store(p, s)


@tkdebug.jit
def add_up(s, n):
    for i in range(n):
        s += i
    return s


@tkdebug.jit
def in_a_called_function(p, s, n):
    tl.store(p, add_up(s, n))


@tkdebug.jit
def of_a_literal(p, s, n):
    tl.store(p, add_up(0, n) + s)


@tkdebug.jit
def a_declared_constant(p, s: tl.constexpr, n):
    for i in range(n):
        s += i
    tl.store(p, s)


@tkdebug.jit
def straight_on(p, s, n):
    s = s + n
    for i in range(n):
        s += i
    tl.store(p, s)


@tkdebug.jit
def a_copy(p, s, n):
    own = s
    for i in range(n):
        own += i
    tl.store(p, own)


@tkdebug.jit
def unrolled(p, s, n):
    for i in tl.static_range(3):
        s += i
    tl.store(p, s + n)


@tkdebug.jit
def as_the_loops_variable(p, s, n):
    for s in range(n):
        tl.store(p + s, s)


@tkdebug.jit
def by_a_constant_condition(p, s, n, FLAG: tl.constexpr = True):
    if FLAG:
        s = n
    tl.store(p, s)


@tkdebug.jit(do_not_specialize=["s"])
def not_specialised(p, s, n):
    for _ in range(n):
        s += n
    tl.store(p, s)


def launch(kernel, s):
    """Return the values that a launch stores, and its warnings as pairs of line and message."""
    out = torch.zeros(8, dtype=torch.int32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel.interpret[(1,)](out, s, 4)
    return out.tolist(), [(warning.lineno, str(warning.message)) for warning in caught]


IN_THIS_LAUNCH = "it is 1 in this launch, and Triton makes constants of arguments that equal 1"


@pytest.mark.parametrize(
    ("kernel", "line", "stored", "where", "why"),
    [
        (in_a_loop, 2, [1, 4, 4, 4, 0, 0, 0, 0], "loop", IN_THIS_LAUNCH),
        (in_a_while, 2, [0, 1, 2, 0, 0, 0, 0, 0], "loop", IN_THIS_LAUNCH),
        (in_a_branch, 2, [4, 0, 0, 0, 0, 0, 0, 0], "`if`", IN_THIS_LAUNCH),
        (in_a_branch_that_returns, 2, [5, 0, 0, 0, 0, 0, 0, 0], "`if`", IN_THIS_LAUNCH),
        (in_a_nested_loop, 3, [15, 0, 0, 0, 0, 0, 0, 0], "loop", IN_THIS_LAUNCH),
        (in_a_called_function, None, [7] + [0] * 7, "loop", "this call passes the constant 1"),
        (a_declared_constant, 2, [7, 0, 0, 0, 0, 0, 0, 0], "loop", "it is a tl.constexpr"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_constant_that_is_rebound_at_run_time_is_noted_once_and_computed(
    kernel, line, stored, where, why
):
    """Triton 3.6 to 3.9 refuse all of these, and none of `test_what_triton_takes`."""
    out, noted = launch(kernel, 1)
    assert out == stored
    ((at, message),) = noted
    where_it_is = add_up if line is None else kernel
    assert at == where_it_is.starting_line_number + (2 if line is None else line)
    assert message.startswith(f"Triton refuses to re-bind `s` in a run-time {where}: {why}")
    assert "`own_s = s`" in message


def test_literal_argument_is_noted_whatever_the_launch():
    for s in (1, 2):
        out, noted = launch(of_a_literal, s)
        assert out[0] == 6 + s
        assert [message.partition(";")[0].rpartition(": ")[2] for _, message in noted] == [
            "this call passes the constant 0"
        ]


TAKEN = [straight_on, a_copy, unrolled, as_the_loops_variable, by_a_constant_condition]


@pytest.mark.parametrize("kernel", [*TAKEN, not_specialised], ids=lambda kernel: kernel.__name__)
def test_what_triton_takes_is_not_noted(kernel):
    assert launch(kernel, 1)[1] == []


@pytest.mark.parametrize("kernel", [in_a_loop, in_a_while, in_a_branch, in_a_called_function])
def test_other_values_of_the_argument_are_not_noted(kernel):
    assert launch(kernel, 2)[1] == []


@tkdebug.jit
def several_targets(p, s, n):
    first = second = s + n
    tl.store(p, first)
    tl.store(p + 1, second)


def test_assignment_with_several_targets_is_noted_and_run():
    out, ((line, message),) = launch(several_targets, 2)
    assert out[:2] == [6, 6]
    assert line == several_targets.starting_line_number + 2
    assert message.startswith("Triton refuses an assignment with several `=`")
