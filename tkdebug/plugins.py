"""Plugins that other distributions add to tkdebug by entry points, group by group.

Responsible for finding, loading and naming plugins; the code that uses a group defines its plugins,
and where they go. Nothing is looked up before a group is asked for, and metadata is read once for
all groups.

Invariant: a plugin that raises, exits or hangs is named with its distribution in one line. One that
raises is skipped from there on; its caller goes on.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

from tkdebug.terminal.text import tell, visible_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal[
    "tkdebug.passes",
    "tkdebug.checks",
    "tkdebug.renderers",
    "tkdebug.hooks",
    "tkdebug.remarks",
    "tkdebug.instrumentation",
]
_PREFIX = "tkdebug."
LONG_IMPORT_S = 5.0
_REMEDY = "Ctrl-C ends it, and tkdebug goes without it once its distribution is uninstalled"
_T = TypeVar("_T")


class Plugin:
    """One entry point.

    Attributes:
        problem: why it is skipped, "" while it is not.
    """

    def __init__(self, entry: EntryPoint) -> None:
        self.name = entry.name
        self.group = entry.group
        distribution = entry.dist
        self.distribution = "?" if distribution is None else distribution.name
        self.version = "" if distribution is None else distribution.version
        self.problem = ""
        self._entry = entry
        self._reported = False

    def __str__(self) -> str:
        where = f"{self.distribution} {self.version}".rstrip()
        return f"{self.group} plugin {self.name!r} of {where}"

    def load(self, kind: type[_T]) -> _T | None:
        """Return the entry point's object; None, `problem` set, if it fails or is no `kind`."""
        if self.problem:
            return None
        try:
            with self._named_while_it_loads():
                value = self._entry.load()
        except (Exception, SystemExit) as error:  # another distribution's code may raise anything
            self.problem = _description(error)
            return None
        if not isinstance(value, kind):
            expected = f"{kind.__module__}.{kind.__qualname__}"
            self.problem = f"{self._entry.value} is a {type(value).__name__}, expected a {expected}"
            return None
        return value

    @contextlib.contextmanager
    def _named_while_it_loads(self) -> Iterator[None]:
        """Name the plugin on stderr if its import is slow, interrupted, or ends the process."""
        place = (os.getpid(), threading.get_ident())
        end_process = os._exit

        def named_exit(status: int) -> NoReturn:
            if (os.getpid(), threading.get_ident()) == place:
                self._tell(f"it ends this process, by os._exit({status})")
            end_process(status)

        timer = threading.Timer(LONG_IMPORT_S, self._tell, [f"its import takes long; {_REMEDY}"])
        timer.daemon = True
        timer.start()
        os._exit = named_exit
        try:
            yield
        except KeyboardInterrupt:
            self._tell("its import was interrupted")
            raise
        finally:
            os._exit = end_process
            timer.cancel()

    def _tell(self, text: str) -> None:
        tell(visible_line(f"{self}: {text}"))

    def fail(self, reason: BaseException | str) -> None:
        """Skip the plugin from now on, and report that once."""
        self.problem = reason if isinstance(reason, str) else _description(reason)
        if not self._reported:
            self._reported = True
            self._tell(f"{self.problem}; it is skipped")


def _description(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


@cache
def found() -> Mapping[str, tuple[Plugin, ...]]:
    """The plugins of this Python by group, in the order of their names; none is loaded."""
    from importlib import metadata  # 20 ms in a process that has not imported torch

    groups: dict[str, list[Plugin]] = {}
    try:
        entries = metadata.entry_points()
        for group in entries.groups:
            if group.startswith(_PREFIX):
                groups[group] = [Plugin(entry) for entry in entries.select(group=group)]
    except Exception as error:  # metadata may be of anybody's making
        tell(visible_line(f"no plugins: metadata cannot be read: {_description(error)}"))
        return {}
    return {
        group: tuple(sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution)))
        for group, plugins in groups.items()
    }


def names(group: Group) -> tuple[str, ...]:
    """The names of a group's plugins; none is loaded."""
    return tuple(dict.fromkeys(plugin.name for plugin in found().get(group, ())))


class WithPlugins(Collection[str]):
    """Names of tkdebug's own and those of a plugin group, which is looked up only if needed."""

    def __init__(self, own: tuple[str, ...], group: Group) -> None:
        self._own = own
        self._group = group

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in names(self._group)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._own, *names(self._group))))

    def __len__(self) -> int:
        return len(list(iter(self)))


def loaded(
    group: Group, kind: type[_T], taken: Collection[str] = ()
) -> Iterator[tuple[Plugin, _T]]:
    """Yield the usable plugins of a group, each with the object that it adds; report others.

    Args:
        group: the group's name.
        kind: the class of each.
        taken: names that tkdebug uses itself; plugins of these names are skipped.
    """
    for plugin in found().get(group, ()):
        if plugin.problem:
            continue
        if plugin.name in taken:
            plugin.fail("tkdebug has one of that name")
            continue
        value = plugin.load(kind)
        if value is None:
            plugin.fail(plugin.problem)
        else:
            yield plugin, value
