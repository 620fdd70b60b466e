"""Times that the programs of `bench/programs.py` report: of their steps, and of their end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path


def write_times(steps: Sequence[float]) -> None:
    """Write the times into the file that PROGRAM_TIMES names; nothing without that variable."""
    path = os.environ.get("PROGRAM_TIMES")
    if path:
        times = {"steps": list(steps), "last_line_s": time.time()}
        Path(path).write_text(json.dumps(times), encoding="utf-8")
