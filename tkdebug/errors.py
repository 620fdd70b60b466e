"""Every error tkdebug raises on purpose derives from `TkError`.

The text of an error follows one order: `file:line`, what happened, what was got against what was
expected, the next step; a source line, if there is one, is below with a caret. The CLI prints that
text alone, without a traceback of tkdebug's.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tkdebug.terminal.text import visible, visible_line

MAX_NAMED = 20
ERROR_SCHEMA = 1
# A message begins with the place that it is about, after the option that names it.
_PLACE = re.compile(r"(?:--?\w[\w-]* )?(?P<file>[^\s:]*[./][^\s:]*)(?::(?P<line>\d+))?: ")
_SPACED_PLACE = re.compile(r"(?:--?\w[\w-]* )?(?P<file>[^:]*[./][^:]*?)(?::(?P<line>\d+))?: ")
_EXPECTATION = re.compile(r"\bgot (?P<got>.+?), expected (?P<expected>.+?)(?=; |$)")
_CHOICES = re.compile(r"invalid choice: (?P<got>.+?) \(choose from (?P<expected>.+?)\)")


def instead_of(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a similar one, or those that are known."""
    import difflib  # only where something is wrong

    names = list(dict.fromkeys(map(visible_line, known)))
    near = difflib.get_close_matches(name, names, 1, 0.7)
    if near:
        return f"; did you mean {near[0]}?"
    more = f", … ({len(names)} in all)" if len(names) > MAX_NAMED else ""
    return f"; there are {', '.join(names[:MAX_NAMED])}{more}" if names else ""


def _start_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None  # it has been deleted


# Where the command was typed: scripts may go elsewhere while they run.
_START_FOLDER = _start_folder()


def start_folder() -> str | None:
    """Return the folder in which this process began, or None if it has been deleted since."""
    return _START_FOLDER


def shown_path(file: str) -> str:
    """A path as one would type it: relative to the process's first folder if it lies below that.

    A cell of IPython or a notebook has its name there, such as `Cell In[3]`. Characters that would
    act on a terminal are written out.
    """
    return visible_line(_cell_name(file) or _from_start_folder(file))


def _from_start_folder(file: str) -> str:
    if _START_FOLDER is None or not os.path.isabs(file):
        return file
    try:
        relative = os.path.relpath(file, _START_FOLDER)
    except ValueError:
        return file  # on another drive
    return file if relative.startswith(os.pardir) else relative


def _cell_name(file: str) -> str | None:
    shell_of = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if shell_of is None else shell_of()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    words = None if name_of is None else name_of(file)
    return " ".join(words) if words else None


def error_text(error: BaseException) -> str:
    """Return the kind and the message of an exception, which may be of the user's own class."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:
        return f"{kind}, whose message cannot be shown"


class TkError(Exception):
    """Base of all errors that tkdebug raises on purpose.

    Its text may quote anything (paths, source lines, an assembler's log) and is printed by Python
    itself if a script lets it through: so it is made `visible` here.
    """

    def __str__(self) -> str:
        return visible(super().__str__())


class UsageError(TkError):
    """The command line or an API call is wrong; the CLI exits with status 2."""


class NothingStoppedError(UsageError):
    """A command of the debugger needs a stop, and nothing is stopped."""


class SessionError(TkError):
    """A session file cannot be read: not a session, truncated, or from a newer tkdebug."""


class LaunchError(TkError):
    """A kernel launch cannot be made as asked (grid, arguments, options)."""


class UnsupportedError(TkError):
    """A feature of the language or runtime that this tkdebug does not have, by name."""


class Terminated(BaseException):
    """A request to end this process, by the signal whose number it carries."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(number)


class IRError(TkError):
    """IR text or structure that breaks a rule of its op; carries the printed op as a note."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a call chain: the `line` (1-based) of `file` inside `function`."""

    file: str
    line: int
    function: str

    def __reduce__(self) -> tuple[type[Frame], tuple[str, int, str]]:
        # A session gets thousands: that of frozen dataclasses asks for their fields each time.
        return Frame, (self.file, self.line, self.function)


class CompileError(TkError):
    """A kernel does not compile.

    Args:
        message: what was got against what was expected, and what to write instead.
        frames: call chain, outermost first; the last frame is where the error is. Empty when the
            error has no place in a source file.
        column: 1-based column in the last frame's line, 0 when unknown.
        source_line: text of that line, or None when the file cannot be read.
        kernel: name of the kernel that was being compiled.
    """

    def __init__(
        self,
        message: str,
        frames: tuple[Frame, ...] = (),
        column: int = 0,
        source_line: str | None = None,
        kernel: str | None = None,
    ) -> None:
        self.message = message
        self.frames = frames
        self.column = column
        self.source_line = source_line
        self.kernel = kernel
        super().__init__(self._render())

    @property
    def error_message(self) -> str:
        """The message without its place, by upstream's name for it."""
        return self.message

    def _render(self) -> str:
        if not self.frames:
            return self.message
        where = self.frames[-1]
        lines = [f"{_cell_name(where.file) or where.file}:{where.line}: {self.message}"]
        if self.source_line is not None:
            lines.append(f"    {self.source_line}")
            if self.column:
                lines.append("    " + " " * (self.column - 1) + "^")
        lines.extend(
            f"  called from {_cell_name(frame.file) or frame.file}:{frame.line} in {frame.function}"
            for frame in reversed(self.frames[:-1])
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error in parts; a part that it does not have is None.

    Attributes:
        kind: its class in a word, such as "usage" or "compile".
        message: its whole text.
        next: the next step for the user, None if the message has none.
    """

    kind: str
    message: str
    file: str | None = None
    line: int | None = None
    got: str | None = None
    expected: str | None = None
    next: str | None = None

    def as_json(self) -> str:
        """Return the record as one line, as `--errors json` prints it."""
        import json  # only where something is wrong

        parts = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"schema": ERROR_SCHEMA, "error": parts})


def error_record(error: TkError | str) -> ErrorRecord:
    """Return the parts of an error, by the order that all texts of errors follow.

    Args:
        error: the error; a text for a mistake on the command line.
    """
    text = str(error)
    first = text.partition("\n")[0]
    frame = error.frames[-1] if isinstance(error, CompileError) and error.frames else None
    place = _place_in(first)
    file, line = (place["file"], place["line"]) if place is not None else (None, None)
    found = _EXPECTATION.search(first) or _CHOICES.search(first)
    rest = first[found.end() :] if found is not None else first
    after = rest.partition("; ")[2].strip()
    return ErrorRecord(
        kind=_kind_of(error),
        message=text,
        file=file if frame is None else frame.file,
        line=(None if line is None else int(line)) if frame is None else frame.line,
        got=None if found is None else found["got"],
        expected=None if found is None else found["expected"],
        next=after or None,
    )


def _place_in(text: str) -> re.Match[str] | None:
    """Match the place that a message begins with; None if it begins with something else."""
    place = _PLACE.match(text)
    if place is None:
        place = _SPACED_PLACE.match(text)
        if place is not None and not os.path.exists(place["file"]):
            return None
    return place


def _kind_of(error: TkError | str) -> str:
    if isinstance(error, str):
        return "usage"
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() or "error"
