"""The command that opens the user's editor at a line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath

# Editors that take FILE:LINE, and the words that lead it in; all others take +LINE FILE.
_WITH_PLACE: Mapping[str, tuple[str, ...]] = {
    "code": ("--goto",),
    "codium": ("--goto",),
    "cursor": ("--goto",),
    "subl": (),
    "zed": (),
    "hx": (),
}


def edit_command(file: str, line: int, environ: Mapping[str, str]) -> list[str] | str:
    """Return the command that opens a file at a line, or why there is none.

    Args:
        file: as it was recorded, maybe on another machine.
        line: its line.
        environ: variables, of which VISUAL and EDITOR name the editor.
    """
    path = Path(file)
    if not path.is_absolute() or not path.is_file():
        return f"{path.name or file}: no such file on this machine"
    try:
        words = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or "")
    except ValueError as error:
        return f"VISUAL or EDITOR cannot be read as a command: {error}"
    if not words:
        found = next(filter(shutil.which, ("editor", "nano", "vi")), None)
        words = [found] if found else []
    if not words or shutil.which(words[0]) is None:
        return "no editor: set VISUAL or EDITOR to one"
    name = PurePath(words[0]).stem.lower()
    if name in _WITH_PLACE:
        return [*words, *_WITH_PLACE[name], f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]
