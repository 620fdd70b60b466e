"""Code of local functions has the line of their calls, where that is one line.

Calls are read off nvdisasm's text, which prints the callee's symbol; without it nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tkdebug.linemap.line_table import Instruction
from tkdebug.linemap.local_functions import LocalFunction, holding
from tkdebug.linemap.nvidia.sass import opcode

_CALLEE = re.compile(r"`\(([^)]+)\)")
_T = TypeVar("_T")


def credit_calls(
    code: Sequence[Instruction], functions: tuple[LocalFunction, ...]
) -> tuple[tuple[Instruction, ...], tuple[LocalFunction, ...]]:
    """`code` and its local `functions`, the ones with the places of calls, the others with callers.

    Code of local functions that has a place already, as a device function that was not inlined has,
    keeps it.
    """
    if not functions:
        return tuple(code), ()
    sites = _call_sites(code)
    calls = {f.name: tuple(_calls(f.name, sites, functions, set())) for f in functions}

    def credited(instruction: Instruction) -> Instruction:
        function = holding(functions, instruction.address)
        if function is None or instruction.frames or not calls[function.name]:
            return instruction
        callers = calls[function.name]
        return replace(
            instruction,
            ptx_line=_only(call.ptx_line for call in callers),
            op_id=_only(call.op_id for call in callers),
            frames=_only(call.frames for call in callers) or (),
        )

    return tuple(map(credited, code)), tuple(
        replace(f, callers=tuple(dict.fromkeys(c.frames for c in calls[f.name]))) for f in functions
    )


def _call_sites(code: Sequence[Instruction]) -> Mapping[str, list[Instruction]]:
    """Symbol -> the instructions that call it."""
    sites: dict[str, list[Instruction]] = {}
    for instruction in code:
        callee = _CALLEE.search(instruction.text)
        if callee and opcode(instruction.text) == "CALL":
            sites.setdefault(callee[1], []).append(instruction)
    return sites


def _calls(
    name: str,
    sites: Mapping[str, list[Instruction]],
    functions: tuple[LocalFunction, ...],
    seen: set[str],
) -> Iterable[Instruction]:
    """The instructions outside of local functions without places that lead to a call of `name`."""
    seen.add(name)
    for site in sites.get(name, ()):
        function = holding(functions, site.address)
        if function is None or site.frames:
            yield site
        elif function.name not in seen:
            yield from _calls(function.name, sites, functions, seen)


def _only(values: Iterable[_T]) -> _T | None:
    """What all of `values` are, None where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None
