"""Mistyped command lines and variables: what was probably meant."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from tkdebug.errors import instead_of
from tkdebug.terminal_text import tell


def refuse_unknown_command(
    parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
    words: Sequence[str],
) -> None:
    """End the process where the first word is not a command."""
    if not words or words[0].startswith("-") or words[0] in commands:
        return
    word = words[0]
    if word.endswith(".py"):
        parser.error(f"{word} is not a command; did you mean `tkdebug run {word}`?")
    if word.endswith(".tkd"):
        parser.error(f"{word} is not a command; did you mean `tkdebug view {word}`?")
    parser.error(f"{word} is not a command{instead_of(word, commands)}")


def refuse_unknown_options(command: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """End the process with the words that `command` does not take."""
    name = words[0].partition("=")[0]
    known = command._option_string_actions  # noqa: SLF001
    hint = instead_of(name, known) if name.startswith("--") else ""
    if "script.py" in (command.usage or ""):
        hint += "; what belongs to the script goes after it"
    command.error(f"not understood: {' '.join(words)}{hint}")


def mistyped_variables() -> dict[str, str]:
    """Environment variables that are nearly a knob's, and which one that is."""
    from difflib import get_close_matches  # only commands that read knobs come here

    from tkdebug.knobs import KNOB_TABLE

    prefix = "TKDEBUG_"
    known = [n for knob in KNOB_TABLE for n in knob.sources if n.startswith(prefix)]
    ends = [name.removeprefix(prefix) for name in known]
    found = {}
    for name in os.environ:
        if name.startswith(prefix) and name not in known:
            near = get_close_matches(name.removeprefix(prefix), ends, 1, 0.8)
            if near:
                found[name] = prefix + near[0]
    return found


def check_variables() -> None:
    """Check the environment before a script runs; report what is nearly a knob's name.

    Raises:
        UsageError: a knob's variable holds something else than expected.
    """
    from tkdebug.knobs import KNOBS

    KNOBS.read_all()
    for name, meant in mistyped_variables().items():
        tell(f"{name} is not a variable of tkdebug's; did you mean {meant}?")
