"""The command line parsed: what tkdebug's words come to."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tkdebug.checks import CHECK_NAMES
from tkdebug.cli.command_line.mistakes import refuse_unknown_command, refuse_unknown_options
from tkdebug.cli.command_line.parser import build_parser
from tkdebug.cli.command_line.script_words import (
    ScriptWords,
    script_words,
    split,
    tell_own_options,
)
from tkdebug.cli.line_answers.query import LinesQuery
from tkdebug.instrument.passes.query import PassQuery
from tkdebug.knobs.values import CheckedLaunchesName

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
        format: the format of an answer; None likewise.
        checks_all: whether all checks were asked for, and not each by its name.
        only: patterns of the kernels that are checked.
        ignored: kinds of faults that are not reported.
        baseline: the file of known faults.
        update_baseline: whether it is to be written anew.
        tui: True or False as asked, None for whatever suits the terminal.
        compiler: what compiles kernels; None as the knob says.
        ask_triton: a Python whose Triton is asked about each signature; None as the knob says.
        native_target: the architecture to compile for without a GPU, "none" for none, None for
            the usual one where this machine can.
        kernel: the name, pattern or hash of the kernels that are shown; None for all.
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
    ask_triton: str | None = None
    interpret: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    checks_all: bool = False
    only: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    baseline: Path | None = None
    update_baseline: bool = False
    format: str | None = None
    output: Path | None = None
    native_target: str | None = None
    kernel: str | None = None
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

    @property
    def reads_stdin(self) -> bool:
        """Whether the script is read from stdin."""
        return self.target == "-" and not (self.is_module or self.is_code)

    @property
    def target_file(self) -> Path | None:
        """The script, or what was recorded; None for a module, code or stdin."""
        in_no_file = self.is_module or self.is_code or self.reads_stdin
        return None if in_no_file else Path(self.target)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse `argv`; help, version and mistakes end the process as argparse does (0 and 2)."""
    parser, commands = build_parser()
    own, program = split(argv, commands)
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
                kernel=parsed.kernel,
            )
        case "compare":
            return _compare_arguments(commands["compare"], parsed, program)
        case "passes" | "lines" | "advise":
            return _asked_arguments(commands[parsed.command], parsed, program)
        case "ceilings":
            return Arguments("ceilings", format=parsed.format, output=parsed.output)
        case "crash":
            return Arguments("crash", dump=parsed.dump, format=parsed.format)
        case "completion":
            return Arguments("completion", shell=parsed.shell)
        case _:
            return Arguments("doctor")


def _compare_arguments(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, program: list[str]
) -> Arguments:
    expected = "before.tkd and after.tkd, or --compilers script.py"
    runs = (parsed.before, parsed.after)
    if parsed.compilers == any(runs) or (not parsed.compilers and None in runs):
        parser.error(f"give {expected}")
    script = script_words(parser, program, expected) if parsed.compilers else ScriptWords("", ())
    if script.is_module or script.is_code:
        parser.error(f"give {expected}")
    tell_own_options(parser, "compare", script)
    return Arguments(
        "compare",
        earlier=parsed.before,
        session=parsed.after,
        target=script.target,
        target_argv=script.argv,
        format=parsed.format,
        max_slowdown_percent=parsed.max_slowdown,
    )


def _asked_arguments(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, program: list[str]
) -> Arguments:
    """Those of commands that look at a recorded run, or at a script, which is run for it."""
    script = script_words(
        parser, program, "a script.py, -m module, -c code, - for stdin, or a recorded run.tkd"
    )
    tell_own_options(parser, parsed.command, script)
    line = None
    if parsed.command != "advise":
        script, line = _script_and_line(script, parsed.line)
    arguments = Arguments(
        parsed.command,
        target=script.target,
        target_argv=script.argv,
        is_module=script.is_module,
        is_code=script.is_code,
        format=parsed.format,
        output=parsed.output,
        native_target=parsed.native_target,
        triton=parsed.triton,
        kernel=parsed.kernel,
    )
    if parsed.command == "advise":
        return replace(arguments, times=parsed.times)
    if parsed.command == "lines":
        query = LinesQuery(parsed.kernel, line, parsed.ptx, parsed.sass)
        return replace(arguments, compiler=parsed.compiler, lines=query)
    passes = PassQuery(
        kernel=parsed.kernel,
        pass_name=parsed.pass_name,
        only_changed=parsed.only_changed,
        text_diff=parsed.diff,
        line=line,
    )
    return replace(arguments, compiler=parsed.compiler, passes=passes)


def _script_and_line(script: ScriptWords, line: str | None) -> tuple[ScriptWords, str | None]:
    """`script.py:24`, as messages and editors write a place, is that line of the script."""
    file, colon, number = script.target.rpartition(":")
    is_place = bool(colon) and number.isdecimal() and file.endswith(".py")
    is_file = not (script.is_module or script.is_code)
    if line is None and is_place and is_file and not os.path.exists(script.target):
        return replace(script, target=file), number
    return script, line


def _run_arguments(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, program: list[str]
) -> Arguments:
    script = script_words(
        parser, program, "a script.py, -m module, -c code, or - for stdin, to run"
    )
    return Arguments(
        "run",
        target=script.target,
        target_argv=script.argv,
        is_module=script.is_module,
        is_code=script.is_code,
        mode=parsed.mode,
        tui=parsed.tui,
        session=parsed.session,
        report=parsed.report,
        report_format=_report_format(parser, parsed),
        quick=parsed.quick,
        triton=parsed.triton,
        compiler=parsed.compiler,
        ask_triton=parsed.ask_triton,
        interpret=tuple(parsed.interpret),
        checks=_checks(parsed.check),
        checks_all="all" in parsed.check,
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
    expected = "a script.py, -m module, --code code, or - for stdin, to debug"
    script = script_words(parser, program, expected)
    tell_own_options(parser, "debug", script)
    if parsed.json and parsed.tui:
        parser.error("--json: the TUI answers on the screen; leave --tui out")
    if parsed.native_target is not None and parsed.tui:
        parser.error("--target: the Debug pane's GPU IR is for the usual one; leave --tui out")
    return Arguments(
        "debug",
        target=script.target,
        target_argv=script.argv,
        is_module=script.is_module,
        is_code=script.is_code,
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
