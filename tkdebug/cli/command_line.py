"""A command line and the environment: the words of each side, and mistyped ones.

Options of tkdebug come before the script; everything after it is the script's, as with Python. A
recorded run has no arguments, so options may follow one, too. This is not left to argparse, whose
treatment of `--` and of options after a positional has changed between Python releases.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from tkdebug import __version__
from tkdebug.cli.command import USAGE_STATUS, Command, ScriptRule
from tkdebug.cli.options import ANSWER_FORMATS
from tkdebug.errors import error_record, instead_of
from tkdebug.process.named_files import open_regular
from tkdebug.terminal.text import tell, visible_line

# Imported by this name: what is in it imports this module.
_COMMANDS = "tkdebug.cli.commands"
# The first commands of the help; others follow by their names.
_HELP_ORDER = (
    "run",
    "debug",
    "dap",
    "view",
    "demo",
    "report",
    "compare",
    "passes",
    "bisect",
    "diverge",
    "verify",
    "reproduce",
    "lines",
    "advise",
    "numerics",
    "ceilings",
    "crash",
    "explain",
    "mcp",
    "skills",
    "doctor",
    "completion",
)
_EPILOG = """\
examples:
  tkdebug run script.py --size 1024        run it with its kernels interpreted and checked
  tkdebug run -o run.tkd --report out.json script.py
  tkdebug debug script.py                  stop at a line, step, go back
  tkdebug view run.tkd                     open what was recorded
  tkdebug demo                             open a run that comes with tkdebug
  tkdebug passes --line 20 script.py       what the compiler made of a line, pass by pass
  tkdebug lines script.py                  what each source line costs in machine code
"""
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
    argv: tuple[str, ...] = ()
    is_module: bool = False
    is_code: bool = False

    @property
    def is_stdin(self) -> bool:
        """Whether the script is read from stdin."""
        return self.target == "-" and not (self.is_module or self.is_code)

    @property
    def file(self) -> Path | None:
        """The script, or the recorded run; None for a module, code or stdin."""
        in_no_file = self.is_module or self.is_code or self.is_stdin
        return None if in_no_file else Path(self.target)

    @property
    def words(self) -> tuple[str, ...]:
        """Words by which any command takes the same script."""
        before = "-m" if self.is_module else "-c" if self.is_code else "--"
        return (*(() if self.is_stdin else (before,)), self.target, *self.argv)

    def and_line(self, line: str | None) -> tuple[ScriptWords, str | None]:
        """Return the script and the line of `script.py:24`, as messages and editors write a place.

        Other words are returned unchanged, with `line`; so are all if an option gave a line.

        Args:
            line: the line that an option gave; None for none.
        """
        file, colon, number = self.target.rpartition(":")
        is_place = bool(colon) and number.isdecimal() and file.endswith(".py")
        is_file = not (self.is_module or self.is_code)
        if line is None and is_place and is_file and not os.path.exists(self.target):
            return replace(self, target=file), number
        return self, line


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints quote what was typed without letting it act on the terminal.

    Attributes:
        has_objects: whether complaints are JSON objects.
    """

    has_objects = False

    def error(self, message: str) -> NoReturn:
        # For plugins alone.
        message = message.replace("(choose from )", "(no plugin is installed that adds one)")
        if self.has_objects:
            self.exit(USAGE_STATUS, f"{error_record(visible_line(message)).as_json()}\n")
        super().error(visible_line(message))


def command_names() -> tuple[str, ...]:
    """Return the names of all commands, in the order of the help."""
    files = import_module(_COMMANDS).__path__
    names = sorted(file.name for file in pkgutil.iter_modules(files))
    first = [name for name in _HELP_ORDER if name in names]
    return (*first, *(name for name in names if name not in first))


def command_of(name: str) -> Command:
    """Import the command of that name."""
    command: Command = import_module(f"{_COMMANDS}.{name}").COMMAND
    return command


