"""Counts of a watched kernel, as counts of the kernel without watches.

Watches add ops to what is interpreted. Advice is about the bare build, whose Tile IR has the same
ops but for these and what they alone need: each is found by its name, its place in the source and
how many like it come before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from tkdebug.compiler.ir import Module, Operation, Region
from tkdebug.interpreter.launch_profile import LaunchProfile

_T = TypeVar("_T")


def bare_profile(profile: LaunchProfile, watched: Module, bare: Module) -> LaunchProfile:
    """The profile with the ops of `bare` in the place of those of `watched` that it counted."""
    found = _alike(watched, bare)
    told = LaunchProfile()
    told.programs = profile.programs
    told.entered = {
        inside: count
        for region, count in profile.entered.items()
        if (inside := _region(region, found)) is not None
    }
    told.accesses = {
        found[op]: replace(access, op=found[op])
        for op, access in profile.accesses.items()
        if op in found
    }
    told.footprints = {
        (storage, found[op]): one
        for (storage, op), one in profile.footprints.items()
        if op in found
    }
    told.most_per_address = _renamed(profile.most_per_address, found)
    told.selects = _renamed(profile.selects, found)
    told.gathers = _renamed(profile.gathers, found)
    return told


def _renamed(
    counted: Mapping[Operation, _T], found: Mapping[Operation, Operation]
) -> dict[Operation, _T]:
    return {found[op]: value for op, value in counted.items() if op in found}


def _region(region: Region, found: Mapping[Operation, Operation]) -> Region | None:
    parent = region.parent
    other = None if parent is None else found.get(parent)
    if parent is None or other is None:
        return None
    return other.regions[parent.regions.index(region)]


def _alike(watched: Module, bare: Module) -> dict[Operation, Operation]:
    """Return by op of a watched kernel the same op of the bare one."""
    by_place = dict(_numbered(bare))
    return {op: by_place[key] for key, op in _numbered(watched) if key in by_place}


def _numbered(module: Module) -> list[tuple[object, Operation]]:
    """The ops of a module, each with its name, place and number among those of the same."""
    seen: Counter[object] = Counter()
    found: list[tuple[object, Operation]] = []
    for op in module.walk():
        place = op.name, op.location.frames
        found.append(((*place, seen[place]), op))
        seen[place] += 1
    return found
