"""The user's editor, at a line."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from textual.app import App, SuspendNotSupported

# Editors that take FILE:LINE, and the words that lead it in; all others take +LINE FILE.
_WITH_PLACE: Mapping[str, tuple[str, ...]] = {
    "code": ("--goto",),
    "codium": ("--goto",),
    "cursor": ("--goto",),
    "subl": (),
    "zed": (),
    "hx": (),
}


def edit(app: App[Any], file: str, line: int) -> str:
    """Run the editor in the app's terminal, until it ends.

    Returns:
        Why the file was not edited, in words; "" if it may have been.
    """
    command = edit_command(file, line, os.environ)
    if isinstance(command, str):
        return command
    try:
        with app.suspend():
            status = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        return "the editor needs the terminal, which is not tkdebug's to give"
    except OSError as error:
        return f"{command[0]} cannot be started: {error.strerror}"
    return f"{command[0]} ended with status {status}" if status else ""


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
