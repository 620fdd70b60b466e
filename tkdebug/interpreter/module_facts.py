"""Facts of a module that are worked out once, for all of its launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tkdebug.compiler.ir import Module

T = TypeVar("T")


def fact_of(module: Module, kind: type[T], make: Callable[[Module], T]) -> T:
    """Return a module's fact of a kind, made when it is first asked for."""
    found = module.derived.get(kind)
    if found is None:
        found = module.derived[kind] = make(module)
    assert isinstance(found, kind)
    return found
