"""What the app expects of a pane."""

from __future__ import annotations

from textual.containers import Container

from tkdebug.instrument.session import Session
from tkdebug.tui.snapshot import ScriptState, Snapshot


class Pane(Container):
    """Base of what stands under a tab."""

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Show the run as it is now; None for what there is nothing of yet."""
        raise NotImplementedError

    def focus_main(self) -> None:
        """Give the keys to what the pane is about."""
        raise NotImplementedError

    def copied_text(self) -> str:
        """What the clipboard gets of the pane; "" where there is nothing to copy."""
        return ""
