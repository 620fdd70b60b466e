"""The command to type next if a script that launched kernels ended by an exception.

Invariant: the command works as it stands and stops where the mistake can be seen; if none is known
to, nothing is said. The kernel that wrote a wrong tensor is not guessed: one is named if there was
no other.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import sysconfig
import traceback
from dataclasses import dataclass

from tkdebug.checks import CHECK_NAMES
from tkdebug.cli.runs.request import RunRequest
from tkdebug.cli.script.execution import Ending
from tkdebug.errors import shown_path
from tkdebug.instrument.records import FaultGroup, Launch
from tkdebug.instrument.session import Session
from tkdebug.process.named_files import source_lines
from tkdebug.process.tracebacks import is_own_file
from tkdebug.records.events import ENDING_KINDS, Fault
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.storage import stored
from tkdebug.terminal.text import tell, visible_line

_MOST_CHARS = 240
# As torch.testing says it.
_INDEX = re.compile(r"^Greatest absolute difference: .* at index \(([\d, ]+)\)", re.MULTILINE)
_PACKAGES = ("site-packages", "dist-packages")


@stored("uncaught_errors")
@dataclass(frozen=True, slots=True)
class UncaughtError:
    """The exception that ended a script.

    Attributes:
        kind: the exception's class.
        file: the file of the innermost line that belongs to no installed package, absolute.
        line: counted from 1.
        index: the index of the worst element, for a failed comparison of torch's; () for others.
    """

    kind: str
    file: str
    line: int
    index: tuple[int, ...] = ()


def note_error(ending: Ending) -> None:
    """Record the exception that ended the script, if one did."""
    error = ending.error
    if not isinstance(error, Exception):
        return  # it ended on purpose, or was interrupted
    places = [
        (os.path.abspath(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_users(frame.f_code.co_filename)
    ]
    if places:
        found = _INDEX.search(str(error)) if isinstance(error, AssertionError) else None
        index = tuple(map(int, re.findall(r"\d+", found[1]))) if found else ()
        HOOKS.record(UncaughtError(type(error).__name__, *places[-1], index))


def _is_users(file: str) -> bool:
    library = sysconfig.get_path("stdlib")
    parts = file.split(os.sep)
    installed = any(name in parts for name in _PACKAGES) or file.startswith(library + os.sep)
    return not installed and not is_own_file(file) and os.path.isfile(file)


def tell_next_step(request: RunRequest, session: Session, faults: tuple[FaultGroup, ...]) -> None:
    """Print the next command as the last line of a run, if there is one."""
    errors = session.records(UncaughtError, limit=1)
    if not errors or not session.launch_count() or request.waits_for_pane:
        return
    program = request.program
    if program.text_name:
        return  # the debugger takes scripts in files
    step = _step(errors[0].event, session, faults, request)
    if step is None:
        return
    why, options = step
    words = ["-m"] if program.is_module else []
    words += [program.name, *program.arguments]
    command = shlex.join(["tkdebug", *options, *words])
    if len(command) <= _MOST_CHARS and visible_line(command) == command:
        tell(f"{why}: {command}")


def _step(
    error: UncaughtError,
    session: Session,
    faults: tuple[FaultGroup, ...],
    request: RunRequest,
) -> tuple[str, list[str]] | None:
    """Return the purpose of the next command and its words before the script, or None."""
    version = request.given.get("triton_version")
    triton = [] if version is None else ["--triton", str(version)]
    open_faults = [group.fault for group in faults if group.fault.fails]
    if any(fault.kind == "hang" for fault in open_faults):
        return None  # it names the lines where warps wait; the interpreter may wait there too
    # For kernels that crash; a kernel that does not compile fails at its launch.
    if any(fault.kind in ENDING_KINDS - {"compile-error"} for fault in open_faults):
        return "to find the access", ["run", "--mode", "interpret", *triton]
    launches = session.launches_in_order(limit=2)
    is_failed_comparison = error.kind == "AssertionError" and bool(launches)
    lacks_inputs = _lacks_inputs(open_faults) and "cause" not in request.given
    if is_failed_comparison and (launches[0].mode == "native" or lacks_inputs):
        return "to find the cause", ["run", "--mode", "interpret", "--cause", *triton]
    for fault in open_faults:
        if fault.kind == "mismatch":
            continue  # nothing to stop at: a launch was compared after its end
        if fault.file is not None and fault.line is not None and fault.kind != "compile-error":
            place = f"b fault {fault.kind}"
            if fault.kind in CHECK_NAMES:  # not looked for in launches that are debugged
                place = f"b {_place(fault.file, fault.line, request)}"
            return "to stop at the fault", _debug(triton, place)
    if is_failed_comparison and len(launches) == 1:
        return _of_the_only(launches[0], error, triton)
    place = f"b {_place(error.file, error.line, request)}"
    return "to stop where it failed", _debug(triton, place)


def _lacks_inputs(faults: list[Fault]) -> bool:
    """Whether the cause of a mismatch was not looked for, as its inputs have changed."""
    return any(fault.cause is not None and fault.cause.lacks_inputs for fault in faults)


def _of_the_only(launch: Launch, error: UncaughtError, triton: list[str]) -> tuple[str, list[str]]:
    """Return the step to the end of the only launch, and if known to its most wrong element."""
    end = f"b end {launch.kernel}"
    tensors = {argument.name for argument in launch.arguments if argument.shape is not None}
    # As the debugger names them.
    tensors |= {name.removesuffix("_ptr") for name in tensors}
    named = [name for name in _passed_names(error.file, error.line) if name in tensors]
    if not error.index or len(named) != 1:
        return "to look at what it computed", _debug(triton, end)
    element = f"{named[0]}[{', '.join(map(str, error.index))}]"
    return f"to see what {element} was computed from", _debug(triton, end, f"why {element}")


def _passed_names(file: str, line: int) -> list[str]:
    """Return the names that are unchanged arguments of calls at a line."""
    try:
        tree = ast.parse("".join(source_lines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == line]
    names = [word.id for call in calls for word in call.args if isinstance(word, ast.Name)]
    return list(dict.fromkeys(names))


def _debug(options: list[str], *commands: str) -> list[str]:
    first, *rest = commands
    words = ["debug", *options, "-c", first, "-c", "c"]
    for command in rest:
        words += ["-c", command]
    return words


def _place(file: str, line: int, request: RunRequest) -> str:
    """A line as the debugger takes it: by its number alone, if it is the script's."""
    script = request.program.script
    is_script = script is not None and os.path.realpath(script) == os.path.realpath(file)
    return str(line) if is_script else f"{shown_path(file)}:{line}"
