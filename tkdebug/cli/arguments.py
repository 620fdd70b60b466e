"""The command line: what there is to type, and its help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tkdebug import __version__
from tkdebug.cli.lines_query import LinesQuery
from tkdebug.cli.mistakes import refuse_unknown_command, refuse_unknown_options
from tkdebug.instrument.pass_query import PassQuery
from tkdebug.knobs import CHECK_NAMES

FORMATS = ("text", "json")
PASS_FORMATS = ("text", "json", "html")
_ARCHITECTURES = "sm_80, sm_86, sm_89, sm_90a"
_OPTIONS_WITH_VALUE = ("--mode", "-o", "--output", "--report", "--interpret", "--check")
_EPILOG = """\
examples:
  tkdebug run script.py --size 1024        run it with its kernels interpreted and checked
  tkdebug run -o run.tkd --report out.json script.py
  tkdebug view run.tkd                     open what was recorded
  tkdebug passes script.py --line 20       what the compiler made of a line, pass by pass
  tkdebug lines script.py                  what each source line costs in machine code
"""
_RUN_EPILOG = """\
Everything after the script (or after -m module) belongs to the script. The exit status is the
script's own; 3 when it ended well but faults were recorded; 2 for a mistake on this command line.
"""
_ASKED_EPILOG = """\
What belongs to the script goes after --. Its exit status is passed on, 130 when it was interrupted;
what was compiled by then is shown.
"""
_SESSION_HELP = "a run recorded by `tkdebug run -o run.tkd`"


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed command line; what does not belong to the command is left at its default.

    Attributes:
        target: the script or module to run, as typed.
        target_argv: the arguments after it.
        session: the session file to write (`run -o`) or to read (`view`, `report`).
        tui: True or False as asked, None for whatever suits the terminal.
        native_target: the architecture to compile for without a GPU, "none" for none, None for
            the usual one where this machine can.
        passes: what `passes` is to tell.
        lines: what `lines` is to tell.
        temporary: whether the session is deleted by whoever started this run.
        coredump: whether a kernel that crashes is to leave a GPU core dump to be read.
    """

    command: Literal["run", "view", "report", "passes", "lines", "crash", "doctor"]
    target: str = ""
    target_argv: tuple[str, ...] = ()
    is_module: bool = False
    mode: Literal["auto", "interpret", "native"] | None = None
    tui: bool | None = None
    session: Path | None = None
    report: Path | None = None
    quick: bool = False
    interpret: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    format: str = "text"
    output: Path | None = None
    native_target: str | None = None
    passes: PassQuery | None = None
    lines: LinesQuery | None = None
    temporary: bool = False
    coredump: bool = True


def parse(argv: Sequence[str]) -> Arguments:
    """Parse `argv`; help, version and mistakes end the process as argparse does (0 and 2)."""
    parser, commands = _build()
    own, program = _split(argv)
    refuse_unknown_command(parser, commands, own)
    parsed, unknown = parser.parse_known_args(own)
    if unknown:
        refuse_unknown_options(commands[parsed.command], unknown)
    match parsed.command:
        case "run":
            return _run_arguments(commands["run"], parsed, program)
        case "view":
            return Arguments("view", session=parsed.session)
        case "report":
            return Arguments(
                "report", session=parsed.session, format=parsed.format, output=parsed.output
            )
        case "passes":
            return _passes_arguments(parsed, program)
        case "lines":
            return _lines_arguments(parsed, program)
        case "crash":
            return Arguments("crash", session=parsed.dump, format=parsed.format)
        case _:
            return Arguments("doctor")


def _passes_arguments(parsed: argparse.Namespace, program: list[str]) -> Arguments:
    return Arguments(
        "passes",
        target=parsed.target,
        target_argv=tuple(program),
        is_module=parsed.module,
        format=parsed.format,
        output=parsed.output,
        native_target=parsed.native_target,
        passes=PassQuery(
            kernel=parsed.kernel,
            pass_name=parsed.pass_name,
            only_changed=parsed.only_changed,
            text_diff=parsed.diff,
            line=parsed.line,
        ),
    )


