"""Requests by which a stopped launch goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.dap.debuggee import FIRST_PROGRAM_THREAD, Debuggee, Going
from tkdebug.debugger.dap.wire import optional, required
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.goals import Resume

Body = Mapping[str, Any] | None


class Moving:
    """Lets a launch go on as a client asks.

    Args:
        debuggee: that is stopped.
    """

    def __init__(self, debuggee: Debuggee) -> None:
        self._debuggee = debuggee
        self._targets: dict[int, tuple[str, int, bool]] = {}
        self.requests: dict[str, Callable[[Mapping[str, Any]], Body]] = {
            "continue": self._continue,
            "reverseContinue": self._reverse_continue,
            "next": self._next,
            "stepIn": self._step_in,
            "stepOut": self._step_out,
            "stepBack": self._step_back,
            "restartFrame": self._restart_frame,
            "gotoTargets": self._goto_targets,
            "goto": self._goto,
            "pause": self._pause,
        }

    def _continue(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Continue

        self._resume(arguments, Continue(), follows=False)
        return {"allThreadsContinued": True}

    def _reverse_continue(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Continue

        return self._resume(arguments, Continue(backwards=True), follows=False)

    def _next(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "OVER")

    def _step_in(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "INTO")

    def _step_out(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "OUT")

    def _step_back(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "OVER", backwards=True)

    def _step(self, arguments: Mapping[str, Any], kind: str, backwards: bool = False) -> Body:
        from tkdebug.debugger.goals import Step, StepKind

        by_instruction = optional(arguments, "granularity", "statement") == "instruction"
        step = StepKind.OP if by_instruction else StepKind[kind]
        return self._resume(arguments, Step(step, backwards), follows=True)

    def _restart_frame(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Restart

        self._debuggee.at(required(arguments, "frameId", int))
        return self._resume(arguments, Restart(), follows=False)

    def _goto_targets(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.lines import checked_line

        source: dict[str, Any] = required(arguments, "source", dict)
        file = os.path.abspath(required(source, "path", str))
        line = checked_line(file, required(arguments, "line", int))
        self._targets = {1: (file, line, False), 2: (file, line, True)}
        labels = {1: f"run to line {line}", 2: f"go back to line {line}"}
        return {"targets": [{"id": n, "label": text, "line": line} for n, text in labels.items()]}

    def _goto(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import RunToLine

        target = self._targets.get(required(arguments, "targetId", int))
        if target is None:
            raise UsageError(f"targetId {arguments['targetId']} is unknown")
        return self._resume(arguments, RunToLine(*target), follows=True)

    def _pause(self, arguments: Mapping[str, Any]) -> Body:
        self._debuggee.forget_ahead()
        self._debuggee.debugger.pause()
        return None

    def _resume(self, arguments: Mapping[str, Any], resume: Resume, *, follows: bool) -> Body:
        """Let the launch go on; a step follows the program of its thread."""
        thread = optional(arguments, "threadId", 0)
        program = thread - FIRST_PROGRAM_THREAD if thread >= FIRST_PROGRAM_THREAD else None
        self._debuggee.go_on(Going(resume, program, follows))
        return None
