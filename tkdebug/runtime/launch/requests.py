"""Requests of scripts at a launch: the grid, and the launch before anything has settled it.

A grid is one to three counts of programs, or a function of the arguments that returns them. A
`LaunchRequest` is the launch before a tuner, heuristics and the grid have settled it. Only a
debugger asks for one: with it a launch can be made again with other meta-parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.errors import GridError

Grid = tuple[int, int, int]
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
GRID_LIMITS = ((1 << 31) - 1, 65535, 65535)
_AXES = "xyz"


def grid_dimensions(kernel: str, grid: Any) -> Grid:
    """Return the numbers of programs along x, y and z.

    Args:
        kernel: the kernel's name, for messages.
        grid: an int, or a sequence of one to three.

    Raises:
        GridError: the grid is neither, or a count is negative or beyond the hardware's limit.
    """
    if isinstance(grid, tuple | list):
        counts = tuple(grid)
    elif hasattr(grid, "__index__"):
        counts = (grid,)
    else:
        raise GridError(
            f"kernel {kernel}: grid is a {type(grid).__name__}, expected an int, "
            "a tuple of 1 to 3 ints, or a function that returns one"
        )
    if not 1 <= len(counts) <= 3:
        raise GridError(f"kernel {kernel}: grid {counts} has {len(counts)} axes, expected 1 to 3")
    sizes = [_count(kernel, axis, count) for axis, count in enumerate(counts)]
    x, y, z = sizes + [1] * (3 - len(sizes))
    return x, y, z


def _count(kernel: str, axis: int, count: Any) -> int:
    # Common cases first, and no message made before one is due: this is on the launch path.
    if count.__class__ is int and 0 <= count <= GRID_LIMITS[axis]:
        return count
    where = f"kernel {kernel}: grid[{axis}]"
    try:
        size = operator.index(count)
    except TypeError:
        raise GridError(
            f"{where} is {count!r} ({type(count).__name__}), expected an int; "
            "divide with // or triton.cdiv"
        ) from None
    if size < 0:
        raise GridError(f"{where} is {size}, expected 0 or more")
    if size > GRID_LIMITS[axis]:
        raise GridError(
            f"{where} is {size}, the hardware's limit along {_AXES[axis]} is {GRID_LIMITS[axis]}; "
            + ("put the long axis first, or loop in the kernel" if axis else "loop in the kernel")
        )
    return size


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launch that a script asks for.

    Attributes:
        runner: the object whose `run` launches.
        args: arguments by position.
        kwargs: arguments by name, and options.
        grid: a tuple, or a function of the arguments.
        config: what a tuner has chosen.
        configs: all of the tuner's configurations, the chosen one too; empty without a tuner.
    """

    runner: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grid: Any
    config: Mapping[str, Any] = field(default_factory=dict)
    configs: Sequence[Any] = ()


# The request of the launch under way, where somebody looks at launches.
REQUEST: ContextVar[LaunchRequest | None] = ContextVar("tkdebug_launch_request", default=None)


@contextmanager
def requested(
    runner: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    grid: Any,
    config: Mapping[str, Any] | None = None,
    configs: Sequence[Any] = (),
) -> Iterator[None]:
    """Note a `LaunchRequest` of these fields while it is launched, unless it is part of another."""
    if HOOKS.debugger is None or REQUEST.get() is not None:
        yield
        return
    token = REQUEST.set(LaunchRequest(runner, args, kwargs, grid, config or {}, configs))
    try:
        yield
    finally:
        REQUEST.reset(token)
