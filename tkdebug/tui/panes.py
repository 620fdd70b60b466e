"""The panes, in the order of their tabs and of the digit keys from 0; a new one is a line here."""

from __future__ import annotations

from tkdebug.tui.advice import AdvicePane
from tkdebug.tui.debug.pane import DebugPane
from tkdebug.tui.faults import FaultsPane
from tkdebug.tui.home.pane import HomePane
from tkdebug.tui.kernel.pane import KernelPane
from tkdebug.tui.launches.pane import LaunchesPane
from tkdebug.tui.output import OutputPane
from tkdebug.tui.pane import Pane
from tkdebug.tui.passes import PassesPane
from tkdebug.tui.watches import WatchesPane

PANES: tuple[type[Pane], ...] = (
    HomePane,
    LaunchesPane,
    FaultsPane,
    KernelPane,
    OutputPane,
    PassesPane,
    DebugPane,
    AdvicePane,
    WatchesPane,
)
