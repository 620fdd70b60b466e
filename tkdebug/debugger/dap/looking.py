"""Requests about a stop: threads, stacks, variables, expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.dap.debuggee import FIRST_PROGRAM_THREAD, SCRIPT_THREAD, At, Debuggee, meaning
from tkdebug.debugger.dap.instructions import address_of
from tkdebug.debugger.dap.wire import optional, required
from tkdebug.errors import Frame, UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.dap.variables import Shown
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.inspection import Inspection

Body = Mapping[str, Any] | None
# A client draws every thread: of more programs the first are shown, and the one in focus.
MOST_THREADS = 64
# The end of an expression: the names before the last dot, or a dot after something else; a prefix.
_WORD = re.compile(r"((?:[^\W\d]\w*\.)*|\.)((?:[^\W\d]\w*)?)$")


class Looking:
    """Answers a client's questions about the stop.

    Args:
        debuggee: the stopped process.
    """

    def __init__(self, debuggee: Debuggee) -> None:
        self._debuggee = debuggee
        self.requests: dict[str, Callable[[Mapping[str, Any]], Body]] = {
            "exceptionInfo": self._exception_info,
            "threads": self._threads,
            "stackTrace": self._stack_trace,
            "scopes": self._scopes,
            "variables": self._variables,
            "evaluate": self._evaluate,
            "setVariable": self._set_variable,
            "setExpression": self._set_expression,
            "completions": self._completions,
        }

    def _exception_info(self, arguments: Mapping[str, Any]) -> Body:
        stop = self._debuggee.stop
        if stop is None:
            raise UsageError("no kernel is stopped")
        text = "\n".join(stop.detail) or stop.reason.value
        return {"exceptionId": stop.reason.value, "description": text, "breakMode": "always"}

    def _threads(self, arguments: Mapping[str, Any]) -> Body:
        if self._debuggee.stop is None:
            return {"threads": [{"id": SCRIPT_THREAD, "name": "script"}]}
        return {"threads": self._debuggee.at_stop(self._threads_of)}

    def _threads_of(self, debugger: Debugger) -> list[dict[str, Any]]:
        from tkdebug.debugger.programs import program_text

        inspection = debugger.at_stop
        grid, kernel = inspection.launch.grid, inspection.launch.kernel
        programs = self._programs(inspection)
        if not programs:
            return [{"id": SCRIPT_THREAD, "name": f"{kernel}: {inspection.census().text()}"}]
        return [
            {
                "id": FIRST_PROGRAM_THREAD + program,
                "name": f"{kernel} program {program_text(program, grid)}",
            }
            for program in programs
        ]

    def _programs(self, inspection: Inspection) -> list[int]:
        """Return the shown programs: the first ones here, and the one that steps follow."""
        here = inspection.programs
        shown = list(here[:MOST_THREADS])
        if self._debuggee.focus in here and self._debuggee.focus not in shown:
            assert self._debuggee.focus is not None
            shown.append(self._debuggee.focus)
        return shown

    def _stack_trace(self, arguments: Mapping[str, Any]) -> Body:
        thread = required(arguments, "threadId", int)
        frames = self._debuggee.at_stop(lambda debugger: self._stack(debugger.at_stop, thread))
        first = optional(arguments, "startFrame", 0)
        count = optional(arguments, "levels", 0) or len(frames)
        return {"stackFrames": frames[first : first + count], "totalFrames": len(frames)}

    def _stack(self, inspection: Inspection, thread: int) -> list[dict[str, Any]]:
        program = None if thread == SCRIPT_THREAD else thread - FIRST_PROGRAM_THREAD
        found: list[dict[str, Any]] = []
        for place, frame in enumerate(reversed(inspection.frames)):
            found.append(self._frame(At(program, place), frame, "normal"))
        if found and (address := address_of(inspection)) is not None:
            found[0]["instructionPointerReference"] = address
        if not found:
            ended = Frame("", 0, f"{inspection.launch.kernel} (ended)")
            found.append(self._frame(At(program, 0), ended, "label"))
        for depth, host in enumerate(inspection.launch.host):
            at = At(None, len(inspection.frames) + depth if inspection.frames else -1)
            found.append(self._frame(at, host.place, "subtle"))
        return found

    def _frame(self, at: At, frame: Frame, hint: str) -> dict[str, Any]:
        self._debuggee.frames.append(at)
        found: dict[str, Any] = {
            "id": len(self._debuggee.frames),
            "name": frame.function,
            "line": frame.line,
            "column": 1 if frame.line else 0,
            "presentationHint": hint,
            "canRestart": at.program is not None,
        }
        if frame.file:
            found["source"] = {"name": Path(frame.file).name, "path": frame.file}
        return found

    def _at(self, number: int) -> At:
        if not 1 <= number <= len(self._debuggee.frames):
            raise UsageError(f"frameId {number} is not of this stop")
        return self._debuggee.frames[number - 1]

    # Values

    def _scopes(self, arguments: Mapping[str, Any]) -> Body:
        at = self._debuggee.at(required(arguments, "frameId", int))
        return {
            "scopes": self._debuggee.at_stop(lambda debugger: self._scopes_of(debugger.at_stop, at))
        }

    def _scopes_of(self, inspection: Inspection, at: At) -> list[dict[str, Any]]:
        from tkdebug.debugger.dap import variables as shown

        if at.frame < 0:
            return []
        if inspection.host_frame(at.frame) is not None:
            return [self._host_scope(inspection, at.frame)]
        grid = inspection.launch.grid
        scopes = []
        if inspection.marks and at.program is not None:
            with meaning(inspection, at.program):
                readings = inspection.variables(at.frame)
            values = [
                shown.of_reading(name, reading, at.program, grid)
                for name, reading in readings.items()
            ]
            scopes.append((shown.scope("Variables", values), "locals"))
        launch = inspection.launch
        arguments = [shown.of_value(k, v, k) for k, v in launch.arguments.items()]
        scopes.append((shown.scope(f"Launch {launch.number}", arguments), "arguments"))
        answer = []
        for one, hint in scopes:
            shown_scope = self._scope(one, hint)
            if hint == "locals":
                self._debuggee.assignable[shown_scope["variablesReference"]] = at
            answer.append(shown_scope)
        return answer

    def _host_scope(self, inspection: Inspection, frame: int) -> dict[str, Any]:
        """The variables of a frame of the script, which are looked at alone."""
        from tkdebug.debugger.dap import variables as shown
        from tkdebug.debugger.values import Constant

        values = [
            replace(shown.of_value(name, reading.value, name), place=None)
            for name, reading in inspection.variables(frame).items()
            if isinstance(reading, Constant)
        ]
        return self._scope(shown.scope("Variables", values), "locals")

    def _scope(self, scope: Shown, hint: str) -> dict[str, Any]:
        return {
            "name": scope.name,
            "variablesReference": self._debuggee.references.add(scope),
            "expensive": False,
            "presentationHint": hint,
            "namedVariables": scope.length,
        }

    def _variables(self, arguments: Mapping[str, Any]) -> Body:
        number = required(arguments, "variablesReference", int)
        start, count = optional(arguments, "start", 0), optional(arguments, "count", 0)
        if start < 0 or count < 0:
            raise UsageError("start and count cannot be negative")

        def look(debugger: Debugger) -> list[dict[str, Any]]:
            parts = self._debuggee.references.parts(number, start, count)
            return [self._debuggee.references.variable(part) for part in parts]

        return {"variables": self._debuggee.at_stop(look)}

    def _evaluate(self, arguments: Mapping[str, Any]) -> Body:
        text = required(arguments, "expression", str)
        at = self._frame_of(arguments)
        if optional(arguments, "context", "") == "repl":
            lines = self._debuggee.at_stop(lambda debugger: self._answer(debugger, text, at))
            if lines is not None:
                return {"result": "\n".join(lines), "variablesReference": 0}
        variable = self._debuggee.at_stop(lambda debugger: self._value(debugger.at_stop, text, at))
        return {"result": variable.pop("value"), **variable}

    def _answer(self, debugger: Debugger, text: str, at: At) -> list[str] | None:
        """Return the console's answer to a command that only looks; None for an expression."""
        from tkdebug.debugger.console.commands import find_command, only_looks
        from tkdebug.debugger.console.shell import Console
        from tkdebug.debugger.expressions import EvaluationError, compile_expression

        if not only_looks(text.partition(" ")[0]):
            return None
        try:
            compile_expression(text)
            if not text.isidentifier():
                return None
            debugger.at_stop.evaluate(text, max(at.frame, 0))
        except EvaluationError:
            pass  # no expression, or a word that no variable has
        else:
            return None
        said: list[str] = []
        console = Console(find_command, write=said.append, frame=max(at.frame, 0))
        console.attach(debugger)
        with meaning(debugger.at_stop, at.program):
            console.run_line(text)
        if said and said[-1].startswith("*** "):
            raise UsageError(said[-1].removeprefix("*** "))
        return said

    def _value(self, inspection: Inspection, text: str, at: At) -> dict[str, Any]:
        from tkdebug.debugger.dap import variables as shown
        from tkdebug.debugger.values import PerProgram

        if at.program is None:
            value = inspection.evaluate(text, max(at.frame, 0))
        else:
            with meaning(inspection, at.program):
                value = inspection.evaluate(text, at.frame)
        if isinstance(value, PerProgram):
            return self._debuggee.references.variable(shown.of_programs(value, inspection))
        return self._debuggee.references.variable(shown.of_value("", value, text))

    def _frame_of(self, arguments: Mapping[str, Any]) -> At:
        """Return the frame of `frameId`, or the innermost of the focus."""
        number = optional(arguments, "frameId", 0)
        return self._debuggee.at(number) if number else At(self._debuggee.focus, 0)

    def _set_variable(self, arguments: Mapping[str, Any]) -> Body:
        number = required(arguments, "variablesReference", int)
        at = self._debuggee.assignable.get(number)
        name, text = required(arguments, "name", str), required(arguments, "value", str)
        if at is None:
            raise UsageError(f"{name} cannot be assigned: only whole variables of a kernel can")
        return self._assigned(name, text, at)

    def _set_expression(self, arguments: Mapping[str, Any]) -> Body:
        name, text = required(arguments, "expression", str), required(arguments, "value", str)
        if not name.isidentifier():
            raise UsageError(f"{name} cannot be assigned: only whole variables of a kernel can")
        return self._assigned(name, text, self._frame_of(arguments))

    def _assigned(self, name: str, text: str, at: At) -> dict[str, Any]:
        def assign(debugger: Debugger) -> dict[str, Any]:
            from tkdebug.debugger.dap import variables as shown

            inspection = debugger.at_stop
            with meaning(inspection, at.program):
                debugger.assign(name, text, at.frame)
                reading = inspection.read(name, at.frame)
            program = at.program or 0
            value = shown.of_reading(name, reading, program, inspection.launch.grid)
            return self._debuggee.references.variable(value)

        return self._debuggee.at_stop(assign)

    def _completions(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.console.commands import looking_names

        text = required(arguments, "text", str)
        column = min(max(optional(arguments, "column", len(text) + 1) - 1, 0), len(text))
        word = _WORD.search(text[:column])
        assert word is not None  # it may be empty
        owner, prefix, at = word[1], word[2], self._frame_of(arguments)
        found = self._debuggee.at_stop(lambda debugger: self._names(debugger.at_stop, owner, at))
        if prefix and text[:column].strip() == prefix:
            found += looking_names()
        begin, length = column - len(prefix), len(prefix)
        return {
            "targets": [
                {"label": name, "start": begin, "length": length}
                for name in dict.fromkeys(found)
                if name.startswith(prefix)
            ]
        }

    def _names(self, inspection: Inspection, owner: str, at: At) -> list[str]:
        """Return what may come next: names, or the attributes of `owner`, which ends in a dot."""
        from tkdebug.debugger.expressions import EvaluationError

        if not owner:
            host = inspection.host_frame(at.frame)
            if host is not None:
                return [*host.variables()]
            frame = inspection.mark_of(max(at.frame, 0)).names if inspection.marks else {}
            return [*frame, *inspection.launch.arguments, "pid", "program", "torch", "tl"]
        if owner == ".":
            return []  # of an expression, which nobody asked to evaluate
        try:
            with meaning(inspection, at.program):
                first = inspection.programs[:1]
                value = inspection.evaluate(owner[:-1], max(at.frame, 0), *first)
        except EvaluationError:
            return []
        return [name for name in dir(value) if not name.startswith("_")]
