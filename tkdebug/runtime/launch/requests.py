"""Launches as scripts ask for them: before a tuner, heuristics and the grid have settled them.

Only a debugger asks: with it a launch can be made again with other meta-parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tkdebug.records.hook_chain import HOOKS


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launch that a script asks for.

    Attributes:
        runner: the object whose `run` launches.
        args: arguments by position.
        kwargs: arguments by name, and options.
        grid: a tuple, or a function of the arguments.
        config: what a tuner has chosen.
        configs: the tuner's other configurations, and that one; empty without a tuner.
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
    """Note a request while it is launched, unless it is part of another; arguments as above."""
    if HOOKS.debugger is None or REQUEST.get() is not None:
        yield
        return
    token = REQUEST.set(LaunchRequest(runner, args, kwargs, grid, config or {}, configs))
    try:
        yield
    finally:
        REQUEST.reset(token)
