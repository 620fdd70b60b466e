"""What a recorded run comes to, for people and programs: the renderers, by format.

Responsible for the registry of formats; how a format looks is its renderer's, one
file each in `renderers`. A renderer yields its text in pieces, so that a run of a million launches
needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tkdebug.errors import TkError, UsageError
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.renderers import chrome_trace, json_format, junit, sarif, text_format
from tkdebug.instrument.session import Session
from tkdebug.instrument.whole_file import write_whole
from tkdebug.terminal_style import PLAIN_VIEW, View
from tkdebug.terminal_text import visible

Renderer = Callable[[Session, tuple[FaultGroup, ...]], Iterator[str]]
RENDERERS: Mapping[str, Renderer] = {
    "text": text_format.render,
    "json": json_format.render,
    "chrome-trace": chrome_trace.render,
    "sarif": sarif.render,
    "junit": junit.render,
}
# What a file's name says of its format; a Chrome trace ends in .json, too, and has to be asked for.
SUFFIXES: Mapping[str, str] = {
    ".txt": "text",
    ".json": "json",
    ".sarif": "sarif",
    ".xml": "junit",
}


def format_of(path: Path, option: str) -> str:
    """The format that the name of a report says.

    Args:
        path: the report.
        option: by which another format can be asked for.

    Raises:
        UsageError: it says none.
    """
    known = SUFFIXES.get(path.suffix.lower())
    if known is None:
        raise UsageError(
            f"{path}: its name says no format of a report; expected one of "
            f"{', '.join(SUFFIXES)}, or {option} {'|'.join(RENDERERS)}"
        )
    return known


def render(session: Session, format_name: str, view: View = PLAIN_VIEW) -> Iterator[str]:
    """The report of `session` in the format of that name, in pieces.

    Args:
        session: the run.
        format_name: of `RENDERERS`.
        view: how text is shown; other formats are for programs.

    Raises:
        SessionError: the session is damaged.
    """
    faults = session.fault_groups()
    if format_name == "text":
        styled = view.style.is_on
        return (visible(p, styled=styled) for p in text_format.render(session, faults, view))
    # JSON is ASCII and stays as it is.
    return map(visible, RENDERERS[format_name](session, faults))


def write_report(session: Session, path: Path, format_name: str, *, kept: bool = True) -> None:
    """Write the report into the file `path`, whole or not at all.

    Args:
        session: the run.
        path: where to.
        format_name: of `RENDERERS`.
        kept: whether the session will still be there to make the report again.

    Raises:
        TkError: the file cannot be written.
    """
    try:
        write_whole(path, render(session, format_name))
    except OSError as error:
        remedy = (
            f"`tkdebug report {session.path}` makes it again"
            if kept
            else "`tkdebug run -o run.tkd` keeps a run, so that its report can be made again"
        )
        raise TkError(f"{path}: report cannot be written ({error.strerror}); {remedy}") from error
