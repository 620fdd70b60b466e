"""What there is to type, and its help: the commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from tkdebug import __version__
from tkdebug.cli.command_line.option_values import percent
from tkdebug.cli.command_line.script_parsers import (
    ARCHITECTURES,
    REPORT_FORMATS,
    REPORT_FORMATS_TEXT,
    AddCommand,
    add_compiler,
    add_dap,
    add_debug,
    add_program,
    add_run,
    add_triton,
)
from tkdebug.instrument.renderers.formats import PASSES
from tkdebug.plugins import WithPlugins
from tkdebug.terminal_text import visible_line

FORMATS = ("text", "json")
SHELLS = ("bash", "zsh", "tcsh")
PASS_FORMATS = tuple(one.name for one in PASSES)
_PREDICTED = "sm_80, sm_86, sm_89, sm_90a"
_EPILOG = """\
examples:
  tkdebug run script.py --size 1024        run it with its kernels interpreted and checked
  tkdebug run -o run.tkd --report out.json script.py
  tkdebug debug script.py                  stop at a line, step, go back
  tkdebug view run.tkd                     open what was recorded
  tkdebug passes --line 20 script.py       what the compiler made of a line, pass by pass
  tkdebug lines script.py                  what each source line costs in machine code
"""
_ASKED_EPILOG = """\
Everything after the script (or after -m module, -c code, - for stdin) belongs to the script. Its
exit status is passed on, 130 when it was interrupted; what was compiled by then is shown.
"""
_ASKED = "script.py | -m module | -c code | - | run.tkd"
_SESSION_HELP = "a run recorded by `tkdebug run -o run.tkd`"


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints quote what was typed without letting it act on the terminal."""

    def error(self, message: str) -> NoReturn:
        # Of plugins alone.
        message = message.replace("(choose from )", "(no plugin is installed that adds one)")
        super().error(visible_line(message))