def _lines_arguments(parsed: argparse.Namespace, program: list[str]) -> Arguments:
    return Arguments(
        "lines",
        target=parsed.target,
        target_argv=tuple(program),
        is_module=parsed.module,
        format=parsed.format,
        output=parsed.output,
        native_target=parsed.native_target,
        lines=LinesQuery(parsed.kernel, parsed.line, parsed.ptx, parsed.sass),
    )


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the script's: of `run` from the script or `-m` on, else those after `--`.

    Not left to argparse, whose idea of where `--` and options after a positional belong has
    changed between Python releases.
    """
    words = list(argv)
    if words[:1] != ["run"]:
        at = words.index("--") if "--" in words else len(words)
        return words[:at], words[at + 1 :]
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--", "-"):
        at += 2 if words[at] in _OPTIONS_WITH_VALUE else 1
    return words[:at], words[at:]


def _run_arguments(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, program: list[str]
) -> Arguments:
    is_module = program[:1] == ["-m"]
    words = program[1:] if program[:1] in (["-m"], ["--"]) else program
    if not words:
        parser.error("give a script.py or -m module to run")
    return Arguments(
        "run",
        target=words[0],
        target_argv=tuple(words[1:]),
        is_module=is_module,
        mode=parsed.mode,
        tui=parsed.tui,
        session=parsed.session,
        report=parsed.report,
        quick=parsed.quick,
        interpret=tuple(parsed.interpret),
        checks=CHECK_NAMES if "all" in parsed.check else tuple(parsed.check),
        temporary=parsed.temporary,
        coredump=not parsed.no_coredump,
    )


def _build() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and those of the commands by their names."""
    parser = argparse.ArgumentParser(
        prog="tkdebug",
        description="Debugger and profiler for Triton-style GPU kernels.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tkdebug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="run a script with its kernels checked and recorded",
        usage="tkdebug run [options] (script.py | -m module) [arguments of the script]",
        description="Run a script, unmodified, with its kernels checked and recorded.",
        epilog=_RUN_EPILOG,
        allow_abbrev=False,
    )
    _add_run_options(run)
    view = commands.add_parser(
        "view",
        help="open a recorded run in the TUI",
        description="Open a recorded run in the TUI, here or on another machine than where it ran; "
        "one that goes on is followed. ? shows the keys, q leaves.",
        allow_abbrev=False,
    )
    view.add_argument("session", type=Path, metavar="run.tkd", help=_SESSION_HELP)
    report = commands.add_parser(
        "report",
        help="print what a run came to",
        description="Print what a recorded run came to: each kernel's launches and times, and each "
        "fault with its line. The JSON's keys are described in docs/json.md.",
        allow_abbrev=False,
    )
    report.add_argument("session", type=Path, metavar="run.tkd", help=_SESSION_HELP)
    report.add_argument("--format", choices=FORMATS, default="text", help="text by default")
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of stdout"
    )
    _add_passes_options(
        commands.add_parser(
            "passes",
            help="what each compiler pass did to a script's kernels",
            usage="tkdebug passes [options] (script.py | -m module | run.tkd) [-- arguments]",
            description="Show what each compiler pass did, op by op: of a recorded run, or of a "
            "script, which is run for it. What the script prints goes to stderr.",
            epilog=_ASKED_EPILOG,
            allow_abbrev=False,
        )
    )
    _add_lines_options(
        commands.add_parser(
            "lines",
            help="from source lines to instructions and back",
            usage="tkdebug lines [options] (script.py | -m module | run.tkd | file.cubin) "
            "[-- arguments]",
            description="Show what each source line became in machine code, or all that belongs to "
            "one line or instruction: of a recorded run, of a cubin with line information whoever "
            "made it, or of a script, which is run for it. What the script prints goes to stderr.",
            epilog=_ASKED_EPILOG,
            allow_abbrev=False,
        )
    )
    crash = commands.add_parser(
        "crash",
        help="which line crashed, by the GPU core dump of any process",
        description="Tell which line crashed, by a GPU core dump as the driver writes it under "
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=FILE. The exit status is 1 when "
        "nothing in it says what crashed.",
        allow_abbrev=False,
    )
    crash.add_argument("dump", type=Path, metavar="FILE", help="the core dump")
    crash.add_argument("--format", choices=FORMATS, default="text", help="text by default")
    commands.add_parser(
        "doctor",
        help="what this machine can do, and what is missing",
        description="Tell what this machine can do, and what is missing. The exit status is 1 when "
        "something needed is missing.",
        allow_abbrev=False,
    )
    return parser, commands.choices


