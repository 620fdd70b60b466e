"""Makes tkdebug/findings/fault_kinds.json: what `tkdebug explain` says, by docs/faults.md.

python docs/fault_kinds.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGE = Path(__file__).with_name("faults.md")
FILE = Path(__file__).parents[1] / "tkdebug" / "findings" / "fault_kinds.json"
_ROW = re.compile(
    r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE
)
_SECTION = re.compile(r"^### `([\w-]+)`\n\n(.*?)(?=^#{2,3} |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\((?:#|[\w/]+\.md)[^)]*\)")
_COLUMNS = ("summary", "severity", "interpreted", "on_a_gpu")


def text() -> str:
    """Return what the file should have.

    Raises:
        ValueError: a kind has a row and no section, or a section and no row.
    """
    page = PAGE.read_text("utf-8")
    sections = {name: _LINK.sub(r"\1", body).strip() for name, body in _SECTION.findall(page)}
    rows = {name: dict(zip(_COLUMNS, cells, strict=True)) for name, *cells in _ROW.findall(page)}
    if rows.keys() != sections.keys():
        raise ValueError(f"not in both: {sorted(rows.keys() ^ sections.keys())}")
    kinds = {name: {**row, "text": sections[name]} for name, row in rows.items()}
    return json.dumps(kinds, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
