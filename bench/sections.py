"""Sections of RESULTS.md: each benchmark replaces its own and leaves the others."""

from __future__ import annotations

import re
from pathlib import Path


def replace_section(path: Path, text: str) -> None:
    """Put `text`, whose first line is a `# title`, in the place of the section of that title."""
    title = text.splitlines()[0]
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = [part.rstrip() + "\n" for part in re.split(r"(?m)^(?=# )", old) if part.strip()]
    kept = [text.rstrip() + "\n" if part.splitlines()[0] == title else part for part in sections]
    if not any(part.splitlines()[0] == title for part in sections):
        kept.append(text.rstrip() + "\n")
    path.write_text("\n".join(kept), encoding="utf-8")
