"""Where each program is, as a sign for each cell of a grid that a pane has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tkdebug.debugger.inspection import Inspection
from tkdebug.debugger.remote.records import ProgramGroup

HERE, DIFFERS, ENDED, WAITING, NOT_BEGUN = "#", "≠", ".", "w", "-"
# Programs that are masked off, by the line where they parted from those that are here.
_ELSEWHERE = "abcdefgh"
_MOST_CELLS = 4096


@dataclass(frozen=True, slots=True)
class ProgramStates:
    """A sign for each cell.

    Attributes:
        text: the signs, of programs in linear order.
        per_cell: programs that a cell stands for; its sign is that of the first of `_ORDER`.
        groups: what the signs say.
    """

    text: str
    per_cell: int
    groups: tuple[ProgramGroup, ...]

    @classmethod
    def of(cls, inspection: Inspection, differing: Iterable[int], compared: str) -> ProgramStates:
        """The programs of the launch that is stopped.

        Args:
            inspection: of it.
            differing: those here whose value is another one than that of the program shown.
            compared: which variable's.
        """
        signs, texts = _signs(inspection, differing)
        texts[DIFFERS] = f"here, with another {compared}"
        counts = Counter(signs)
        groups = tuple(
            ProgramGroup(sign, text, counts[sign]) for sign, text in texts.items() if counts[sign]
        )
        per_cell = -(-len(signs) // _MOST_CELLS)
        if per_cell > 1:
            order = list(texts)
            signs = [
                min(signs[place : place + per_cell], key=order.index)
                for place in range(0, len(signs), per_cell)
            ]
        return cls("".join(signs), max(1, per_cell), groups)


def _signs(inspection: Inspection, differing: Iterable[int]) -> tuple[list[str], dict[str, str]]:
    """A sign for each program, and what signs say, the most notable first."""
    census, here = inspection.census(), inspection.here
    texts = {DIFFERS: "", HERE: "here"}
    if here is None:
        return [ENDED] * census.total, {**texts, ENDED: "ended"}
    signs = [NOT_BEGUN] * census.total
    run, execution = here.run, inspection.execution
    if run.scheduler is None:
        signs[: run.first] = [ENDED] * run.first
    else:
        for program in execution.begun:
            signs[program] = ENDED if program in execution.ended else WAITING
    for program in census.here:
        signs[program] = HERE
    for number, group in enumerate(census.elsewhere):
        sign = _ELSEWHERE[min(number, len(_ELSEWHERE) - 1)]
        text = f"{group.reason} at line {group.line}"
        texts[sign] = text if sign not in texts else "in other places"
        for program in group.programs:
            signs[program] = sign
    for program in differing:
        signs[program] = DIFFERS
    return signs, {**texts, WAITING: "waiting", ENDED: "ended", NOT_BEGUN: "not begun"}
