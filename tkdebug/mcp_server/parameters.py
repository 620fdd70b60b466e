"""Parameters of tools: their JSON Schema, and what clients give for them, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from tkdebug.errors import UsageError, instead_of
from tkdebug.mcp_server.answers import LEAST_BYTES, MOST_BYTES, USUAL_BYTES

Kind = Literal["text", "integer", "flag", "words", "file", "session"]
_MOST_CHARS = 2000
_MOST_WORDS = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TYPES: Mapping[Kind, Mapping[str, object]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "flag": {"type": "boolean"},
    "words": {"type": "array", "items": {"type": "string"}, "maxItems": _MOST_WORDS},
    "file": {"type": "string"},
    "session": {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool.

    Attributes:
        kind: the kind of its value; a "file" is there, a "session" is a file that is written.
        choices: the texts that are taken, () for any.
        pattern: what a text, or each of several, matches; "" for anything.
        example: an example of such a text.
        low: the least number.
        high: the highest.
    """

    name: str
    help: str
    kind: Kind = "text"
    is_required: bool = False
    choices: Sequence[str] = ()
    pattern: str = ""
    example: str = ""
    low: int = 0
    high: int = 0

    def schema(self) -> dict[str, object]:
        """Return its JSON Schema."""
        found: dict[str, object] = {**_TYPES[self.kind], "description": self.help}
        if self.choices:
            found["enum"] = [*self.choices]
        if self.kind == "integer":
            found |= {"minimum": self.low, "maximum": self.high}
        return found

    def read(self, value: object, folder: Folder) -> object:
        """Return what a client gave, in the type that the tool takes.

        Raises:
            UsageError: it is not what is expected.
        """
        match self.kind:
            case "flag" if isinstance(value, bool):
                return value
            case "integer" if isinstance(value, int) and not isinstance(value, bool):
                if self.low <= value <= self.high:
                    return value
            case "words" if isinstance(value, list) and len(value) <= _MOST_WORDS:
                return tuple(self._text(each) for each in value)
            case "text" if isinstance(value, str):
                return self._text(value)
            case "file" | "session" if isinstance(value, str):
                return self._path(value, folder)
        raise UsageError(f"{self.name}: got {_shown(value)}, expected {self._expected()}")

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise UsageError(f"{self.name}: got {_shown(value)}, expected texts")
        if len(value) > _MOST_CHARS or _CONTROL.search(value):
            raise UsageError(
                f"{self.name}: got {_shown(value)}, expected one line of at most {_MOST_CHARS} "
                "characters"
            )
        if self.choices and value not in self.choices:
            hint = instead_of(value, self.choices)
            raise UsageError(f"{self.name}: got {_shown(value)}, expected {self._expected()}{hint}")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise UsageError(f"{self.name}: got {_shown(value)}, expected {self._expected()}")
        return value

    def _path(self, value: str, folder: Folder) -> Path:
        try:
            path = folder.inside(self._text(value))
        except UsageError as error:
            text = str(error)
            raise UsageError(
                text if text.startswith(self.name) else f"{self.name}: {text}"
            ) from None
        if self.kind == "file" and not path.is_file():
            raise UsageError(f"{self.name}: got {_shown(value)}, expected a file that is there")
        if self.kind == "session" and (path.suffix != ".tkd" or path.is_dir()):
            raise UsageError(f"{self.name}: got {_shown(value)}, expected a name such as run.tkd")
        return path

    def _expected(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind == "integer":
            return f"a number from {self.low} to {self.high}"
        if self.kind == "words":
            return f"a list of at most {_MOST_WORDS} texts"
        if self.pattern:
            return f"a text such as {self.example}"
        return {"flag": "true or false", "text": "a text"}.get(self.kind, "a path")


LIMIT = Parameter(
    "limit",
    f"the most bytes of the answer, {USUAL_BYTES} by default; `more` has the rest",
    "integer",
    low=LEAST_BYTES,
    high=MOST_BYTES,
)


def schema_of(parameters: Sequence[Parameter]) -> dict[str, object]:
    """Return the JSON Schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {each.name: each.schema() for each in (*parameters, LIMIT)},
        "required": [each.name for each in parameters if each.is_required],
        "additionalProperties": False,
    }


def read_arguments(
    parameters: Sequence[Parameter], given: Mapping[str, object], folder: Folder
) -> dict[str, Any]:
    """Return the arguments of a call by name; null is the same as left out.

    Raises:
        UsageError: one is missing, unknown, or not what is expected.
    """
    known = {each.name: each for each in (*parameters, LIMIT)}
    for name in given:
        if name not in known:
            raise UsageError(
                f"got an argument {_shown(name)}, expected only those of the tool"
                f"{instead_of(name, known)}"
            )
    read = {name: known[name].read(v, folder) for name, v in given.items() if v is not None}
    for each in parameters:
        if each.is_required and each.name not in read:
            raise UsageError(f"{each.name}: got nothing, expected {each.help}")
    return read


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, str) or _CONTROL.search(value) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


_MOST_PATH_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder and what lies in it.

    Attributes:
        root: the folder, without symbolic links.
    """

    root: Path

    def inside(self, name: str) -> Path:
        """Return the path of what a client calls `name`, without symbolic links.

        Raises:
            UsageError: it lies elsewhere, or is no name of a file.
        """
        shown = repr(name[:80])
        if not name or len(name) > _MOST_PATH_CHARS or "\0" in name:
            raise UsageError(f"got {shown}, expected a path; give one that is relative")
        parts = {*PurePosixPath(name).parts, *PureWindowsPath(name).parts}
        absolute = os.path.isabs(name) or PureWindowsPath(name).anchor or name.startswith("~")
        if absolute or ".." in parts:
            raise UsageError(f"got {shown}, expected a path inside of the folder of the server")
        try:
            path = Path(os.path.realpath(self.root / name))
        except (OSError, ValueError):
            raise UsageError(f"got {shown}, expected a path that can be looked up") from None
        if not path.is_relative_to(self.root):
            raise UsageError(
                f"got {shown}, a link to elsewhere, expected a path inside of the folder of the "
                "server"
            )
        return path

    def word(self, path: Path) -> str:
        """Return a path inside as a word of a command line that runs in the folder."""
        name = str(path.relative_to(self.root))
        return f"./{name}" if name.startswith("-") else name

    def shown(self, file: str) -> str:
        """Return a file as answers name it: relative where it lies inside."""
        try:
            return str(Path(file).relative_to(self.root))
        except ValueError:
            return file
