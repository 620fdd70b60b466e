"""The command line parsed: which words are ours, which the script's, and what ours come to."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tkdebug.checks import CHECK_NAMES
from tkdebug.cli.command_line.mistakes import refuse_unknown_command, refuse_unknown_options
from tkdebug.cli.command_line.parser import build_parser
from tkdebug.cli.line_answers.query import LinesQuery
from tkdebug.instrument.passes.query import PassQuery
from tkdebug.knobs.values import CheckedLaunchesName

_OPTIONS_WITH_VALUE = (
    "--mode",
    "--triton",
    "--compiler",
    "-o",
    "--output",
    "--report",
    "--report-format",
    "--interpret",
    "--check",
    "--check-launches",
    "--watch",
    "--instrument",
    "--timeline",
    "--print-elements",
    "--hang-timeout",
    "--only",
    "--ignore",
    "--baseline",
    "--target",
)

_DEBUG_OPTIONS_WITH_VALUE = (
    "-c",
    "--command",
    "-x",
    "--commands",
    "--stage",
    "--target",
    "--triton",
    "--against",
)


_USUAL_ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed command line; what does not belong to the command is left at its default.

    Attributes:
        target: the script or module to run, as typed; the code itself; "-" for stdin.
        target_argv: the arguments after it.
        session: the session file to write (`run -o`) or to read (`view`, `report`).
        earlier: the session that `compare` compares with.
        dump: the GPU core dump that `crash` reads.
        report_format: the format of a report, None for what its file's name says.
        only: patterns of the kernels that are checked.
        ignored: kinds of faults that are not reported.
        baseline: the file of known faults.
        update_baseline: whether it is to be written anew.
        tui: True or False as asked, None for whatever suits the terminal.
        compiler: what compiles kernels; None as the knob says.
        native_target: the architecture to compile for without a GPU, "none" for none, None for
            the usual one where this machine can.
        passes: what `passes` is to show.
        lines: what `lines` is to show.
        temporary: whether the process that started this run deletes the session.
        shell: which one is to complete command lines.
        max_slowdown_percent: how much slower kernels may be before `compare` fails; None for any.
        nvtx: whether launches and scopes are ranges of NVTX.
        advise: whether `run` looks at launches for advice.
        times: a run on a GPU by whose times `advise` weighs kernels.
        stacks: whether to record which lines launch others' kernels.
        stalls: whether to sample where warps wait.
        check_launches: which launches of native kernels are checked; None as the knob says.
        watches: values of kernels that are recorded.
        instrumentations: plugins that measure what kernels do.
        timelines: kernels of which warps' timelines are recorded.
        print_elements: elements of tiles that are printed one by one; None as the knob says.
        hang_timeout_s: how long a kernel may run on the GPU; None for no limit.
        coredump: whether a kernel that crashes or hangs is to leave a GPU core dump to be read.
        commands: what the debugger is to do first.
        commands_file: a file of such commands.
        stage: the IR in which the debugger runs kernels; None for the front end's.
        against: a recorded run with whose watched values the debugger compares; None for none.
        port: at which `dap` listens, 0 for any; None for stdin and stdout.
        pane_socket: the descriptor of the socket to the TUI's Debug pane.
        waits_for_pane: whether the pane is asked before the script runs.
    """

    command: Literal[
        "run",
        "debug",
        "dap",
        "view",
        "report",
        "compare",
        "passes",
        "lines",
        "advise",
        "ceilings",
        "crash",
        "doctor",
        "completion",
    ]
    target: str = ""
    target_argv: tuple[str, ...] = ()
    is_module: bool = False
    is_code: bool = False
    mode: Literal["auto", "interpret", "native"] | None = None
    tui: bool | None = None
    session: Path | None = None
    dump: Path | None = None
    earlier: Path | None = None
    report: Path | None = None
    report_format: str | None = None
    quick: bool = False
    triton: str | None = None
    compiler: str | None = None
    interpret: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    baseline: Path | None = None
    update_baseline: bool = False
    format: str = "text"
    output: Path | None = None
    native_target: str | None = None
    passes: PassQuery | None = None
    lines: LinesQuery | None = None
    temporary: bool = False
    check_launches: CheckedLaunchesName | None = None
    watches: tuple[str, ...] = ()
    instrumentations: tuple[str, ...] = ()
    timelines: tuple[str, ...] = ()
    print_elements: int | None = None
    hang_timeout_s: float | None = None
    coredump: bool = False
    stacks: bool = False
    stalls: bool = False
    shell: str = ""
    times: Path | None = None
    advise: bool = False
    nvtx: bool = False
    max_slowdown_percent: float | None = None
    commands: tuple[str, ...] = ()
    commands_file: Path | None = None
    stage: str | None = None
    against: Path | None = None
    port: int | None = None
    pane_socket: int | None = None
    waits_for_pane: bool = False


