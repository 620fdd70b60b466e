"""A script that is run for one of its faults, whose launch then becomes a script of its own.

The script may be the failing case of an answer of `tkdebug verify`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.checks import CHECK_NAMES, NO_CHECKS
from tkdebug.cli.command import INTERRUPTED_STATUS, ScriptEndedError
from tkdebug.cli.command_line import ScriptWords, check_variables
from tkdebug.cli.runs.compiled_run import is_session, stdout_to_stderr
from tkdebug.cli.runs.request import program_of
from tkdebug.cli.script.execution import Program, command_program, loaded, quotable, run_program
from tkdebug.errors import UsageError, shown_path
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.process.named_files import read_text
from tkdebug.records.events import ENDING_KINDS, Fault
from tkdebug.runtime.device.torch_package import import_torch
from tkdebug.terminal.text import tell
from tkdebug.verification.records import Answer, Finding, Request

if TYPE_CHECKING:
    from tkdebug.reproduction.capture import Catcher, Caught
    from tkdebug.reproduction.reproducing import Reproduction
    from tkdebug.reproduction.script import Script

# Kinds that only a GPU shows: the interpreter finds the access.
_OF_A_GPU = ENDING_KINDS - {"compile-error"}
# For causes: they are not looked for here.
_NO_SECONDS = 1e-3
_MOST_ANSWER_BYTES = 16 << 20
CASE_NAME = "<case of verify>"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The fault that is looked for while the script runs.

    Attributes:
        is_it: whether a fault is the one.
        text: the name of the fault in messages.
        checks: the checks that find it.
        takes_warnings: whether the first warning is taken where there is no error.
    """

    is_it: Callable[[Fault], bool]
    text: str
    checks: tuple[str, ...] = ()
    takes_warnings: bool = False


def reproduced(options: argparse.Namespace) -> tuple[Reproduction, tuple[str, ...]]:
    """Run a script for a fault; return its short script, and the options that show it again.

    Raises:
        TkError: there is no such fault, or its launch alone does not show it.
    """
    # Torch and the interpreter: nothing that help needs.
    from tkdebug import compat
    from tkdebug.causes.rerun import on_one_thread
    from tkdebug.reproduction.reproducing import Reproducer

    program, wanted = _asked(options)
    program = loaded(program)
    check_variables()
    import_torch()
    caught, begun = _caught(program, wanted, options)
    kind = caught.fault.kind
    checks = (kind, NO_CHECKS) if kind in CHECK_NAMES else (NO_CHECKS,)
    scope = KNOBS.scope(cause_seconds=_NO_SECONDS, baseline=None, ignored_kinds=(), only_kernels=())
    installed = compat.install("interpret", True, checks=checks, triton=options.triton_version)
    with quotable(program), scope, installed, on_one_thread():
        made = Reproducer(caught, begun, options.budget).reproduce()
    words = ("--check", kind) if kind in CHECK_NAMES else ()
    return made, words


def _caught(
    program: Program, wanted: _Wanted, options: argparse.Namespace
) -> tuple[Caught, Script]:
    from tkdebug import compat
    from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
    from tkdebug.reproduction.building import begun
    from tkdebug.reproduction.capture import Catcher

    checks = (*wanted.checks, *(options.checks or ()))
    own = CHECK_NAMES if "all" in checks else ()
    names = tuple(dict.fromkeys((*own, *(name for name in checks if name != "all"))))
    scope = KNOBS.scope(cause=True, cause_seconds=_NO_SECONDS)
    installed = compat.install("interpret", True, checks=names, triton=options.triton_version)
    with scope, installed, quotable(program), Catcher(wanted.is_it) as catcher:
        with stdout_to_stderr():
            status = run_program(program).exit_status
            HELD_GAPS.end()  # while faults are heard
        caught = catcher.caught or (catcher.spare if wanted.takes_warnings else None)
        if caught is not None:
            # The script's modules are known only while they are in place.
            return caught, begun(caught)
    raise _nothing(program.name, catcher, wanted, status)


