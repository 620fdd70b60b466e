"""Skills for agents: a folder each, with a SKILL.md, and how they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from tkdebug.errors import UsageError

FILE = "SKILL.md"


def skills() -> dict[str, str]:
    """Return the text of each skill by its name."""
    folders = sorted(files(__name__).iterdir(), key=lambda folder: folder.name)
    found = {each.name: each / FILE for each in folders if each.is_dir()}
    return {name: file.read_text("utf-8") for name, file in found.items() if file.is_file()}


def install(to: Path, *, force: bool) -> Iterator[Path]:
    """Write the skills into a folder, and yield each file that was written.

    Args:
        to: the folder of skills.
        force: whether files are written over that are there and differ.

    Raises:
        UsageError: one is there and differs, or cannot be written.
    """
    texts = {to / name / FILE: text for name, text in skills().items()}
    try:
        if not force:
            for file, text in texts.items():
                if file.exists() and file.read_text("utf-8", "replace") != text:
                    raise UsageError(
                        f"{file}: is there and differs; "
                        "`tkdebug skills install --force` writes over it"
                    )
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            yield file
    except OSError as error:
        name = error.filename or to
        raise UsageError(f"{name}: cannot be written ({error.strerror})") from None
