"""Mistyped command lines: what was probably meant, after the usage that argparse shows."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from tkdebug.errors import instead_of


def refuse_unknown_command(
    parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
    words: Sequence[str],
) -> None:
    """End the process where the first word is no command."""
    if not words or words[0].startswith("-") or words[0] in commands:
        return
    word = words[0]
    if word.endswith(".py"):
        parser.error(f"{word} is no command; did you mean `tkdebug run {word}`?")
    if word.endswith(".tkd"):
        parser.error(f"{word} is no command; did you mean `tkdebug view {word}`?")
    parser.error(f"{word} is no command{instead_of(word, commands)}")


def refuse_unknown_options(command: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """End the process with the words that `command` does not take."""
    name = words[0].partition("=")[0]
    known = command._option_string_actions  # noqa: SLF001
    hint = instead_of(name, known) if name.startswith("--") else ""
    if "[-- arguments]" in (command.usage or ""):
        hint += "; what belongs to the script goes after --"
    command.error(f"not understood: {' '.join(words)}{hint}")