def _nothing(script: str, catcher: Catcher, wanted: _Wanted, status: int) -> UsageError:
    """Return the error that says why there is nothing to reproduce."""
    failure = catcher.failure or (catcher.spare_failure if wanted.takes_warnings else "")
    if failure:
        return UsageError(f"{script}: {failure}")
    if status == INTERRUPTED_STATUS:
        return ScriptEndedError(f"{script}: it was interrupted before {wanted.text}", status)
    seen = ", ".join(dict.fromkeys(f"{one.kind} in {one.kernel}" for one in catcher.seen))
    others = f"; it had {seen}" if seen else ""
    ended = f"it ended with status {status} and " if status else ""
    return UsageError(
        f"{script}: {ended}showed no {wanted.text}, interpreted{others}; "
        "`tkdebug run --mode interpret --check all` shows what it has"
    )


def _asked(options: argparse.Namespace) -> tuple[Program, _Wanted]:
    """Return the program to run, and the fault to look for."""
    file = options.script.file
    if file is not None and file.suffix == ".json":
        if options.script.argv:
            argv = " ".join(options.script.argv)
            raise UsageError(f"{argv}: {file} is an answer of verify, which takes no arguments")
        if options.fault is not None:
            raise UsageError(
                f"--fault {options.fault}: {file} is an answer of verify; leave it out"
            )
        return _asked_case(file)
    if file is None or not is_session(file):
        return program_of(options.script), _numbered(options.fault)
    if options.script.argv:
        argv = " ".join(options.script.argv)
        raise UsageError(f"{argv}: {file} is a recorded run, whose arguments are recorded")
    with Session.open(file) as session:
        run = session.run()
        groups = [group.fault for group in session.fault_groups()]
    fault = _chosen(groups, options.fault, file)
    script = _recorded_script(run.script, run.argv, file)
    place = f"{shown_path(fault.file or '')}:{fault.line}"
    tell(f"{place}: {fault.kind} in {fault.kernel}: running {script.target} again for it")
    checks = (fault.kind,) if fault.kind in CHECK_NAMES else ()
    text = f"{fault.kind} at {place}"
    return program_of(script), _Wanted(lambda found: _is_same(found, fault), text, checks)


def _asked_case(file: Path) -> tuple[Program, _Wanted]:
    """Return a program that runs the failing case of an answer of verify, and its fault."""
    _, finding = failed_finding(file)
    checks = (finding.kind,) if finding.kind in CHECK_NAMES else ()
    wanted = _Wanted(lambda found: is_of(finding, found), finding.kind, checks)
    return command_program(case_code(file), (), CASE_NAME), wanted


def _numbered(number: int | None) -> _Wanted:
    """Return the wanted fault: a script's fault of that number, or for None the first that fails.

    Without one that fails, None takes the first warning.
    """
    seen: set[object] = set()

    def is_it(fault: Fault) -> bool:
        if number is None:
            return fault.fails
        seen.add((fault.kind, fault.kernel, fault.frames, fault.tensor))
        return len(seen) == number

    if number is None:
        return _Wanted(is_it, "fault", takes_warnings=True)
    return _Wanted(is_it, f"fault {number}")


def _chosen(faults: list[Fault], number: int | None, file: Path) -> Fault:
    if number is not None:
        if number > len(faults):
            raise UsageError(f"--fault {number}: {file} has {counted(len(faults), 'fault')}")
        return faults[number - 1]
    found = [fault for fault in faults if fault.fails] or [one for one in faults if one.is_open]
    if found:
        return found[0]
    if not faults:
        raise UsageError(f"{file}: the run has no fault; give one that has, or a script")
    raise UsageError(
        f"{file}: comments and the baseline cover each fault; --fault N names one of {len(faults)}"
    )