def parse(argv: Sequence[str]) -> Arguments:
    """Parse `argv`; help, version and mistakes end the process as argparse does (0 and 2)."""
    parser, commands = build_parser()
    own, program = _split(argv)
    if not argv:
        parser.print_help(sys.stderr)
        parser.exit(2)
    refuse_unknown_command(parser, commands, own)
    parsed, unknown = parser.parse_known_args(own)
    if unknown:
        refuse_unknown_options(commands[parsed.command], unknown)
    match parsed.command:
        case "run":
            return _run_arguments(commands["run"], parsed, program)
        case "debug":
            return _debug_arguments(commands["debug"], parsed, program)
        case "dap":
            return Arguments("dap", port=parsed.port)
        case "view":
            return Arguments("view", session=parsed.session)
        case "report":
            return Arguments(
                "report",
                session=parsed.session,
                report_format=parsed.format,
                output=parsed.output,
            )
        case "compare":
            if parsed.compilers == (parsed.after is not None):
                commands["compare"].error("give before.tkd and after.tkd, or --compilers script.py")
            return Arguments(
                "compare",
                earlier=parsed.before,
                session=parsed.after,
                target=str(parsed.before) if parsed.compilers else "",
                target_argv=tuple(program),
                format=parsed.format,
                max_slowdown_percent=parsed.max_slowdown,
            )
        case "passes":
            return _passes_arguments(parsed, program)
        case "lines":
            return _lines_arguments(parsed, program)
        case "advise":
            return Arguments(
                "advise",
                target=parsed.target,
                target_argv=tuple(program),
                is_module=parsed.module,
                format=parsed.format,
                output=parsed.output,
                native_target=parsed.native_target,
                triton=parsed.triton,
                times=parsed.times,
            )
        case "ceilings":
            return Arguments("ceilings", format=parsed.format, output=parsed.output)
        case "crash":
            return Arguments("crash", dump=parsed.dump, format=parsed.format)
        case "completion":
            return Arguments("completion", shell=parsed.shell)
        case _:
            return Arguments("doctor")


def _passes_arguments(parsed: argparse.Namespace, program: list[str]) -> Arguments:
    target, line = _target_and_line(parsed)
    return Arguments(
        "passes",
        target=target,
        target_argv=tuple(program),
        is_module=parsed.module,
        format=parsed.format,
        output=parsed.output,
        native_target=parsed.native_target,
        triton=parsed.triton,
        compiler=parsed.compiler,
        passes=PassQuery(
            kernel=parsed.kernel,
            pass_name=parsed.pass_name,
            only_changed=parsed.only_changed,
            text_diff=parsed.diff,
            line=line,
        ),
    )


def _lines_arguments(parsed: argparse.Namespace, program: list[str]) -> Arguments:
    target, line = _target_and_line(parsed)
    return Arguments(
        "lines",
        target=target,
        target_argv=tuple(program),
        is_module=parsed.module,
        format=parsed.format,
        output=parsed.output,
        native_target=parsed.native_target,
        triton=parsed.triton,
        compiler=parsed.compiler,
        lines=LinesQuery(parsed.kernel, line, parsed.ptx, parsed.sass),
    )


