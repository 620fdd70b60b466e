"""`python opened_session.py FILE.tkd`: the TUI over a recorded session, without a terminal.

Prints the screen; the exit status is 1 where it does not come to show the script and how it ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def screen_of(path: Path) -> list[str]:
    """The lines of the screen, once it shows how the script ended."""
    from tkdebug.instrument.session import Session
    from tkdebug.tui.app import TkdebugApp

    app = TkdebugApp(Session.open(path))
    lines: list[str] = []
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(100):
            await pilot.pause(0.05)
            lines = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
            if "ended" in "\n".join(lines):
                break
    return lines


def main() -> int:
    """Show the session that the first argument names."""
    text = "\n".join(asyncio.run(screen_of(Path(sys.argv[1]))))
    print(text)
    return 0 if "ended" in text else 1


if __name__ == "__main__":
    sys.exit(main())
