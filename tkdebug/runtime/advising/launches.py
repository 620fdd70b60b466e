"""Advice on interpreted launches: the choice of launches, and their records.

One launch of each kind is looked at: of a kernel's specialisation, grid, and shapes and strides of
arguments. If watches add ops to the interpreted kernel, counts are mapped to the bare build, whose
Tile IR has the same ops but for these and the ops that they alone need. Remarks come from tkdebug's
rules, and from the rules of plugins (entry points `tkdebug.remarks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.judging import RemarkPlugin, judge, machine_of
from tkdebug.advice.machines import MACHINES, Machine
from tkdebug.advice.records import Remark
from tkdebug.compiler.ir import Module, Operation, Region
from tkdebug.errors import Frame, TkError
from tkdebug.interpreter.launch_profile import LaunchProfile
from tkdebug.plugins import Plugin, loaded
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.advising.gather import gather
from tkdebug.runtime.launch.requests import Grid
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.runtime.compile.native_compilation import NativeCompilation

# Launches of one kernel that are looked at.
_MOST_KINDS = 8
_T = TypeVar("_T")


class Advisor:
    """The advice on launches of one kernel.

    Args:
        kernel: the kernel's name.
        kernel_hash: the hash of the interpreted kernel.
        module: that kernel in Tile IR.
        bare: makes the Tile IR without watches; None if it has none.
    """

    def __init__(
        self,
        kernel: str,
        kernel_hash: str,
        module: Module,
        bare: Callable[[], Module] | None = None,
    ) -> None:
        self._kernel = kernel
        self._hash = kernel_hash
        self._module = module
        self._bare = bare
        self._seen: set[object] = set()

    def observer(self, grid: Grid, values: Sequence[Any]) -> LaunchProfile | None:
        """Return the observer of a launch; None if one of its kind was looked at."""
        kind = grid, tuple(map(_kind, values))
        if kind in self._seen or len(self._seen) >= _MOST_KINDS:
            return None
        self._seen.add(kind)
        return LaunchProfile()

    def launched(
        self, profile: LaunchProfile, compilation: NativeCompilation, grid: Grid, launch_id: int
    ) -> None:
        """Record the advice for a launch; report errors in one line."""
        machine = machine_of(compilation.target.name)
        try:
            module = self._module
            if self._bare is not None:
                module = self._bare()
                profile = bare_profile(profile, self._module, module)
            facts = gather(module, profile, compilation, grid, self._kernel, machine)
        except TkError as error:
            tell(f"no advice for {self._kernel}: {error}")
            return
        except Exception as error:
            # A mistake of ours must not end the script.
            reason = f"mistake in tkdebug: {type(error).__name__}: {error}"
            tell(f"no advice for {self._kernel}: {reason}")
            return
        # Launches have the hash of what was interpreted.
        facts = replace(facts, kernel_hash=self._hash)
        if machine is None:
            self._tell_unpredicted(facts)
            return
        verdict = judge(facts, machine, launch_id)
        HOOKS.record(verdict.cost)
        for record in (*verdict.lines, *verdict.remarks):
            HOOKS.record(record)
        for remark in remarks_of_plugins(facts, machine):
            HOOKS.record(replace(remark, launch_id=launch_id))

    def _tell_unpredicted(self, facts: KernelFacts) -> None:
        """Report that there is no prediction, and name the dots without a known time."""
        tell(
            f"no advice for {self._kernel}: no GPU's figures are known for {facts.target}; "
            f"--target takes {', '.join(MACHINES)}"
        )
        for frame, text in _units(facts).items():
            tell(f"{frame.file}:{frame.line}: {text}")


def _units(facts: KernelFacts) -> dict[Frame, str]:
    """Return by line of a dot what computes it and why nothing faster does."""
    names = {"fma": "FMA units", "mma": "mma.sync"}
    return {
        dot.frame: f"dot: computed by {names[dot.unit]}"
        + (" and not by tcgen05" if dot.unit == "mma" else "")
        + f", because {dot.why}"
        for dot in facts.dots
        if dot.why and dot.unit in names
    }


def _kind(value: object) -> object:
    shape = getattr(value, "shape", None)
    if shape is not None:
        stride = getattr(value, "stride", None)
        return tuple(shape), tuple(stride()) if callable(stride) else ()
    return value if isinstance(value, int | float | str | bool) else type(value)


def bare_profile(profile: LaunchProfile, watched: Module, bare: Module) -> LaunchProfile:
    """Return the profile with its ops of `watched` replaced by those of `bare`."""
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
    """Yield the ops of a module by name, place and number among equal ones."""
    seen: Counter[object] = Counter()
    found: list[tuple[object, Operation]] = []
    for op in module.walk():
        place = op.name, op.location.frames
        found.append(((*place, seen[place]), op))
        seen[place] += 1
    return found


def remarks_of_plugins(facts: KernelFacts, machine: Machine) -> Iterator[Remark]:
    """Remarks of plugins on a launch."""
    for plugin, rule in loaded("tkdebug.remarks", RemarkPlugin):
        yield from _remarks(plugin, rule, facts, machine)


def _remarks(
    plugin: Plugin, rule: RemarkPlugin, facts: KernelFacts, machine: Machine
) -> list[Remark]:
    found: list[object]
    try:
        found = list(rule.remarks(facts, machine))
    except Exception as error:  # another distribution's code may raise anything
        plugin.fail(error)
        return []
    remarks = [one for one in found if isinstance(one, Remark)]
    if len(remarks) < len(found):
        plugin.fail("gave something else than a tkdebug.advice.records.Remark")
    return remarks
