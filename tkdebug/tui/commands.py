"""The command palette: actions of the pane in sight and of the app, kernels, findings, lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider

from tkdebug.instrument.home.records import Place
from tkdebug.tui.drawing.display import shown
from tkdebug.tui.home.pane import HomePane
from tkdebug.tui.pane import Pane
from tkdebug.tui.tabs import PaneTabs

_MOST_HITS = 60
_MOST_LINES = 4_000
# The action that opens the palette is no command in it.
_LEFT_OUT = frozenset(("command_palette", "interrupt_nothing", "leave", "tab"))


class Command(NamedTuple):
    """A line of the palette."""

    name: str
    help: str
    run: Callable[[], object]


class RunCommands(Provider):
    """Everything that can be done, and everything that can be looked at, in one list."""

    async def startup(self) -> None:
        """Collect what there is."""
        self._commands = [*self._places(), *self._actions()]

    async def discover(self) -> Hits:
        """Show actions and findings before anything is typed."""
        for command in self._commands[:_MOST_HITS]:
            yield DiscoveryHit(command.name, command.run, help=command.help)

    async def search(self, query: str) -> Hits:
        """Find commands whose name has the letters of the query in order."""
        matcher = self.matcher(query)
        for command in (*self._commands, *self._lines(query)):
            score = matcher.match(command.name)
            if score > 0:
                name = matcher.highlight(command.name)
                yield Hit(score, name, command.run, text=command.name, help=command.help)

    @property
    def _tabs(self) -> PaneTabs:
        return self.app.query_one(PaneTabs)

    def _actions(self) -> Iterator[Command]:
        """Yield a command for each key that works here."""
        app: App[object] = self.app
        for number, pane in enumerate(self._tabs.panes):
            run = partial(app.run_action, f"tab('{pane.TAB}')")
            yield Command(f"Open {pane.TAB}", f"key {number}", run)
        seen: set[str] = set()
        for node, binding, is_enabled, _ in self.screen.active_bindings.values():
            name = binding.action.partition("(")[0].rpartition(".")[2]
            is_ours = node is app or any(isinstance(one, Pane) for one in node.ancestors_with_self)
            if not is_ours or not is_enabled or not binding.description or binding.action in seen:
                continue
            if name in _LEFT_OUT:
                continue
            seen.add(binding.action)
            key = app.get_key_display(binding)
            run = partial(app.run_action, binding.action, node)
            yield Command(binding.description, f"key {key}", run)

    def _places(self) -> Iterator[Command]:
        """Yield a command for each finding and kernel, which goes there."""
        home = self._tabs.get(HomePane)
        index = home.index
        if index is None:
            return
        model = index.model
        for finding in index.findings:
            place = index.place_name(finding.place)
            if finding.kind == "advice":
                remark = model.remarks[finding.number]
                name = f"◆ {place} {remark.kind}"
                said = f"{finding.kernel}: {remark.message}"
            else:
                fault = model.faults[finding.number]
                name = f"{'✖' if finding.kind == 'fault' else '▲'} {place} {fault.kind} {fault.at}"
                said = f"{finding.kernel}: {fault.message}"
            run = partial(self._go, finding.variant, finding.kernel, finding.place)
            yield Command(shown(name, 100), shown(said, 160), run)
        for kernel in model.kernels:
            share = f"{100 * kernel.share:.0f} % of the time" if kernel.basis else "not launched"
            run = partial(self._go, "", kernel.name, None)
            yield Command(shown(f"kernel {kernel.name}", 100), share, run)

    def _lines(self, query: str) -> Iterator[Command]:
        """Yield a command for each line of the shown kernel, once the query has two characters."""
        home = self._tabs.get(HomePane)
        index, sheet = home.index, home.sheet
        if index is None or sheet is None or len(query) < 2:
            return
        variant = "" if sheet.variant is None else sheet.variant.key
        for row in sheet.rows(frozenset())[:_MOST_LINES]:
            if row.kind == "line" and row.text.strip():
                name = f"{index.place_name(row.place)} {row.text.strip()}"
                run = partial(self._go, variant, sheet.name, row.place)
                yield Command(shown(name, 160), sheet.name, run)

    async def _go(self, variant: str, kernel: str, place: Place | None) -> None:
        """Show a line at home."""
        (await self._tabs.ready(HomePane)).go_to(variant, kernel, place)
        await self._tabs.open(HomePane.TAB)
