"""Options that several commands have, and the values that options take."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from tkdebug.instrument.renderers.formats import REPORTS
from tkdebug.knobs.values import COMPILERS, TRITON_RELEASES, parse_triton_version

ANSWER_FORMATS = ("text", "json")
REPORT_FORMATS = tuple(one.name for one in REPORTS)
REPORT_FORMATS_TEXT = f"{', '.join(REPORT_FORMATS)}, or one of a plugin"
ARCHITECTURES = (
    "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100a, sm_103a, sm_110a, sm_120a, sm_121a"
)
SESSION_HELP = "a run recorded by `tkdebug run -o run.tkd`"
# The input of `passes`, `lines` and `advise`.
ASKED = "script.py | -m module | -c code | - | run.tkd"
ASKED_EXPECTED = "a script.py, -m module, -c code, - for stdin, or a recorded run.tkd"
ASKED_EPILOG = """\
Everything after the script (or after -m module, -c code, - for stdin) belongs to the script. Its
exit status is passed on, 130 when it was interrupted; what was compiled by then is shown.
"""


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add `-m` and `-c` to the help: `command_line` reads them."""
    parser.add_argument("-m", metavar="module", help="run a module, as python -m does")
    parser.add_argument("-c", metavar="code", help="run that code, as python -c does")


def add_kernel(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--kernel`; `what` ends its help, "only kernels of that …"."""
    parser.add_argument("--kernel", metavar="NAME", help=f"only kernels of that {what}")


def add_format(
    parser: argparse.ArgumentParser, formats: tuple[str, ...], by_name: bool = False
) -> None:
    """Add `--format`.

    Args:
        parser: the parser of the command.
        formats: the available formats.
        by_name: whether the name of the file of `-o` decides on the format by default.
    """
    parser.add_argument(
        "--format",
        choices=formats,
        default=None if by_name else "text",
        help="by the name of the file of -o, else text" if by_name else "text by default",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `-o`."""
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of stdout"
    )


def add_architecture(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--target` of commands that compile without a GPU."""
    parser.add_argument(
        "--target",
        dest="native_target",
        metavar="ARCH",
        help=f"without a GPU, compile for that architecture ({ARCHITECTURES}); {default}",
    )


def add_triton(parser: argparse.ArgumentParser) -> None:
    """Add `--triton`, which changes the knob of that name."""
    parser.add_argument(
        "--triton",
        dest="triton_version",
        type=value_of(parse_triton_version),
        metavar="VERSION",
        help=f"the Triton that kernels are written for: {', '.join(TRITON_RELEASES)} (the default)",
    )


def add_reference(parser: argparse.ArgumentParser) -> None:
    """Add `--reference`."""
    parser.add_argument(
        "--reference",
        metavar="MODULE:FUNCTION",
        help="a function of some of the kernel's parameters, by name, that gives what its output "
        "should be",
    )


def add_compiler(parser: argparse.ArgumentParser) -> None:
    """Add `--compiler`, which changes the knob of that name."""
    parser.add_argument(
        "--compiler",
        choices=COMPILERS,
        help="what compiles kernels: tkdebug (the default), or triton: the one that is installed, "
        "whose launches, times, code by line, passes and crashes are recorded",
    )


def value_of(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return a type for argparse that takes what `parse`, which reads a knob's variable, takes."""

    def parsed(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected {error}") from None

    return parsed


def positive_seconds(text: str) -> float:
    """Read a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of seconds, such as 60")
    return value


def positive_count(text: str) -> int:
    """Read a whole number, 1 or more."""
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number from 1 on")
    return int(text)


def percent(text: str) -> float:
    """Read a number of percent, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of percent, such as 5")
    return value
