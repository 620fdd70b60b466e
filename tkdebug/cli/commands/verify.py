"""`tkdebug verify`: whether a kernel is right, by its reference."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import FAULT_STATUS, Command
from tkdebug.cli.options import add_output, positive_count, positive_seconds

if TYPE_CHECKING:
    from tkdebug.verification.records import Answer, Request

UNDECIDED_STATUS = 4
_SECONDS = 30.0
_CASES = 600
_MODES = ("interpret", "native", "both")
_FORMATS = ("text", "json", "sarif", "junit")


class VerifyCommand(Command):
    """Calls a kernel and its reference on many inputs, and gives a verdict."""

    help = "whether a kernel is right: a verdict, with the smallest example if it is wrong"
    usage = (
        "tkdebug verify [options] FILE[:function] --reference module:function\n"
        "       tkdebug verify --join a.json b.json ..."
    )
    description = (
        "Call a function that launches Triton kernels, or KernelBench's class ModelNew, on many "
        "inputs made of its example inputs: sizes, layouts, dtypes, values. Each result is "
        "compared with a reference in fp64; kernels are interpreted with all checks on, and run on "
        "a GPU, too, where there is one. The "
        "kernel's file runs in a process of its own, with your rights."
    )
    epilog = "The exit status is 0 for right, 3 for wrong, 4 for undecided."

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the kernel, its reference, and how it is looked at."""
        parser.add_argument(
            "kernel", nargs="*", metavar="FILE[:function]", help="ModelNew by default"
        )
        parser.add_argument(
            "--reference",
            metavar="MODULE:NAME",
            help="a function or class of torch that says what is right; modules beside FILE are "
            "found",
        )
        parser.add_argument(
            "--inputs",
            default="",
            metavar="MODULE:FUNCTION",
            help="gives a list of example arguments; get_inputs of the reference's file, or of "
            "FILE, by default",
        )
        parser.add_argument(
            "--mode",
            choices=_MODES,
            help="interpret; native: on the GPU, with checks; both: both in turn, the default "
            "where there is a GPU",
        )
        parser.add_argument("--seed", type=int, default=0, help="of the search; 0 by default")
        parser.add_argument(
            "--budget",
            type=positive_seconds,
            default=_SECONDS,
            metavar="S",
            help=f"seconds of processor time for all; {_SECONDS:g} by default",
        )
        parser.add_argument(
            "--cases",
            type=positive_count,
            default=_CASES,
            metavar="N",
            help=f"try at most N cases, beside those for tricks; {_CASES} by default",
        )
        parser.add_argument(
            "--shard", type=_shard, default=(1, 1), metavar="I/N", help="a part of the cases"
        )
        parser.add_argument(
            "--case", default="", metavar="JSON", help="the case of an answer alone"
        )
        parser.add_argument(
            "--deterministic", action="store_true", help="the same call must give the same bits"
        )
        parser.add_argument(
            "--batch-invariant",
            action="store_true",
            help="rows must have the same bits in a batch of another size",
        )
        parser.add_argument(
            "--join", action="store_true", help="join the answers of shards, given as JSON files"
        )
        parser.add_argument("--format", choices=_FORMATS, default="text", help="text by default")
        add_output(parser)

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """End the process where a kernel or a reference is missing."""
        if not options.kernel:
            parser.error("expected FILE[:function], or --join with the answers of shards")
        if not options.join and len(options.kernel) > 1:
            parser.error(f"got {len(options.kernel)} files, expected one FILE[:function]")
        if not options.join and options.reference is None:
            parser.error("--reference is missing: module:function, which says what is right")

    def run(self, options: argparse.Namespace) -> int:
        """Print the answer; the result is the exit status."""
        from tkdebug.cli.places import check_answer, put_out
        from tkdebug.verification.report import render

        check_answer(options.output, None if options.join else Path(_request(options).file))
        answer = _joined(options) if options.join else _verified(options)
        put_out(render(answer, options.format), options.output)
        if answer.verdict == "right":
            return 0
        return FAULT_STATUS if answer.verdict == "wrong" else UNDECIDED_STATUS


COMMAND = VerifyCommand()


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= 999:
        return int(number), int(count)
    raise argparse.ArgumentTypeError(f"got {text!r}, expected a part such as 1/4")


def _request(options: argparse.Namespace) -> Request:
    from tkdebug.verification.records import Request

    file, colon, function = options.kernel[0].rpartition(":")
    if not colon:
        file, function = function, ""
    return Request(
        file,
        function,
        options.reference,
        options.inputs,
        options.seed,
        options.budget,
        options.cases,
        options.shard,
        options.case,
        options.deterministic,
        options.batch_invariant,
    )


def _modes(asked: str | None) -> tuple[str, ...]:
    """Return how kernels run: in both ways where there is a GPU, unless asked otherwise."""
    if asked is None:
        # It loads a GPU's driver: only where that may be used.
        from tkdebug.runtime.device.platform import platform_in_force

        asked = "both" if platform_in_force().obstacle() is None else "interpret"
    return ("native", "interpret") if asked == "both" else (asked,)


def _verified(options: argparse.Namespace) -> Answer:
    """Verify in a process of its own for each mode, and return the answer with its replay."""
    from tkdebug.cli.script.ending import end_by_signal, ending_signals
    from tkdebug.errors import Terminated, UsageError
    from tkdebug.verification.process import verify
    from tkdebug.verification.records import Case, in_modes

    request = _request(options)
    if not Path(request.file).is_file():
        raise UsageError(f"{request.file}: there is no such file")
    if request.case:
        Case.of_text(request.case)  # what is wrong with it is said before anything runs
    try:
        with ending_signals():
            modes = _modes(options.mode)
            answer = in_modes([verify(replace(request, mode=mode)) for mode in modes])
    except Terminated as error:
        end_by_signal(error.signal)  # the kernel's process has ended
        raise
    answer.replay = replay_of(options.kernel[0], request, options.mode, answer)
    return answer


def replay_of(kernel: str, request: Request, mode: str | None, answer: Answer) -> str:
    """Return the command that shows an answer again, by its first case if it has one."""
    from tkdebug.verification.records import KINDS_OF_BITS

    words = ["tkdebug", "verify", kernel, "--reference", request.reference]
    words += ["--inputs", request.inputs] if request.inputs else []
    words += ["--mode", mode] if mode is not None else []
    words += ["--seed", str(request.seed)]
    first = next((f for f in answer.findings if f.is_wrong and f.case is not None), None)
    if first is not None and first.case is not None and first.kind not in KINDS_OF_BITS:
        return shlex.join([*words, "--case", first.case.as_text()])
    # Bits are compared by a search: a case alone is called once.
    words += ["--deterministic"] if request.is_deterministic else []
    words += ["--batch-invariant"] if request.is_batch_invariant else []
    return shlex.join(words)


def _joined(options: argparse.Namespace) -> Answer:
    from tkdebug.verification.records import joined
    from tkdebug.verification.report import read

    return joined([read(Path(name)) for name in options.kernel])