def _add_run_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--mode",
        choices=("auto", "interpret", "native"),
        help="how kernels run; auto by default: native where there is a GPU, else interpret",
    )
    run.add_argument(
        "--tui",
        action=argparse.BooleanOptionalAction,
        help="open the TUI, as by default in a terminal",
    )
    run.add_argument(
        "-o", "--output", dest="session", type=Path, metavar="run.tkd", help="keep the session"
    )
    run.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write a report there, also when the script dies; JSON, or text for a .txt",
    )
    run.add_argument(
        "--quick",
        action="store_true",
        help="triton.testing measures once and sweeps take their first value",
    )
    run.add_argument(
        "--interpret",
        action="append",
        default=[],
        metavar="PATTERN",
        help="interpret the kernels of that name, such as 'softmax*'; may be repeated",
    )
    run.add_argument(
        "--check",
        action="append",
        default=[],
        choices=(*CHECK_NAMES, "all"),
        metavar="KIND",
        help="also check interpreted kernels for race, uninitialised-read, nan, or all; slower; "
        "may be repeated",
    )
    run.add_argument(
        "--no-coredump",
        action="store_true",
        help="a kernel that crashes on the GPU leaves no core dump, and no line is named",
    )
    run.add_argument("--temporary", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("-m", metavar="module", help="run a module, as python -m does")


def _add_passes_options(passes: argparse.ArgumentParser) -> None:
    passes.add_argument("target", metavar="script.py|run.tkd")
    passes.add_argument("-m", dest="module", action="store_true", help="the target is a module")
    passes.add_argument(
        "--kernel", metavar="NAME", help="only kernels of that name or pattern, or that hash"
    )
    passes.add_argument(
        "--pass", dest="pass_name", metavar="NAME", help="only that pass, each change of it"
    )
    passes.add_argument(
        "--only-changed", action="store_true", help="leave out passes that changed nothing"
    )
    passes.add_argument("--diff", action="store_true", help="also the diff of the texts")
    passes.add_argument(
        "--line", metavar="[FILE:]N", help="follow that source line through every pass"
    )
    passes.add_argument("--format", choices=PASS_FORMATS, default="text", help="text by default")
    passes.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of stdout"
    )
    passes.add_argument(
        "--target",
        dest="native_target",
        metavar="ARCH",
        help=f"without a GPU, compile for that architecture ({_ARCHITECTURES}); sm_90a by default, "
        "none for not at all",
    )


def _add_lines_options(lines: argparse.ArgumentParser) -> None:
    lines.add_argument("target", metavar="script.py|run.tkd|file.cubin")
    lines.add_argument("-m", dest="module", action="store_true", help="the target is a module")
    lines.add_argument(
        "--kernel", metavar="NAME", help="only kernels of that name or pattern, or that hash"
    )
    place = lines.add_mutually_exclusive_group()
    place.add_argument("--line", metavar="[FILE:]N", help="what that source line became")
    place.add_argument("--ptx", type=int, metavar="N", help="what that line of the PTX is of")
    place.add_argument(
        "--sass", metavar="ADDR", help="what the instruction at that address (hexadecimal) is of"
    )
    lines.add_argument("--format", choices=FORMATS, default="text", help="text by default")
    lines.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of stdout"
    )
    lines.add_argument(
        "--target",
        dest="native_target",
        metavar="ARCH",
        help=f"without a GPU, compile for that architecture ({_ARCHITECTURES}); sm_90a by default",
    )
