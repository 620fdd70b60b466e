"""The words of a command line that are the script's, by one rule for all commands.

Options of tkdebug's stand before the script; everything after it is the script's, as with Python.
A recorded run has no arguments, so options may stand after one, too. Not left to argparse, whose
idea of where `--` and options after a positional belong has changed between Python releases.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tkdebug.named_files import open_regular
from tkdebug.terminal_text import tell

_OF_SCRIPTS = ("run", "debug", "passes", "lines", "advise", "compare")
_OF_RECORDED_RUNS = ("passes", "lines", "advise")
_RECORDED_SUFFIXES = (".tkd", ".cubin")
_RECORDED_HEADS = (b"SQLite format 3\0", b"\x7fELF")
_FOR_BOTH = ("-h", "--help", "-m", "-c")


@dataclass(frozen=True, slots=True)
class ScriptWords:
    """A script or a recorded run, as a command line names it.

    Attributes:
        target: a script, a module, code, "-" for stdin, or a recorded run.
        argv: the script's arguments.
    """

    target: str
    argv: tuple[str, ...]
    is_module: bool = False
    is_code: bool = False


def split(
    argv: Sequence[str], commands: Mapping[str, argparse.ArgumentParser]
) -> tuple[list[str], list[str]]:
    """Our own words, and those from the script or `-m` on."""
    words = list(argv)
    name = words[0] if words else ""
    if name not in _OF_SCRIPTS:
        return words, []
    options = commands[name]._actions  # noqa: SLF001
    with_value = {text for one in options if one.nargs is None for text in one.option_strings}
    at = 1
    while at < len(words) and words[at].startswith("-") and not _begins_script(name, words[at]):
        at += 2 if words[at] in with_value else 1
    own, script = words[:at], words[at:]
    if name == "compare" and "--compilers" not in own:
        return words, []
    if script and name in _OF_RECORDED_RUNS and _is_recorded(script[0]):
        return own + script[1:], script[:1]
    return own, script


def script_words(
    command: argparse.ArgumentParser, words: Sequence[str], expected: str
) -> ScriptWords:
    """Read the words from the script on; end the process where they name none.

    Args:
        command: the parser of the command.
        words: those of `split`.
        expected: what to give.
    """
    first = words[0] if words else ""
    option = next((one for one in ("--code", "-c") if first.startswith(one)), first)
    is_module, is_code = option == "-m", option in ("--code", "-c")
    rest = list(words[1:] if first in ("-m", "--", "-c", "--code") else words)
    if is_code and first != option:  # --code=code, and as Python takes it, too, -c"code"
        rest[0] = first.removeprefix("--code=" if option == "--code" else option)
    if not rest:
        command.error(f"give {expected}")
    return ScriptWords(rest[0], tuple(rest[1:]), is_module, is_code)


def tell_own_options(command: argparse.ArgumentParser, name: str, script: ScriptWords) -> None:
    """Name words after the script that look like options of the command, but are the script's."""
    known = command._option_string_actions.keys() - {*_FOR_BOTH}  # noqa: SLF001
    own = [word for word in script.argv if word.partition("=")[0] in known]
    if own:
        tell(
            f"{name}: {' '.join(own)} after {script.target} is the script's; options of tkdebug's "
            "stand before the script"
        )


def _begins_script(command: str, word: str) -> bool:
    # `debug -c` is a command of the debugger's, so that code has an option of its own there.
    if command == "debug":
        return word in ("-m", "--", "-", "--code") or word.startswith("--code=")
    return word in ("-m", "--", "-") or word.startswith("-c")


def _is_recorded(word: str) -> bool:
    path = Path(word)
    if path.suffix in _RECORDED_SUFFIXES:
        return True
    try:
        with open_regular(path) as file:
            return file.read(16).startswith(_RECORDED_HEADS)
    except (OSError, ValueError):
        return False