def _is_same(found: Fault, fault: Fault) -> bool:
    """Whether a fault that was found is the one of the recorded run."""
    if found.kernel != fault.kernel:
        return False
    if fault.kind in _OF_A_GPU:
        # The crash's line is the access's, where it is known at all.
        is_known = fault.line is not None and fault.kind not in ("cuda-error", "hang")
        return found.fails and (not is_known or found.line == fault.line)
    if fault.tensor not in (None, found.tensor):
        return False
    names = [os.path.basename(one.file or "") for one in (found, fault)]
    return (found.kind, found.line, names[0]) == (fault.kind, fault.line, names[1])


def _recorded_script(script: str, argv: tuple[str, ...], session: Path) -> ScriptWords:
    """Return the script of a recorded run.

    Raises:
        UsageError: the script is in no file, or not here.
    """
    if script.startswith("-"):
        raise UsageError(f"{session}: its script is in no file ({script}); give the script itself")
    for folder in (Path(), session.parent):
        if (folder / script).is_file():
            return ScriptWords(str(folder / script), argv)
    if all(part.isidentifier() for part in script.split(".")) and not script.endswith(".py"):
        return replace(ScriptWords(script, argv), is_module=True)
    raise UsageError(f"{session}: its script {script} is not here; give the script itself")


def failed_finding(file: Path) -> tuple[Answer, Finding]:
    """Return an answer, and the first finding that makes the kernel wrong and has a case.

    Raises:
        UsageError: the file cannot be read, is no answer, or has no such finding.
    """
    try:
        answer = Answer.of_json(json.loads(read_text(file, _MOST_ANSWER_BYTES)))
    except OSError as error:
        raise UsageError(
            f"{file}: cannot be read ({error.strerror}); give an answer of verify, a script or a "
            "recorded run"
        ) from None
    except (ValueError, TypeError, KeyError, RecursionError, UsageError) as error:
        raise UsageError(
            f"{file}: got no answer of `tkdebug verify --format json` ({error}); "
            "give one, a script or a recorded run"
        ) from None
    found = next((one for one in answer.findings if one.is_wrong and one.case is not None), None)
    if found is None:
        raise UsageError(f"{file}: the verdict is {answer.verdict}: there is no failing case")
    return answer, found


def case_code(file: Path) -> str:
    """Return a script that calls the kernel on the failing case, and compares."""
    name = str(file.absolute())
    return f"from tkdebug.cli.runs.reproduced_run import run_case\nrun_case({name!r})\n"


def is_of(finding: Finding, fault: Fault) -> bool:
    """Whether a fault is of the kind that a finding is about."""
    kind = "mismatch" if finding.kind == "wrong-value" else finding.kind
    return fault.kind == kind


def run_case(name: str) -> None:
    """Call the kernel of an answer on its failing case, and compare with the reference.

    Raises:
        AssertionError: they differ.
    """
    import torch

    from tkdebug.verification.inputs import dense_values, placed
    from tkdebug.verification.oracle import tensors_in
    from tkdebug.verification.problem import load

    answer, finding = failed_finding(Path(name))
    case = finding.case
    assert case is not None
    words = shlex.split(answer.replay)
    inputs = words[words.index("--inputs") + 1] if "--inputs" in words[:-1] else ""
    function = "" if answer.function == "ModelNew" else answer.function
    problem = load(Request(answer.file, function, answer.reference, inputs, answer.seed))
    dense = dense_values(problem.example, case)
    given = problem.example.filled(placed(dense, case, problem.device), case.numbers)
    same = problem.example.filled([tensor.clone() for tensor in dense], case.numbers)
    expected = problem.call_reference(same, case, False, None)
    result = problem.call(problem.function(case), given)
    for (_, got), (_, want) in zip(tensors_in(result), tensors_in(expected), strict=False):
        torch.testing.assert_close(got, want.to(got.dtype).to(got.device), equal_nan=True)
