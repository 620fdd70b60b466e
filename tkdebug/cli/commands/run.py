"""`tkdebug run`: the script in this process, recorded; or in the TUI, which starts us again.

Invariant: every mistake that can be seen before the script runs is reported before it runs. An
option whose `dest` is the name of a knob changes that knob for the run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tkdebug.checks import CHECK_CHOICES, DEFAULT_CHECKS, OTHER_CHECKS
from tkdebug.cli.command import Command, ScriptRule
from tkdebug.cli.options import (
    ARCHITECTURES,
    REPORT_FORMATS,
    REPORT_FORMATS_TEXT,
    add_compiler,
    add_program,
    add_reference,
    add_triton,
    value_of,
)
from tkdebug.knobs.values import (
    CHECKED_LAUNCHES,
    MODE_NAMES,
    parse_kinds,
    parse_print_elements,
    parse_seconds,
)
from tkdebug.plugins import WithPlugins


class RunCommand(Command):
    """Runs a script with its kernels checked and recorded."""

    help = "run a script with its kernels checked and recorded"
    usage = "tkdebug run [options] (script.py | -m module | -c code | -) [arguments]"
    description = "Run a script, unmodified, with its kernels checked and recorded."
    epilog = """\
Everything after the script (or after -m module, -c code, - for stdin) belongs to the script. The
exit status is the script's own; 3 when it ended well but faults were recorded; 2 for a mistake on
this command line.
"""
    script = ScriptRule("a script.py, -m module, -c code, or - for stdin, to run", names_own=False)

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add its options, in groups of one thought each."""
        _add_ways(parser)
        _add_kernels(parser)
        _add_records(parser)
        _add_gpu(parser)
        # For the TUI, which runs the script in another process.
        parser.add_argument("--temporary", action="store_true", help=argparse.SUPPRESS)
        parser.add_argument("--pane-socket", type=int, help=argparse.SUPPRESS)
        parser.add_argument("--wait-for-pane", action="store_true", help=argparse.SUPPRESS)
        add_program(parser)

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Refuse the format of a report that is not written."""
        if options.report_format is not None and options.report is None:
            parser.error(
                f"--report-format {options.report_format}: give the file, too: --report FILE"
            )

    def run(self, options: argparse.Namespace) -> int:
        """Run the script; the result is its exit status, or 3 where faults were recorded."""
        # Sessions, the debugger's and the compiler's parts: nothing that help needs.
        from tkdebug.cli.command_line import check_variables
        from tkdebug.cli.runs.checks import check_run
        from tkdebug.cli.runs.recording import run_here
        from tkdebug.cli.runs.request import run_request
        from tkdebug.cli.script.ending import end_by_signal
        from tkdebug.cli.script.execution import loaded, quotable
        from tkdebug.runtime.device.torch_package import check_installed, import_torch

        request = run_request(options)
        check_variables()
        check_installed()
        if request.tui:
            from tkdebug.cli.runs.live import run_in_tui

            with request.in_force():
                check_run(request)
                return run_in_tui(request)
        from tkdebug.compat.gpu_failures.crashes import armed

        import_torch()
        # Before the checks, which start CUDA.
        crashes = armed(request.mode != "interpret", request.coredump, request.hang_timeout_s)
        with crashes as armed_dumps, request.in_force():
            check_run(request)
            program = loaded(request.program)
            with quotable(program):
                status, signal = run_here(request, program, armed_dumps)
        if signal is not None:
            end_by_signal(signal)
        return status


COMMAND = RunCommand()


def _add_ways(parser: argparse.ArgumentParser) -> None:
    """Add options for how the script runs, and what is kept of the run."""
    parser.add_argument(
        "--mode",
        choices=MODE_NAMES,
        help="how kernels run; auto by default: native where there is a GPU, else interpret",
    )
    parser.add_argument(
        "--tui",
        action=argparse.BooleanOptionalAction,
        help="open the TUI, as by default in a terminal",
    )
    parser.add_argument(
        "-o", "--output", dest="session", type=Path, metavar="run.tkd", help="keep the session"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write a report there, also when the script dies; its format by its name: .html, "
        ".json, .txt, .csv, .sarif, or .xml for JUnit",
    )
    parser.add_argument(
        "--report-format",
        choices=WithPlugins(REPORT_FORMATS, "tkdebug.renderers"),
        metavar="FORMAT",
        help=f"the format of the report, whatever its name: {REPORT_FORMATS_TEXT}",
    )


def _add_kernels(parser: argparse.ArgumentParser) -> None:
    """Add options for how kernels are compiled, and what they are checked for."""
    parser.add_argument(
        "--cause",
        action="store_true",
        default=None,
        help="keep what interpreted launches are given, so that the cause of a failed comparison "
        "is found where inputs change afterwards; takes memory",
    )
    add_reference(parser)
    parser.add_argument(
        "--quick",
        action="store_true",
        default=None,
        help="triton.testing measures once and sweeps take their first value",
    )
    add_triton(parser)
    add_compiler(parser)
    parser.add_argument(
        "--ask-triton",
        metavar="PYTHON",
        help="ask the Triton of that Python, such as `python`, whether it compiles each signature, "
        "too, without a GPU; a kernel that only one of the two compiles is a fault",
    )
    parser.add_argument(
        "--interpret",
        dest="interpret_kernels",
        action="append",
        metavar="PATTERN",
        help="interpret the kernels of that name, such as 'softmax*'; may be repeated",
    )
    parser.add_argument(
        "--check",
        dest="checks",
        action="append",
        choices=WithPlugins(CHECK_CHOICES, "tkdebug.checks"),
        metavar="KIND",
        help=f"also check interpreted kernels for {', '.join(OTHER_CHECKS)}, all of them, or a "
        "plugin's check; slower; may be repeated "
        f"(looked for by default: {', '.join(DEFAULT_CHECKS)}; none: not even these)",
    )
    _add_findings(parser)
    parser.add_argument(
        "--target",
        dest="cross_compile",
        metavar="ARCH",
        help="compile interpreted kernels for that architecture, too, to look at their PTX and "
        f"SASS without a GPU ({ARCHITECTURES})",
    )


def _add_records(parser: argparse.ArgumentParser) -> None:
    """Add what else is recorded."""
    parser.add_argument(
        "--nvtx",
        action="store_true",
        help="launches and scopes are NVTX ranges, which nsys and ncu show",
    )
    parser.add_argument(
        "--advise",
        action="store_true",
        default=None,
        help="record what would make interpreted kernels faster, for sm_90a or --target; the "
        "report shows it",
    )
    parser.add_argument(
        "--check-launches",
        choices=CHECKED_LAUNCHES,
        metavar="WHICH",
        help="which launches of native kernels are checked for accesses outside of tensors: first "
        "(of each kind: shapes, strides, grid; the default), all or none",
    )
    parser.add_argument(
        "--watch",
        action="append",
        dest="watches",
        metavar="FILE:LINE:NAME",
        help="record the values of a variable of a kernel, by program and iteration: its minimum, "
        "maximum, mean, NaNs and more; FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION], where "
        ":tile records the whole tile; may be repeated",
    )
    parser.add_argument(
        "--instrument",
        action="append",
        dest="instrumentations",
        choices=WithPlugins((), "tkdebug.instrumentation"),
        metavar="PLUGIN",
        help="have a plugin measure what kernels do, by source line; may be repeated",
    )
    parser.add_argument(
        "--timeline",
        action="append",
        dest="timelines",
        metavar="KERNEL",
        help="record when each warp of a program was at which line, in the first launches of a "
        "kernel on the GPU; KERNEL[@PROGRAMS], as in matmul@0:4,17; may be repeated",
    )
    parser.add_argument(
        "--print-elements",
        type=value_of(parse_print_elements),
        metavar="N|all",
        help="tiles of up to N elements are printed one by one by device_print, larger ones as a "
        "summary in one line; 256 by default",
    )


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    """Add options for what is done beside kernels on a GPU."""
    parser.add_argument(
        "--hang-timeout",
        type=value_of(parse_seconds),
        metavar="SECONDS",
        help="a kernel that runs longer on the GPU is stopped, and the lines where its warps wait "
        "are reported; Ctrl-C does so at once; implies --coredump",
    )
    parser.add_argument(
        "--coredump",
        action="store_true",
        help="a crash on the GPU leaves a core dump, which names the line, and Ctrl-C names the "
        "lines where a kernel hangs; CUPTI does not work beside it, so CUDA events time launches, "
        "and kernels that tkdebug did not launch are not recorded",
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="record which line of the script, in which modules, launched each kernel of torch's; "
        "costs every operation some microseconds; not beside --coredump",
    )
    parser.add_argument(
        "--stalls",
        action="store_true",
        help="sample where warps of kernels on the GPU wait and for what, by source line; "
        "not beside --coredump",
    )


def _add_findings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        dest="only_kernels",
        action="append",
        metavar="KERNEL",
        help="check only the kernels of that name, such as 'softmax*'; may be repeated",
    )
    parser.add_argument(
        "--ignore",
        dest="ignored_kinds",
        action="extend",
        type=value_of(parse_kinds),
        metavar="KIND[,KIND]",
        help="do not report faults of that kind; may be repeated",
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="known faults: only others fail the run",
    )
    parser.add_argument(
        "--update-baseline",
        action="store_true",
        help="write the faults of this run into the file of --baseline",
    )
