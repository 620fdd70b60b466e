"""Reports on a recorded run, for people and programs: the renderers, by format.

Responsible for choosing a format, ours (`renderers/formats.py`) or a plugin's; renderers decide
how it looks. A renderer yields its text in pieces, so that a run of a million launches needs no
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tkdebug.errors import TkError, UsageError
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.renderers.formats import REPORTS
from tkdebug.instrument.session import Session
from tkdebug.plugins import Plugin, loaded, names
from tkdebug.process.named_files import write_whole
from tkdebug.terminal.display import PLAIN_VIEW, View
from tkdebug.terminal.text import visible

Renderer = Callable[[Session, tuple[FaultGroup, ...]], Iterator[str]]


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """A format that an entry point of `tkdebug.renderers` adds, by the entry point's name.

    Attributes:
        render: yields the report in pieces, so that a run of a million launches needs no memory.
        suffixes: the suffixes of files that are written in this format by default.
    """

    render: Renderer
    suffixes: tuple[str, ...] = ()


RENDERERS: Mapping[str, Renderer] = {one.name: one.renderer() for one in REPORTS}
# The format that a file's name says.
SUFFIXES: Mapping[str, str] = {one.suffix: one.name for one in REPORTS if one.suffix}


def _plugin_renderer(format_name: str) -> Renderer:
    """The renderer of a plugin; its exceptions name it."""
    formats = loaded("tkdebug.renderers", ReportFormat, RENDERERS)
    for plugin, added in formats:
        if plugin.name == format_name:
            return partial(_guarded, plugin, added.render)
    raise UsageError(f"no report format {format_name!r}; expected one of {', '.join(RENDERERS)}")


def _guarded(
    plugin: Plugin, render: Renderer, session: Session, faults: tuple[FaultGroup, ...]
) -> Iterator[str]:
    try:
        yield from render(session, faults)
    except TkError:
        raise  # the session is damaged
    except Exception as error:
        raise TkError(f"{plugin}: {type(error).__name__}: {error}") from error


def format_of(path: Path, option: str) -> str:
    """The format that the name of a report says.

    Args:
        path: the report.
        option: the option by which another format can be asked for.

    Raises:
        UsageError: the name says none.
    """
    suffix = path.suffix.lower()
    known = SUFFIXES.get(suffix)
    if known is None:
        for plugin, added in loaded("tkdebug.renderers", ReportFormat, RENDERERS):
            if suffix in added.suffixes:
                return plugin.name
        raise UsageError(
            f"{path}: its name says no format of a report; expected one of "
            f"{', '.join(SUFFIXES)}, or {option} {'|'.join(format_names())}"
        )
    return known


def format_names() -> tuple[str, ...]:
    """All formats, plugins' after tkdebug's."""
    return tuple(dict.fromkeys((*RENDERERS, *names("tkdebug.renderers"))))


def render(session: Session, format_name: str, view: View = PLAIN_VIEW) -> Iterator[str]:
    """The report of `session` in the format of that name, in pieces.

    Args:
        session: the run.
        format_name: a name of `RENDERERS`.
        view: how text is shown; other formats are for programs.

    Raises:
        SessionError: the session is damaged.
        UsageError: the plugin of that format cannot be loaded.
    """
    faults = session.fault_groups()
    if format_name == "text":
        from tkdebug.instrument.renderers import text_format

        styled = view.style.is_on
        return (visible(p, styled=styled) for p in text_format.render(session, faults, view))
    renderer = RENDERERS.get(format_name) or _plugin_renderer(format_name)
    # JSON is ASCII and stays as it is.
    return map(visible, renderer(session, faults))


def write_report(session: Session, path: Path, format_name: str, *, kept: bool = True) -> None:
    """Write the report into the file `path`, whole or not at all.

    Args:
        session: the run.
        path: the file to write.
        format_name: a name of `RENDERERS`.
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
