"""Kernels that Triton is asked about; what a made-up one says of them is written in them."""

from __future__ import annotations

import math
from collections import namedtuple

import tkdebug
import tkdebug.language as tl

FACTOR = tl.constexpr(3)
LIMIT = math.inf
Pair = namedtuple("Pair", "first second")
x = object()


@tkdebug.jit
def taken(p, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(p + i, i * FACTOR, mask=i < n)


@tkdebug.jit
def refused(p, n):
    tl.store(p, n)
    tl.store(p, n)  # REFUSED


@tkdebug.jit
def helper(p, n):
    tl.store(p, n)  # REFUSED


@tkdebug.jit
def calls(p, n):
    # The line of the call.
    helper(p, n)


@tkdebug.jit
def crashes(p, n):
    tl.store(p, n)  # CRASHES


@tkdebug.jit
def takes_forever(p, n):
    tl.store(p, n)  # TAKES_FOREVER


@tkdebug.jit
def fails_by_pass(p, n):
    tl.store(p, n)  # FAILS_BY_PASS


@tkdebug.jit
def wrong(p, n):
    tl.store(p, n.nonsense)


@tkdebug.jit
def wrong_there_too(p, n):
    tl.store(p, n.nonsense)  # REFUSED


@tkdebug.jit
def takes_a_parameter_called_x(p, x):
    tl.store(p, x)


@tkdebug.jit
def reads_what_cannot_be_sent(p, n):
    if False:
        tl.store(p, x)  # REFUSED
    tl.store(p, n)


@tkdebug.jit
def reads_what_cannot_be_sent_and_is_taken(p, n):
    if False:
        tl.store(p, x)
    tl.store(p, n)


class Settings:
    """A class of a script's."""

    FACTOR = tl.constexpr(5)


@tkdebug.jit
def reads_a_class(p, n):
    tl.store(p, n * Settings.FACTOR)  # REFUSED


def closed_over(value):
    """A kernel that reads a variable of the function around it."""

    @tkdebug.jit
    def closure(p, n):
        if n > value:
            tl.store(p, n)

    return closure
