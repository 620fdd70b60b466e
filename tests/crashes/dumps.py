"""Real core dumps, and what the lines of the script that made them are for."""

import lzma
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden" / "core_dumps"
SCRIPT = Path(__file__).parent / "crashing.py"
LINES = {
    text.partition("# ")[2]: number
    for number, text in enumerate(SCRIPT.read_text().splitlines(), start=1)
    if "# crash: " in text or "# chain: " in text
}


@cache
def dump_bytes(name: str) -> bytes:
    """The dump of one case, by the name of its file."""
    return lzma.decompress((FOLDER / f"h200_580_{name}.core.xz").read_bytes())
