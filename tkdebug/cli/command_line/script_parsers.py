"""The options of the commands that run a script: run, debug, dap."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from tkdebug.checks import CHECK_CHOICES, DEFAULT_CHECKS, OTHER_CHECKS
from tkdebug.cli.command_line.option_values import elements, kinds, seconds, triton_version
from tkdebug.instrument.renderers.formats import REPORTS
from tkdebug.knobs.values import CHECKED_LAUNCHES, COMPILERS, TRITON_RELEASES
from tkdebug.plugins import WithPlugins

REPORT_FORMATS = tuple(one.name for one in REPORTS)
REPORT_FORMATS_TEXT = f"{', '.join(REPORT_FORMATS)}, or one of a plugin"
ARCHITECTURES = (
    "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100a, sm_103a, sm_110a, sm_120a, sm_121a"
)
_RUN_EPILOG = """\
Everything after the script (or after -m module, -c code, - for stdin) belongs to the script. The
exit status is the script's own; 3 when it ended well but faults were recorded; 2 for a mistake on
this command line.
"""
# `add_parser` of argparse's subparsers, whose class has no public name.
AddCommand = Callable[..., argparse.ArgumentParser]


def add_run(add: AddCommand) -> None:
    """`tkdebug run`."""
    run = add(
        "run",
        help="run a script with its kernels checked and recorded",
        usage="tkdebug run [options] (script.py | -m module | -c code | -) [arguments]",
        description="Run a script, unmodified, with its kernels checked and recorded.",
        epilog=_RUN_EPILOG,
        allow_abbrev=False,
    )
    _add_ways(run)
    _add_kernels(run)
    _add_records(run)
    _add_gpu(run)
    run.add_argument("--temporary", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("--pane-socket", type=int, help=argparse.SUPPRESS)
    run.add_argument("--wait-for-pane", action="store_true", help=argparse.SUPPRESS)
    add_program(run)


def _add_ways(run: argparse.ArgumentParser) -> None:
    """How the script runs, and what is kept of the run."""
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
        help="write a report there, also when the script dies; its format by its name: .json, "
        ".txt, .csv, .sarif, or .xml for JUnit",
    )
    run.add_argument(
        "--report-format",
        choices=WithPlugins(REPORT_FORMATS, "tkdebug.renderers"),
        metavar="FORMAT",
        help=f"the format of the report, whatever its name: {REPORT_FORMATS_TEXT}",
    )


def _add_kernels(run: argparse.ArgumentParser) -> None:
    """How kernels are compiled, and what they are checked for."""
    run.add_argument(
        "--quick",
        action="store_true",
        help="triton.testing measures once and sweeps take their first value",
    )
    add_triton(run)
    add_compiler(run)
    run.add_argument(
        "--ask-triton",
        metavar="PYTHON",
        help="ask the Triton of that Python, such as `python`, whether it compiles each signature, "
        "too, without a GPU; a kernel that only one of the two compiles is a fault",
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
        choices=WithPlugins(CHECK_CHOICES, "tkdebug.checks"),
        metavar="KIND",
        help=f"also check interpreted kernels for {', '.join(OTHER_CHECKS)}, all of them, or a "
        "plugin's check; slower; may be repeated "
        f"(looked for by default: {', '.join(DEFAULT_CHECKS)}; none: not even these)",
    )
    _add_findings(run)
    run.add_argument(
        "--target",
        dest="native_target",
        metavar="ARCH",
        help="compile interpreted kernels for that architecture, too, to look at their PTX and "
        f"SASS without a GPU ({ARCHITECTURES})",
    )


def _add_records(run: argparse.ArgumentParser) -> None:
    """What else is recorded."""
    run.add_argument(
        "--nvtx",
        action="store_true",
        help="launches and scopes are NVTX ranges, which nsys and ncu show",
    )
    run.add_argument(
        "--advise",
        action="store_true",
        help="record what would make interpreted kernels faster, for sm_90a or --target; the "
        "report shows it",
    )
    run.add_argument(
        "--check-launches",
        choices=CHECKED_LAUNCHES,
        metavar="WHICH",
        help="which launches of native kernels are checked for accesses outside of tensors: first "
        "(of each kind: shapes, strides, grid; the default), all or none",
    )
    run.add_argument(
        "--watch",
        action="append",
        default=[],
        dest="watches",
        metavar="FILE:LINE:NAME",
        help="record the values of a variable of a kernel, by program and iteration: its minimum, "
        "maximum, mean, NaNs and more; FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION], where "
        ":tile records the whole tile; may be repeated",
    )
    run.add_argument(
        "--instrument",
        action="append",
        default=[],
        dest="instrumentations",
        choices=WithPlugins((), "tkdebug.instrumentation"),
        metavar="PLUGIN",
        help="have a plugin measure what kernels do, by source line; may be repeated",
    )
    run.add_argument(
        "--timeline",
        action="append",
        default=[],
        dest="timelines",
        metavar="KERNEL",
        help="record when each warp of a program was at which line, in the first launches of a "
        "kernel on the GPU; KERNEL[@PROGRAMS], as in matmul@0:4,17; may be repeated",
    )
    run.add_argument(
        "--print-elements",
        type=elements,
        metavar="N|all",
        help="tiles of up to N elements are printed one by one by device_print, larger ones as a "
        "summary in one line; 256 by default",
    )


def _add_gpu(run: argparse.ArgumentParser) -> None:
    """What is done beside kernels on a GPU."""
    run.add_argument(
        "--hang-timeout",
        type=seconds,
        metavar="SECONDS",
        help="a kernel that runs longer on the GPU is stopped, and the lines where its warps wait "
        "are reported; Ctrl-C does so at once; implies --coredump",
    )
    run.add_argument(
        "--coredump",
        action="store_true",
        help="a crash on the GPU leaves a core dump, which names the line, and Ctrl-C names the "
        "lines where a kernel hangs; CUPTI does not work beside it, so CUDA events time launches, "
        "and kernels that tkdebug did not launch are not recorded",
    )
    run.add_argument(
        "--stacks",
        action="store_true",
        help="record which line of the script, in which modules, launched each kernel of torch's; "
        "costs every operation some microseconds; not beside --coredump",
    )
    run.add_argument(
        "--stalls",
        action="store_true",
        help="sample where warps of kernels on the GPU wait and for what, by source line; "
        "not beside --coredump",
    )


def add_debug(add: AddCommand) -> None:
    """`tkdebug debug`."""
    debug = add(
        "debug",
        help="stop in kernels, look at every program, go backwards",
        usage="tkdebug debug [options] (script.py | -m module | --code code | -) [arguments]",
        description="Run a script under a debugger: pdb at the script's own lines, and the same "
        "commands at the lines of its kernels, which are interpreted. `help` lists them.",
        epilog="Before anything else come the commands in ~/.tkdebugrc, then those of -x, then "
        "those of -c; where one fails, the rest are not run. Everything after the script (or after "
        "-m module, --code code, - for stdin) belongs to the script.",
        allow_abbrev=False,
    )
    debug.add_argument(
        "-c",
        "--command",
        dest="commands",
        action="append",
        default=[],
        metavar="COMMAND",
        help="a command to run first, such as 'b 42'; may be repeated",
    )
    debug.add_argument(
        "-x",
        "--commands",
        dest="commands_file",
        type=Path,
        metavar="FILE",
        help="run the commands in that file first",
    )
    debug.add_argument(
        "--json",
        action="store_true",
        help="stops and answers as JSON objects, one a line; stops in kernels only",
    )
    debug.add_argument(
        "--stage",
        metavar="STAGE",
        help="run kernels in this IR: tile-ir (the default: before any pass), tile-ir:PASS, "
        "gpu-ir:PASS, or gpu-ir (after all passes)",
    )
    debug.add_argument(
        "--target",
        dest="native_target",
        metavar="ARCH",
        help=f"the architecture that GPU IR is for ({ARCHITECTURES}); by default that of the GPU "
        "here, without one sm_90a",
    )
    add_triton(debug)
    debug.add_argument(
        "--against",
        type=Path,
        metavar="RUN.tkd",
        help="compare with the values that a run recorded with --watch, such as a native one",
    )
    debug.add_argument(
        "--tui",
        action=argparse.BooleanOptionalAction,
        help="in the Debug pane of the TUI, which stops in kernels only; by default at a console",
    )
    debug.add_argument("-m", metavar="module", help="debug a module, as python -m runs one")
    debug.add_argument("--code", metavar="code", help="debug that code, as python -c runs it")


def add_dap(add: AddCommand) -> None:
    """`tkdebug dap`."""
    dap = add(
        "dap",
        help="serve an editor that speaks the Debug Adapter Protocol",
        description="Debug a script from an editor, by the Debug Adapter Protocol: on stdin and "
        "stdout, or for one client at a port of this machine, which has to show the token that is "
        "printed on stderr. Its `launch` request names the script. To attach to a process that "
        "runs, it calls tkdebug.debugger.listen().",
        allow_abbrev=False,
    )
    dap.add_argument(
        "--port", type=int, metavar="PORT", help="listen there, on 127.0.0.1; 0 for any free one"
    )


def _add_findings(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KERNEL",
        help="check only the kernels of that name, such as 'softmax*'; may be repeated",
    )
    run.add_argument(
        "--ignore",
        action="append",
        default=[],
        type=kinds,
        metavar="KIND[,KIND]",
        help="do not report faults of that kind; may be repeated",
    )
    run.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="known faults: only others fail the run",
    )
    run.add_argument(
        "--update-baseline",
        action="store_true",
        help="write the faults of this run into the file of --baseline",
    )


def add_program(command: argparse.ArgumentParser) -> None:
    """`-m` and `-c`, for the help: `script_words` reads them."""
    command.add_argument("-m", metavar="module", help="run a module, as python -m does")
    command.add_argument("-c", metavar="code", help="run that code, as python -c does")


def add_triton(command: argparse.ArgumentParser) -> None:
    """`--triton`."""
    command.add_argument(
        "--triton",
        type=triton_version,
        metavar="VERSION",
        help=f"the Triton that kernels are written for: {', '.join(TRITON_RELEASES)} (the default)",
    )


def add_compiler(command: argparse.ArgumentParser) -> None:
    """`--compiler`."""
    command.add_argument(
        "--compiler",
        choices=COMPILERS,
        help="what compiles kernels: tkdebug (the default), or triton: the one that is installed, "
        "whose launches, times, code by line, passes and crashes are recorded",
    )
