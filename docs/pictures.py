"""Makes docs/tui.svg: the TUI on a recorded run of examples/missing_mask.py.

python docs/picture.py
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot

from tkdebug.instrument.reader import Session
from tkdebug.tui.app import TkdebugApp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "tui.svg"
SIZE = (132, 34)


def record(session: Path) -> None:
    """Run the example with the faulty kernel."""
    command = [sys.executable, "-m", "tkdebug", "run", "--no-tui", "-o", str(session)]
    subprocess.run([*command, "examples/missing_mask.py"], cwd=ROOT, check=False)


async def draw(session: Path) -> str:
    """The kernel pane at the line of the fault, as SVG."""
    with Session.open(session) as opened:
        app = TkdebugApp(opened)
        async with app.run_test(size=SIZE) as pilot:
            await settle(pilot)
            # The faults, and from the first one to its line in the kernel.
            await pilot.press("2")
            await settle(pilot)
            await pilot.press("enter")
            await settle(pilot)
            return app.export_screenshot(title="tkdebug view run.tkd")


async def settle(pilot: Pilot[None]) -> None:
    """Give the threads of the app time to read and the panes time to show."""
    for _ in range(10):
        await pilot.pause(0.1)


def main() -> None:
    """Record, draw, write."""
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "run.tkd"
        record(session)
        svg = asyncio.run(draw(session))
    # The fonts would be fetched from elsewhere; any monospaced one does.
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    # The picture is the same whoever makes it, wherever the checkout lies.
    svg = svg.replace(str(ROOT).replace("/", "&#x2F;") + "&#x2F;", "").replace(f"{ROOT}/", "")
    PICTURE.write_text(svg, encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
