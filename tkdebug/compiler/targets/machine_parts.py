"""Parts of this machine that a backend or platform uses, found or missing, for `tkdebug doctor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class MachinePart:
    """A package, a tool or a device.

    Attributes:
        name: the name.
        found: whether it is as it should be.
        detail: its version and place, or the problem.
        advice: the fix for the problem.
        needed: whether something of this version does not work without it.
    """

    name: str
    found: bool
    detail: str
    advice: str = ""
    needed: bool = True


# By name, which is shown also where the question raises.
MachineParts: TypeAlias = Mapping[str, Callable[[], MachinePart]]


def package(name: str, purpose: str) -> MachinePart:
    """Return the state of a Python package that has to be installed."""
    if find_spec(name) is None:
        return MachinePart(name, False, "not installed", f"pip install {name} ({purpose})")
    return MachinePart(name, True, f"{metadata.version(name)} ({purpose})")


def first_sentence(error: Exception) -> str:
    """The text of `error` up to its first full stop or semicolon."""
    if type(error).__name__ == "DynamicLibNotFoundError":  # cuda-pathfinder's, a page of advice
        return "its library is not installed here"
    text = " ".join(str(error).split()) or type(error).__name__
    return text.partition(". ")[0].partition("; ")[0].removesuffix(".")[:200]
