"""Ways to run a launch, and what comparing one with another found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.passes.pass_run import run_pass
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.runtime.compile.compilation import compile_with_sources, note_arguments
from tkdebug.runtime.compile.debugged_stages import passes_of, source_for_gpu
from tkdebug.variations.launches import KeptLaunch
from tkdebug.variations.outcomes import Difference, Outcome
from tkdebug.variations.recorded import Recorded

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module, Operation
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import TileValue
    from tkdebug.watches.places import Watch


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a launch.

    Attributes:
        name: its name in reports.
        launch: the launch, with its own grid and values.
        module: the IR that is interpreted, unless there is a `run`.
        programs: ranges of programs in the order in which they run; None for the usual one.
        fill: the byte that memory which is only written holds before; None for what it held.
        poisons: whether masked lanes of loads without `other` hold NaNs, or large integers.
        run: runs it in another way than by interpretation; None to interpret `module`.
        record: runs it so with watches, and returns what they record; None if that is impossible.
        is_other_source: whether it is of another version of the script.
        is_gpu: whether the module is GPU IR.
        usual: the way that it is compared with; None for the launch as it is.
        rounds_otherwise: whether other numbers of programs are interpreted together, which changes
            the order of sums.
    """

    name: str
    launch: KeptLaunch
    module: Module
    programs: tuple[range, ...] | None = None
    fill: int | None = None
    poisons: bool = False
    run: Callable[[], Outcome] | None = None
    record: Callable[[Sequence[Watch]], Recorded] | None = None
    is_other_source: bool = False
    is_gpu: bool = False
    usual: Way | None = None
    rounds_otherwise: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The comparison of one way to run a launch with the usual one.

    Attributes:
        way: its name.
        same_bits: whether it gives the same bits, or rounds otherwise for a known reason
            (`Way.rounds_otherwise`).
        difference: beyond what arithmetic explains; None for none.
        at: the call chain of the first value that differs, outermost first.
        op: the name of the op that gives it.
        variable: its name in the source; "" for none.
        program: linear number, -1 where none is known.
        round: the iteration of the innermost loop around it; None outside of loops.
        got: its number; `expected` is the number of the usual run.
        note: more of it, in words.
        refused: why it was not run; "" where it was.
    """

    way: str
    same_bits: bool = False
    difference: Difference | None = None
    at: tuple[Any, ...] = ()
    op: str = ""
    variable: str = ""
    program: int = -1
    round: int | None = None
    got: str = ""
    expected: str = ""
    note: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Classes:
    """Configurations of a tuner by the bits that they give.

    Attributes:
        names: for each class, the names of its configurations.
        parted: for each class after the first, where it parts from the first.
        refused: configurations that were not run.
    """

    names: tuple[tuple[str, ...], ...]
    parted: tuple[Found, ...]
    refused: tuple[Found, ...]


class PoisonedPadding(Observer):
    """Puts numbers into lanes of loads that are masked off and have no other value."""

    needs_intermediates = True

    def moments(self, op: Operation) -> Moments:
        """Ask for the moment after loads with a mask and without `other`."""
        is_masked = tt.Load.matches(op) and tt.Load(op).mask is not None
        return Moments.AFTER if is_masked and tt.Load(op).other is None else Moments.NEVER

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Return the loaded tile with poison in its masked-off lanes."""
        view = tt.Load(op)
        assert view.mask is not None
        loaded = run.full(results[0], op.result.type)
        keeps = run.full(operands[list(op.operands).index(view.mask)], view.mask.type).bool()
        poison = torch.nan if loaded.dtype.is_floating_point else _large(loaded.dtype)
        filled = torch.full((), poison, dtype=loaded.dtype, device=loaded.device)
        return [torch.where(keeps, loaded, filled)]


def _large(dtype: torch.dtype) -> int:
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max // 2


def front_end(launch: KeptLaunch) -> Module:
    """Return the Tile IR of a launch's kernel before any pass."""
    module = compile_with_sources(launch.src, {})
    note_arguments(launch.src, module)
    return module


def gpu_ir(launch: KeptLaunch, target: str) -> Module:
    """Return the GPU IR of a launch's kernel after all passes.

    Raises:
        TkError: a pass refuses it.
    """
    src = source_for_gpu(launch.src, target, launch.values)
    module = compile_with_sources(src, {})
    note_arguments(src, module)
    for _, pass_ in passes_of(src, module, "gpu-ir"):
        run_pass(pass_, module, None)
    return module
