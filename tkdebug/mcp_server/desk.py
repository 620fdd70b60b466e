"""The place where tools work: the folder, commands, models that were read, stopped scripts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from tkdebug.errors import UsageError
from tkdebug.mcp_server.answers import Answer, Pages
from tkdebug.mcp_server.children import Children, Finished, Progress, replay_of
from tkdebug.mcp_server.parameters import Folder, Parameter

if TYPE_CHECKING:
    from tkdebug.mcp_server.debugging import StoppedScript

READING_SECONDS = 120
USUAL_SECONDS = 300
_MOST_MODELS = 4


@dataclass
class Desk:
    """The state that the tools of one server share.

    Attributes:
        folder: the folder in which they work.
        children: the commands that they run.
        pages: answers that were not read to the end.
        stopped: scripts in the debugger, by the names that clients have for them.
        begun: the number of scripts that were ever begun, for their names.
    """

    folder: Folder
    children: Children
    pages: Pages = field(default_factory=Pages)
    stopped: dict[str, StoppedScript] = field(default_factory=dict)
    begun: int = 0
    _models: OrderedDict[tuple[object, ...], Any] = field(default_factory=OrderedDict)

    async def run(self, call: Call, words: Sequence[str], keeps_all: bool = True) -> Finished:
        """Run a command for a call, for at most the seconds that the call gives."""
        seconds = call.given.get("seconds", USUAL_SECONDS)
        return await self.children.run(words, call.progress, seconds, keeps_all)

    async def model(self, call: Call, session: Path) -> Any:
        """Return the model of a recorded run.

        Raises:
            ChildError: the file is no session that can be read.
            UsageError: the command printed something else than a model.
        """
        status = session.stat()
        key = (session, status.st_mtime_ns, status.st_size)
        if key not in self._models:
            words = ["report", "--errors=json", "--format=model", self.folder.word(session)]
            done = await self.children.run(words, call.progress, READING_SECONDS)
            model = await anyio.to_thread.run_sync(done.answer)
            if not isinstance(model, dict) or not isinstance(model.get("run"), dict):
                raise UsageError(f"{replay_of(words)}: got something else, expected a model")
            self._models[key] = model
            if len(self._models) > _MOST_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]

    def place(self, place: Sequence[Any] | None) -> dict[str, object]:
        """Return a place of a model as parts of an item."""
        if not place:
            return {"file": None, "line": None}
        return {"file": self.folder.shown(str(place[0])), "line": place[1]}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool.

    Attributes:
        given: its arguments, checked.
        progress: called with the time that it has taken so far.
    """

    given: Mapping[str, Any]
    progress: Progress

    def words_of(self, *names: str) -> list[str]:
        """Return arguments as options of the same names; flags without a value."""
        words = []
        for name in names:
            value = self.given.get(name)
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif isinstance(value, tuple):
                words += [f"{option}={each}" for each in value]
            elif value not in (None, False):
                words.append(f"{option}={value}")
        return words


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that clients can call.

    Attributes:
        help: a text on what it answers, for the model that chooses it.
        answer: the function that answers a call.
        runs_scripts: whether a script of the user's runs for it.
    """

    name: str
    help: str
    parameters: Sequence[Parameter]
    answer: Callable[[Desk, Call], Awaitable[Answer]]
    runs_scripts: bool = False

    @property
    def description(self) -> str:
        """The help; of a tool that runs scripts, also with whose rights they run."""
        if not self.runs_scripts:
            return self.help
        return f"{self.help} The script runs as your own code does, with the rights of the server."


def script_words(desk: Desk, call: Call, name: str = "script") -> list[str]:
    """Return the end of a command line: the script and its arguments."""
    return ["--", desk.folder.word(call.given[name]), *call.given.get("args", ())]


def target_words(desk: Desk, call: Call) -> list[str]:
    """Return the end of a command line that takes a script or a recorded run.

    Raises:
        UsageError: arguments were given for a recorded run.
    """
    target: Path = call.given["target"]
    if target.suffix != ".tkd":
        return script_words(desk, call, "target")
    if call.given.get("args"):
        raise UsageError("args: got some for a recorded run, expected a script; leave them out")
    return [desk.folder.word(target)]
