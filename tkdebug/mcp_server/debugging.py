"""`debug`: a script that stays in the debugger between calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from tkdebug.errors import UsageError, instead_of
from tkdebug.mcp_server.answers import Answer, Item
from tkdebug.mcp_server.children import ChildError, Talk, error_in, replay_of, tick
from tkdebug.mcp_server.command_tools import ARGS, ONE_COMMAND, SECONDS
from tkdebug.mcp_server.desk import USUAL_SECONDS, Call, Desk, script_words
from tkdebug.mcp_server.parameters import Parameter

_MOST_STOPPED = 4
_ENDING_S = 2.0
# What each action says to the debugger's console; {} is what the call gives.
_STEPS = {"line": "next", "into": "step", "out": "return", "op": "stepop"}
_BACK = {"line": "rnext", "into": "rstep", "out": "rreturn", "op": "rstepop", "breakpoint": "rc"}
_ACTIONS = {
    "break": "break {}",
    "watch": "watch {}",
    "evaluate": "print {}",
    "tile": "tile {}",
    "programs": "pid {}",
    "why": "why {}",
    "last-write": "lastwrite {}",
    "variables": "vars",
    "where": "where",
    "continue": "continue",
}
DEBUG = (
    Parameter(
        "action",
        "what to do; `start` first",
        is_required=True,
        choices=("start", "step", "back", *_ACTIONS, "stop"),
    ),
    Parameter("debugged", "the name that `start` gave; may be left out while there is one"),
    Parameter("script", "of start: a Python script in the folder", "file"),
    ARGS,
    Parameter(
        "breakpoints",
        "of start: where to stop, such as 20, a.py:20 if k == 3, fault, end; else at the first "
        "launch",
        "words",
        pattern=ONE_COMMAND,
        example="a.py:20",
    ),
    Parameter(
        "stage",
        "of start: the IR in which kernels run, such as gpu-ir; as written by default",
        pattern=r"[\w:.-]+",
        example="gpu-ir",
    ),
    Parameter(
        "text",
        "of break: a line, [FILE:]N [if CONDITION], or a kernel; of watch, why and last-write: an "
        "element as out[3, 17]; of evaluate and tile: an expression of Python, evaluated as the "
        "script's own code; of programs: which to select",
        pattern=ONE_COMMAND,
        example="out[3, 17]",
    ),
    Parameter(
        "by",
        "of step: line, into, out or op; of back: these, or breakpoint",
        choices=("line", "into", "out", "op", "breakpoint"),
    ),
    SECONDS,
)


@dataclass
class StoppedScript:
    """A script in the debugger.

    Attributes:
        script: the end of its command line: the script and its arguments.
        asked: the commands that it was given, for the replay.
        stop: the last stop; None before the first, and at the end.
        has_ended: whether the script has ended.
        turn: the lock that a call holds while its commands run.
    """

    name: str
    talk: Talk
    script: list[str]
    stage: list[str]
    asked: list[str] = field(default_factory=list)
    stop: Mapping[str, Any] | None = None
    has_ended: bool = False
    exit_status: int | None = None
    turn: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def replay(self) -> str:
        """The command line that comes to the same stop."""
        commands = [word for each in self.asked for word in ("-c", each)]
        return replay_of(["debug", *self.stage, *commands, *self.script])

    async def say(self, command: str) -> list[str]:
        """Run a command of the console, and return its answer; [] if the script ended before it.

        If the command resumes the script, wait for the next stop, or for the end.

        Raises:
            UsageError: the command was refused, or a line of the answer is too long.
        """
        await self.talk.ask(command)
        self.asked.append(command)
        while True:
            answer = await self._event()
            if answer is None:
                return []
            if answer["event"] == "answer":
                break
        if not answer["ok"]:
            self.asked.pop()
            raise UsageError(f"{command}: {answer['error']}")
        if answer["resumes"]:
            self.stop = None
            while self.stop is None and await self._event() is not None:
                pass
        return list(answer["text"])

    async def begin(self) -> None:
        """Wait until the script can be asked.

        Raises:
            ChildError: it cannot be debugged, and has reported why.
            UsageError: it cannot be debugged.
        """
        if await self._event() is None:
            with anyio.move_on_after(_ENDING_S):
                await self.talk.has_ended.wait()
            err = self.talk.err.decode(errors="replace")
            record = error_in(err)
            if record is not None:
                raise ChildError(record)
            raise UsageError(f"script: it could not be debugged: {err.strip()[-400:]}")

    async def _event(self) -> dict[str, Any] | None:
        """Return the next event, or None at the end, and note a stop or the end of the script."""
        event = await self.talk.event()
        if event is None:
            self.has_ended, self.stop = True, None
        elif event["event"] == "stop":
            self.stop = event
        elif event["event"] == "end":
            self.has_ended, self.stop = True, None
            self.exit_status = event["exit_status"]
            return None
        return event


async def debug(desk: Desk, call: Call) -> Answer:
    """Answer `debug`."""
    given = call.given
    action = given["action"]
    if action == "start":
        return await _start(desk, call)
    stopped = _named(desk, given.get("debugged"))
    if action == "stop":
        await _forget(desk, stopped)
        return _answer(desk, stopped, [])
    command = _command(given)
    async with stopped.turn:
        if stopped.has_ended:
            raise UsageError(f"debugged: {stopped.name} has ended meanwhile; `start` it again")
        return _answer(desk, stopped, await _asked(desk, call, stopped, [command]))


async def _start(desk: Desk, call: Call) -> Answer:
    given = call.given
    if "script" not in given:
        raise UsageError("script: got nothing, expected a Python script in the folder")
    if len(desk.stopped) >= _MOST_STOPPED:
        names = ", ".join(desk.stopped)
        raise UsageError(f"debug: {_MOST_STOPPED} scripts are stopped already ({names}); stop one")
    stage = call.words_of("stage")
    script = script_words(desk, call)
    words = ["debug", "--errors=json", "--no-rc", "--json", *stage, *script]
    desk.begun += 1
    talk = await desk.children.start(words)
    stopped = StoppedScript(f"debug-{desk.begun}", talk, script, stage)
    desk.stopped[stopped.name] = stopped
    commands = [f"break {each}" for each in given.get("breakpoints", ())]
    commands.append("continue" if commands else "step")
    try:
        async with stopped.turn:
            said = await _asked(desk, call, stopped, commands, begins=True)
    except BaseException:  # cancelled, too: its client does not know the script
        await _forget(desk, stopped)
        raise
    return _answer(desk, stopped, said)


async def _asked(
    desk: Desk, call: Call, stopped: StoppedScript, commands: list[str], begins: bool = False
) -> list[str]:
    """Run commands of the console; a script that is left in the middle of one is ended.

    Raises:
        UsageError: one was refused, or took too long.
        ChildError: the script cannot be debugged.
    """
    said: list[str] = []
    seconds = call.given.get("seconds", USUAL_SECONDS)
    is_whole = False
    try:
        with anyio.move_on_after(seconds) as limit:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick, call.progress, stopped.name)
                try:
                    if begins:
                        await stopped.begin()
                    for command in commands:
                        said += await stopped.say(command)
                except (UsageError, ChildError) as error:
                    refused: Exception | None = error
                else:
                    refused = None
                tasks.cancel_scope.cancel()
        is_whole = not limit.cancelled_caught
    finally:
        if not is_whole or stopped.has_ended:
            await _forget(desk, stopped)
    if not is_whole:
        raise UsageError(f"debug: nothing stopped within {seconds:g} s; the script was ended")
    if refused is not None:
        raise refused
    return said


async def _forget(desk: Desk, stopped: StoppedScript) -> None:
    desk.stopped.pop(stopped.name, None)
    await desk.children.end(stopped.talk.process)
    stopped.has_ended = True


def _named(desk: Desk, name: str | None) -> StoppedScript:
    if name is None and len(desk.stopped) == 1:
        return next(iter(desk.stopped.values()))
    found = desk.stopped.get(name or "")
    if found is None:
        got = "nothing" if name is None else repr(name)
        hint = instead_of(name or "", desk.stopped)
        raise UsageError(f"debugged: got {got}, expected a script that `start` has stopped{hint}")
    return found


def _command(given: Mapping[str, Any]) -> str:
    """Return the console's command for an action.

    Raises:
        UsageError: the action lacks its text, or does not take that `by`.
    """
    action, by = given["action"], given.get("by", "line")
    if action in ("step", "back"):
        ways = _STEPS if action == "step" else _BACK
        if by not in ways:
            raise UsageError(f"by: got {by!r}, expected one of {', '.join(ways)}")
        return ways[by]
    form = _ACTIONS[action]
    if "{}" in form and "text" not in given:
        raise UsageError(f"text: got nothing, expected what to {action}")
    return form.format(given.get("text", ""))


def _answer(desk: Desk, stopped: StoppedScript, said: list[str]) -> Answer:
    stop = stopped.stop
    facts: dict[str, object] = {"debugged": stopped.name, "state": "stopped"}
    if stopped.has_ended or stop is None:
        facts |= {"state": "ended", "exit_status": stopped.exit_status}
    else:
        frames = stop["frames"]
        if frames:
            facts |= desk.place((frames[-1]["file"], frames[-1]["line"]))
            facts["function"] = frames[-1]["function"]
            facts["source"] = _source(desk, frames[-1])
        facts["reason"] = stop["reason"]
        names = ("kernel", "launch", "census", "op", "detail", "is_return")
        facts |= {name: stop[name] for name in names if stop.get(name)}
        facts["programs"] = stop["programs"][:8]
    items: list[Item] = [{"text": line} for line in said]
    evidence = {"script": stopped.script[1]}
    return Answer("interpreted", stopped.replay, evidence, facts, items)


def _source(desk: Desk, frame: Mapping[str, Any]) -> str | None:
    """Return the text of a frame's line, or None if its file lies outside of the folder."""
    from tkdebug.process.named_files import source_line

    try:
        path = desk.folder.inside(desk.folder.shown(frame["file"]))
    except UsageError:
        return None
    return source_line(str(path), frame["line"]).strip()