def build_parser(
    names: Collection[str] | None = None,
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser, and the parsers of the commands by their names.

    Args:
        names: the commands that it has; None for all.
    """
    parser = _Parser(
        prog="tkdebug",
        description="Debugger and profiler for Triton-style GPU kernels.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tkdebug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in command_names() if names is None else names:
        command = command_of(name)
        own = commands.add_parser(
            name,
            help=command.help,
            usage=command.usage,
            description=command.description,
            epilog=command.epilog,
            allow_abbrev=False,
        )
        command.prepare_parser(own)
        own.add_argument(
            "--errors",
            choices=ANSWER_FORMATS,
            default="text",
            help="how a mistake, or what cannot be read or compiled, is said on stderr; json: one "
            "object a line",
        )
    return parser, commands.choices


def asks_for_objects(argv: Sequence[str]) -> bool:
    """Whether a command line has `--errors json` before the script."""
    name = argv[0] if argv else ""
    if name not in command_names():
        return False
    own, _ = _split(argv, build_parser([name])[1][name], command_of(name).script)
    return _has_objects(own)


def _has_objects(own: Sequence[str]) -> bool:
    # Not left to argparse, which may be what complains.
    return "--errors=json" in own or ("--errors", "json") in pairwise(own)


def parse(argv: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """Return the command that `argv` names, and its options.

    Help, version and mistakes end the process as argparse does (0 and 2).
    """
    name, known = (argv[0] if argv else ""), command_names()
    # Nothing of the other commands is imported.
    parser, parsers = build_parser([name] if name in known else known)
    if not argv:
        parser.print_help(sys.stderr)
        parser.exit(2)
    if name in known:
        own, program = _split(argv, parsers[name], command_of(name).script)
    else:
        _refuse_unknown_command(parser, known, name)
        own, program = list(argv), []
    for each in (parser, *parsers.values()):
        assert isinstance(each, _Parser)
        each.has_objects = _has_objects(own)
    options, unknown = parser.parse_known_args(own)
    command, own_parser = command_of(options.command), parsers[options.command]
    if unknown:
        _refuse_unknown_options(own_parser, unknown)
    options.own_words, options.script = tuple(own[1:]), None
    rule = command.script
    if rule is not None and (not rule.only_with or rule.only_with in own):
        options.script = _script_words(own_parser, program, rule)
        if rule.names_own:
            _tell_own_options(own_parser, options.command, options.script)
    command.check(own_parser, options)
    return command, options


def _split(
    argv: Sequence[str], command: argparse.ArgumentParser, rule: ScriptRule | None
) -> tuple[list[str], list[str]]:
    """Return tkdebug's own words, and the words from the script or `-m` on."""
    words = list(argv)
    if rule is None:
        return words, []
    options = command._actions  # noqa: SLF001
    with_value = {text for one in options if one.nargs is None for text in one.option_strings}
    at = 1
    while at < len(words) and words[at].startswith("-") and not _begins_script(rule, words[at]):
        at += 2 if words[at] in with_value else 1
    own, script = words[:at], words[at:]
    if rule.only_with and rule.only_with not in own:
        return words, []
    if script and rule.or_recorded and _is_recorded(script[0]):
        return own + script[1:], script[:1]
    return own, script


def _script_words(
    command: argparse.ArgumentParser, words: Sequence[str], rule: ScriptRule
) -> ScriptWords:
    """Read the words from the script on; end the process where they name none."""
    first = words[0] if words else ""
    option = next((one for one in ("--code", "-c") if first.startswith(one)), first)
    is_module, is_code = option == "-m", option in ("--code", "-c")
    rest = list(words[1:] if first in ("-m", "--", "-c", "--code") else words)
    if is_code and first != option:  # --code=code, and as Python takes it, too, -c"code"
        rest[0] = first.removeprefix("--code=" if option == "--code" else option)
    if not rest:
        command.error(f"give {rule.expected}")
    return ScriptWords(rest[0], tuple(rest[1:]), is_module, is_code)


def _tell_own_options(command: argparse.ArgumentParser, name: str, script: ScriptWords) -> None:
    """Name words after the script that look like options of the command, but are the script's."""
    known = command._option_string_actions.keys() - {*_FOR_BOTH}  # noqa: SLF001
    own = [word for word in script.argv if word.partition("=")[0] in known]
    if own:
        tell(
            f"{name}: {' '.join(own)} after {script.target} is the script's; options of tkdebug's "
            "stand before the script"
        )


def _begins_script(rule: ScriptRule, word: str) -> bool:
    # `debug -c` is a command of the debugger's, so that code has an option of its own there.
    if rule.code_option == "--code":
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


def _refuse_unknown_command(
    parser: argparse.ArgumentParser, known: Collection[str], word: str
) -> None:
    """End the process if the first word is neither a command nor an option."""
    if word.startswith("-"):
        return
    if word.endswith(".py"):
        parser.error(f"{word} is not a command; did you mean `tkdebug run {word}`?")
    if word.endswith(".tkd"):
        parser.error(f"{word} is not a command; did you mean `tkdebug view {word}`?")
    parser.error(f"{word} is not a command{instead_of(word, known)}")


def _refuse_unknown_options(command: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """End the process with the words that `command` does not take."""
    name = words[0].partition("=")[0]
    known = command._option_string_actions  # noqa: SLF001
    hint = instead_of(name, known) if name.startswith("--") else ""
    if "script.py" in (command.usage or ""):
        hint += "; what belongs to the script goes after it"
    command.error(f"not understood: {' '.join(words)}{hint}")


def check_variables() -> None:
    """Check the environment before a script runs; report names that are nearly a knob's.

    Raises:
        UsageError: a knob's variable holds something else than expected.
    """
    from tkdebug.knobs import KNOBS

    KNOBS.read_all()
    for name, meant in _mistyped_variables().items():
        tell(f"{name} is not a variable of tkdebug's; did you mean {meant}?")


def _mistyped_variables() -> dict[str, str]:
    """Mistyped environment variables, each with the knob's variable that is nearly the same."""
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
