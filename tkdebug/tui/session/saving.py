"""Where a temporary recording is saved when the user keeps it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path


def unused_path(folder: Path, script: str) -> Path:
    """A file of `folder` that is not there yet, named after `script`, whatever that says."""
    stem = re.sub(r"[^\w.-]", "_", Path(script).stem)[:60].strip(".-_") or "run"
    names = (f"{stem}{'' if number == 1 else f'-{number}'}.tkd" for number in itertools.count(1))
    return next(path for path in map(folder.joinpath, names) if not path.exists())