def build_parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and those of the commands by their names."""
    parser = _Parser(
        prog="tkdebug",
        description="Debugger and profiler for Triton-style GPU kernels.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tkdebug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add_command in _COMMANDS:
        add_command(commands.add_parser)
    return parser, commands.choices


def _add_view(add: AddCommand) -> None:
    view = add(
        "view",
        help="open a recorded run in the TUI",
        description="Open a recorded run in the TUI, here or on another machine than where it ran; "
        "one that goes on is followed. ? shows the keys, q leaves.",
        allow_abbrev=False,
    )
    view.add_argument("session", type=Path, metavar="run.tkd|FOLDER", help=_SESSION_HELP)


def _add_report(add: AddCommand) -> None:
    report = add(
        "report",
        help="print the report of a run",
        description="Print the report of a recorded run: launches and times by kernel, and each "
        "fault with its line. The JSON's keys are described in docs/json.md.",
        allow_abbrev=False,
    )
    report.add_argument(
        "session",
        type=Path,
        metavar="run.tkd|FOLDER",
        help=f"{_SESSION_HELP}; of a folder of such runs, its ranks side by side",
    )
    report.add_argument(
        "--format",
        choices=WithPlugins(REPORT_FORMATS, "tkdebug.renderers"),
        metavar="FORMAT",
        help=f"{REPORT_FORMATS_TEXT}; by the name of the file of -o, else text",
    )
    _add_output(report)
    _add_kernel(report, "name or pattern: times, faults and all else")


def _add_compare(add: AddCommand) -> None:
    compare = add(
        "compare",
        help="what differs between two runs, or between two compilers",
        usage="tkdebug compare [options] (before.tkd after.tkd | --compilers script.py "
        "[arguments])",
        description="Compare two recorded runs: times by kernel and whether they changed for "
        "certain, registers and spills, and faults and remarks that are new or gone. The exit "
        "status is 3 where a fault is new, or --max-slowdown is exceeded.",
        allow_abbrev=False,
    )
    compare.add_argument("before", type=Path, nargs="?", metavar="before.tkd", help=_SESSION_HELP)
    compare.add_argument("after", type=Path, nargs="?", metavar="after.tkd", help="a later one")
    compare.add_argument(
        "--compilers",
        action="store_true",
        help="instead of two runs give a script.py: it is run with the Triton that is "
        "installed and with tkdebug, and what its kernels write is compared, too",
    )
    compare.add_argument(
        "--max-slowdown",
        type=percent,
        metavar="PERCENT",
        help="exit with 3 where a kernel is slower by more than that, with 99 %% confidence",
    )
    _add_format(compare, FORMATS)


def _add_passes(add: AddCommand) -> None:
    passes = add(
        "passes",
        help="what each compiler pass did to a script's kernels",
        usage=f"tkdebug passes [options] ({_ASKED}) [arguments]",
        description="Show what each compiler pass did, op by op: of a recorded run, or of a "
        "script, which is run for it. What the script prints goes to stderr.",
        epilog=_ASKED_EPILOG,
        allow_abbrev=False,
    )
    _add_asked(passes)
    passes.add_argument(
        "--pass", dest="pass_name", metavar="NAME", help="only that pass, each change of it"
    )
    passes.add_argument(
        "--only-changed", action="store_true", help="leave out passes that changed nothing"
    )
    passes.add_argument(
        "--diff", action="store_true", help="also show how the text of the IR changed"
    )
    passes.add_argument(
        "--line", metavar="[FILE:]N", help="follow that source line through every pass"
    )
    _add_format(passes, PASS_FORMATS, by_name=True)
    _add_output(passes)
    _add_architecture(passes, "sm_90a by default; none for no architecture")
    add_triton(passes)
    add_compiler(passes)


def _add_lines(add: AddCommand) -> None:
    lines = add(
        "lines",
        help="from source lines to instructions and back",
        usage=f"tkdebug lines [options] ({_ASKED} | file.cubin) [arguments]",
        description="Show what each source line became in machine code, or all that belongs to "
        "one line or instruction: of a recorded run, of a cubin with line information from any "
        "compiler, or of a script, which is run for it. What the script prints goes to stderr.",
        epilog=_ASKED_EPILOG,
        allow_abbrev=False,
    )
    _add_asked(lines)
    place = lines.add_mutually_exclusive_group()
    place.add_argument("--line", metavar="[FILE:]N", help="what that source line became")
    place.add_argument("--ptx", type=int, metavar="N", help="where that line of the PTX comes from")
    place.add_argument(
        "--sass",
        metavar="ADDR",
        help="where the instruction at that hexadecimal address comes from",
    )
    _add_format(lines, FORMATS, by_name=True)
    _add_output(lines)
    _add_architecture(lines, "sm_90a by default")
    add_triton(lines)
    add_compiler(lines)


def _add_advise(add: AddCommand) -> None:
    advise = add(
        "advise",
        help="why kernels take as long as they do, and what would help",
        usage=f"tkdebug advise [options] ({_ASKED}) [arguments]",
        description="Say at which lines kernels lose time, why, and what would help, the largest "
        "predicted gain first. The script is run for it: its kernels are interpreted and compiled, "
        "no GPU is needed. What it prints goes to stderr. Of a recorded run, what was recorded.",
        epilog=_ASKED_EPILOG,
        allow_abbrev=False,
    )
    add_program(advise)
    _add_kernel(advise, "name or pattern; gains are shares of their time")
    advise.add_argument(
        "--target",
        "--arch",
        dest="native_target",
        metavar="ARCH",
        help=f"compile and predict for that architecture ({_PREDICTED}); sm_90a by default",
    )
    advise.add_argument(
        "--times",
        type=Path,
        metavar="run.tkd",
        help="a run on a GPU, whose times say how much each kernel counts",
    )
    add_triton(advise)
    _add_format(advise, FORMATS, by_name=True)
    _add_output(advise)


def _add_ceilings(add: AddCommand) -> None:
    ceilings = add(
        "ceilings",
        help="measure what the GPU here reaches, for the predictions of advise",
        description="Measure bandwidth of memory and of the second-level cache, products on tensor "
        "cores and FMAs of fp32 on the GPU here, in a few seconds, and keep the figures beside "
        "compiled kernels. advise predicts by them from then on, instead of by a data sheet.",
        allow_abbrev=False,
    )
    _add_format(ceilings, FORMATS, by_name=True)
    _add_output(ceilings)


def _add_crash(add: AddCommand) -> None:
    crash = add(
        "crash",
        help="which line crashed, from the GPU core dump of any process",
        description="Show which line crashed, from a GPU core dump that the driver writes under "
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=FILE. The exit status is 1 when "
        "nothing in it says what crashed.",
        allow_abbrev=False,
    )
    crash.add_argument("dump", type=Path, metavar="FILE", help="the core dump")
    _add_format(crash, FORMATS)


def _add_doctor(add: AddCommand) -> None:
    add(
        "doctor",
        help="what this machine can do, and what is missing",
        description="Show what this machine can do, and what is missing. The exit status is 1 when "
        "something needed is missing.",
        allow_abbrev=False,
    )


def _add_completion(add: AddCommand) -> None:
    completion = add(
        "completion",
        help="make the shell complete this command line",
        description="Print the script by which a shell completes tkdebug's command line. For bash, "
        'in ~/.bashrc: eval "$(tkdebug completion bash)"; for zsh, as _tkdebug in a folder of '
        "$fpath: tkdebug completion zsh > ~/.zfunc/_tkdebug.",
        allow_abbrev=False,
    )
    completion.add_argument("shell", choices=SHELLS)


def _add_asked(command: argparse.ArgumentParser) -> None:
    """What is asked about: a script or a recorded run, and which of its kernels."""
    add_program(command)
    _add_kernel(command, "name or pattern, or that hash")


def _add_kernel(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument("--kernel", metavar="NAME", help=f"only kernels of that {what}")


def _add_format(
    command: argparse.ArgumentParser, formats: tuple[str, ...], by_name: bool = False
) -> None:
    command.add_argument(
        "--format",
        choices=formats,
        default=None if by_name else "text",
        help="by the name of the file of -o, else text" if by_name else "text by default",
    )


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of stdout"
    )


def _add_architecture(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "--target",
        dest="native_target",
        metavar="ARCH",
        help=f"without a GPU, compile for that architecture ({ARCHITECTURES}); {default}",
    )


# In the order of the help.
_COMMANDS = (
    add_run,
    add_debug,
    add_dap,
    _add_view,
    _add_report,
    _add_compare,
    _add_passes,
    _add_lines,
    _add_advise,
    _add_ceilings,
    _add_crash,
    _add_doctor,
    _add_completion,
)
