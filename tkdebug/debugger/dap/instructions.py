"""The disassembly view: each line of the IR that runs is an instruction.

The protocol wants addresses; a line's address is its number after `_FIRST`. Addresses belong to the
code that is stopped, so a breakpoint at one is set while its kernel is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.dap.debuggee import Debuggee
from tkdebug.debugger.dap.wire import optional, required
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Operation
    from tkdebug.debugger.code import DebugCode
    from tkdebug.debugger.inspection import Inspection

Body = Mapping[str, Any] | None
_FIRST = 0x100000
# The most that a client may ask for at once.
_MOST = 10_000


def address_of(inspection: Inspection) -> str | None:
    """The address of the op that is about to run, or None if there is none."""
    here = inspection.here
    if here is None:
        return None
    return hex(_FIRST + inspection.code.printed.places[here.op])


class Instructions:
    """Shows ops as instructions, and sets breakpoints at them.

    Args:
        debuggee: the stopped process.
    """

    def __init__(self, debuggee: Debuggee) -> None:
        self._debuggee = debuggee
        self._set: list[int] = []
        self.requests: dict[str, Callable[[Mapping[str, Any]], Body]] = {
            "disassemble": self._disassemble,
            "setInstructionBreakpoints": self._set_breakpoints,
        }

    def _disassemble(self, arguments: Mapping[str, Any]) -> Body:
        reference = required(arguments, "memoryReference", str)
        place = _place(reference, optional(arguments, "offset", 0))
        first = place + optional(arguments, "instructionOffset", 0)
        count = required(arguments, "instructionCount", int)
        if not 0 <= count <= _MOST:
            raise UsageError(f"instructionCount is {count}, expected 0 to {_MOST}")
        return {
            "instructions": self._debuggee.at_stop(
                lambda debugger: _lines(debugger.at_stop.code, first, count)
            )
        }

    def _set_breakpoints(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.dap.breakpoints import options_of

        debugger = self._debuggee.debugger
        for number in self._set:
            if any(one.number == number for one in debugger.breakpoints):
                debugger.remove(number)
        self._set.clear()
        answers: list[dict[str, Any]] = []
        for asked in required(arguments, "breakpoints", list):
            try:
                number = self._add(asked, options_of(asked))
            except UsageError as error:
                answers.append({"verified": False, "message": str(error), "reason": "failed"})
                continue
            self._set.append(number)
            answers.append(
                {
                    "id": number,
                    "verified": True,
                    "instructionReference": asked["instructionReference"],
                }
            )
        return {"breakpoints": answers}

    def _add(self, asked: Mapping[str, Any], options: Mapping[str, Any]) -> int:
        from tkdebug.debugger.breakpoints import BreakKind

        reference = required(asked, "instructionReference", str)
        place = _place(reference, optional(asked, "offset", 0))

        def subject(inspection: Inspection) -> str:
            code = inspection.code
            if place not in code.printed.places.values():
                raise UsageError(f"no op begins at {reference}")
            return code.op_subject(inspection.launch.kernel, place)

        found = self._debuggee.at_stop(lambda debugger: subject(debugger.at_stop))
        return self._debuggee.debugger.add(BreakKind.OP, found, **options).number


def _place(reference: str, offset: int) -> int:
    """The number of the line at an address, from 0 on."""
    try:
        return int(reference, 0) - _FIRST + offset
    except ValueError:
        raise UsageError(f"{reference} is no address") from None


def _lines(code: DebugCode, first: int, count: int) -> list[dict[str, Any]]:
    printed = code.printed
    ops = {place: op for op, place in printed.places.items()}
    found = []
    for place in range(first, first + count):
        one: dict[str, Any] = {"address": hex(max(_FIRST + place, 0))}
        if not 0 <= place < len(printed.lines):
            found.append({**one, "instruction": "", "presentationHint": "invalid"})
            continue
        one["instruction"] = printed.lines[place]
        found.append({**one, **_source(code, ops.get(place))})
    return found


def _source(code: DebugCode, op: Operation | None) -> dict[str, Any]:
    mark = None if op is None else code.context.get(op)
    if mark is None:
        return {}
    file, line = mark.location.file, mark.location.line
    return {"location": {"name": Path(file).name, "path": file}, "line": line}
