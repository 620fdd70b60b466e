"""Advice on interpreted launches: the choice of those that are looked at, and their records.

One launch of each kind: of a kernel's specialisation, grid, and shapes and strides of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.judging import judge, machine_of
from tkdebug.advice.machines import MACHINES
from tkdebug.errors import Frame, TkError
from tkdebug.interpreter.launch_profile import LaunchProfile
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.advising.bare_profile import bare_profile
from tkdebug.runtime.advising.gather import gather
from tkdebug.runtime.advising.plugin_rules import remarks_of_plugins
from tkdebug.runtime.launch.grid import Grid
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.runtime.compile.native_compilation import NativeCompilation

# Launches of one kernel that are looked at.
_MOST_KINDS = 8


class Advisor:
    """Looks at the launches of one kernel.

    Args:
        kernel: its name.
        kernel_hash: of what is interpreted.
        module: that, in Tile IR.
        bare: makes the Tile IR without watches; None where it has none.
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
        """Return the observer of a launch; None where one of its kind was looked at."""
        kind = grid, tuple(map(_kind, values))
        if kind in self._seen or len(self._seen) >= _MOST_KINDS:
            return None
        self._seen.add(kind)
        return LaunchProfile()

    def launched(
        self, profile: LaunchProfile, compilation: NativeCompilation, grid: Grid, launch_id: int
    ) -> None:
        """Record the advice for a launch; what goes wrong is reported in one line."""
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
        """Say that there is no prediction, and of its dots what there is to say without one."""
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