def _target_and_line(parsed: argparse.Namespace) -> tuple[str, str | None]:
    """`script.py:24`, as messages and editors write a place, is that line of the script."""
    target: str = parsed.target
    file, colon, number = target.rpartition(":")
    is_place = bool(colon) and number.isdecimal() and file.endswith(".py")
    if parsed.line is None and is_place and not os.path.exists(target) and not parsed.module:
        return file, number
    return target, parsed.line


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the script's: of `run` from the script or `-m` on, else those after `--`.

    Not left to argparse, whose idea of where `--` and options after a positional belong has
    changed between Python releases.
    """
    words = list(argv)
    if words[:1] == ["debug"]:
        at = 1
        while at < len(words) and words[at].startswith("-") and not _begins_debugged(words[at]):
            at += 2 if words[at] in _DEBUG_OPTIONS_WITH_VALUE else 1
        return words[:at], words[at:]
    if words[:1] != ["run"]:
        at = words.index("--") if "--" in words else len(words)
        return words[:at], words[at + 1 :]
    at = 1
    while at < len(words) and words[at].startswith("-") and not _begins_program(words[at]):
        at += 2 if words[at] in _OPTIONS_WITH_VALUE else 1
    return words[:at], words[at:]


def _begins_debugged(word: str) -> bool:
    """Whether the script begins there: `-c` is a command, so that code has an option of its own."""
    return word in ("-m", "--", "-", "--code") or word.startswith("--code=")


def _begins_program(word: str) -> bool:
    return word in ("-m", "--", "-") or (word.startswith("-c") and not word.startswith("--"))


def _run_arguments(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, program: list[str]
) -> Arguments:
    first = program[0] if program else ""
    is_module, is_code = first == "-m", first.startswith("-c")
    words = program[1:] if first in ("-m", "--", "-c") else program
    if is_code and first != "-c":  # as Python takes it, too: -c"code"
        words = [first[2:], *words[1:]]
    if not words:
        parser.error("give a script.py, -m module, -c code, or - for stdin, to run")
    return Arguments(
        "run",
        target=words[0],
        target_argv=tuple(words[1:]),
        is_module=is_module,
        is_code=is_code,
        mode=parsed.mode,
        tui=parsed.tui,
        session=parsed.session,
        report=parsed.report,
        report_format=_report_format(parser, parsed),
        quick=parsed.quick,
        triton=parsed.triton,
        compiler=parsed.compiler,
        interpret=tuple(parsed.interpret),
        checks=_checks(parsed.check),
        only=tuple(parsed.only),
        ignored=tuple(dict.fromkeys(kind for kinds in parsed.ignore for kind in kinds)),
        baseline=parsed.baseline,
        update_baseline=parsed.update_baseline,
        native_target=_target_of_run(parsed),
        temporary=parsed.temporary,
        coredump=parsed.coredump or parsed.hang_timeout is not None,
        check_launches=parsed.check_launches,
        watches=tuple(parsed.watches),
        instrumentations=tuple(parsed.instrumentations),
        timelines=tuple(parsed.timelines),
        print_elements=parsed.print_elements,
        hang_timeout_s=parsed.hang_timeout,
        stacks=parsed.stacks,
        stalls=parsed.stalls,
        advise=parsed.advise,
        nvtx=parsed.nvtx,
        pane_socket=parsed.pane_socket,
        waits_for_pane=parsed.wait_for_pane,
    )


def _debug_arguments(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, program: list[str]
) -> Arguments:
    option, equals, code = program[0].partition("=") if program else ("", "", "")
    is_module, is_code = option == "-m", option == "--code"
    words = program[1:] if option in ("-m", "--", "--code") else program
    if is_code and equals:
        words = [code, *words]
    if not words:
        parser.error("give a script.py, -m module, --code code, or - for stdin, to debug")
    if parsed.json and parsed.tui:
        parser.error("--json: the TUI answers on the screen; leave --tui out")
    if parsed.native_target is not None and parsed.tui:
        parser.error("--target: the Debug pane's GPU IR is for the usual one; leave --tui out")
    return Arguments(
        "debug",
        target=words[0],
        target_argv=tuple(words[1:]),
        is_module=is_module,
        is_code=is_code,
        commands=tuple(parsed.commands),
        commands_file=parsed.commands_file,
        stage=parsed.stage,
        against=parsed.against,
        native_target=parsed.native_target,
        triton=parsed.triton,
        format="json" if parsed.json else "text",
        tui=parsed.tui,
    )


def _checks(asked: Sequence[str]) -> tuple[str, ...]:
    """The checks that were asked for; "all" are tkdebug's own."""
    own = CHECK_NAMES if "all" in asked else ()
    return tuple(dict.fromkeys((*own, *(name for name in asked if name != "all"))))


def _target_of_run(parsed: argparse.Namespace) -> str | None:
    asked: str | None = parsed.native_target
    return _USUAL_ARCH if asked is None and parsed.advise else asked


def _report_format(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> str | None:
    asked: str | None = parsed.report_format
    if asked is not None and parsed.report is None:
        parser.error(f"--report-format {asked}: give the file, too: --report FILE")
    return asked
