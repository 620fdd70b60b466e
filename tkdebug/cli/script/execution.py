"""Running the user's script in this process as `__main__`, as the interpreter itself would.

Responsible for `sys.argv`, `sys.path[0]`, `__main__` and for how the script ended. Not responsible
for its observers. Invariant: the script sees the same names, paths and traceback that `python
script.py` would show.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import tkdebug
from tkdebug.cli.script.ending import (
    ExitHandlers,
    ending_signals,
    join_processes,
    join_threads,
    kept_streams,
)
from tkdebug.errors import Terminated, UsageError
from tkdebug.process.named_files import COMMAND, STDIN, open_regular
from tkdebug.process.tracebacks import show_exception

SQLITE_MAGIC = b"SQLite format 3\0"


class NoProgramError(UsageError):
    """There is nothing to run; raised before a line of the user's has run."""


@dataclass(frozen=True, slots=True)
class Program:
    """A script, module or code to run.

    Attributes:
        name: the name as it was typed.
        argv: `sys.argv` of the script.
        path_entry: its `sys.path[0]`.
        text: the program's text, if it is in no file; None while stdin holds it.
        text_name: the file name that Python gives such a text; "" for a file or module.
    """

    name: str
    argv: tuple[str, ...]
    path_entry: str
    is_module: bool
    text: bytes | None = None
    text_name: str = ""

    @property
    def file(self) -> str:
        """The file that its code has; "" for a module, whose file is found when it runs."""
        if self.text_name:
            return self.text_name
        return "" if self.is_module else os.path.abspath(self.name)

    @property
    def script(self) -> Path | None:
        """The script, as it was typed; None for a module, code or stdin."""
        return None if self.is_module or self.text_name else Path(self.name)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the script."""
        return self.argv[1:]

    @property
    def is_stdin(self) -> bool:
        """Whether the script is read from stdin."""
        return self.text_name == STDIN


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a script: its exit status, its exception, the signal that ended it."""

    exit_status: int
    error: BaseException | None = None
    signal: int | None = None


def command_program(code: str, argv: tuple[str, ...], name: str = COMMAND) -> Program:
    """Return the program that `python -c code` would run.

    Args:
        code: the script.
        argv: the program's arguments.
        name: the name of the file that it is said to be in.
    """
    return Program("-c", ("-c", *argv), "", False, code.encode("utf-8", "surrogateescape"), name)


def stdin_program(argv: tuple[str, ...]) -> Program:
    """The script that stdin holds, which `loaded` reads."""
    return Program("-", ("-", *argv), "", False, None, STDIN)


def loaded(program: Program) -> Program:
    """Read a script from stdin, to its end; any other program is returned unchanged.

    Raises:
        NoProgramError: there is no stdin, or it holds no text.
    """
    if not program.is_stdin:
        return program
    if sys.stdin is None:
        raise NoProgramError("-: this process has no stdin")
    text = sys.stdin.buffer.read()
    if b"\0" in text:
        raise NoProgramError("-: stdin holds binary data, expected Python source")
    return replace(program, text=text)


@contextlib.contextmanager
def quotable(program: Program) -> Iterator[None]:
    """Let faults and errors quote the lines of a program that is in no file, in `linecache`."""
    if program.text is None:
        yield
        return
    try:
        text = importlib.util.decode_source(program.text)
    except (SyntaxError, UnicodeDecodeError):
        text = ""  # Python says so when it compiles it
    before = linecache.cache.get(program.text_name)
    lines = text.splitlines(keepends=True)
    linecache.cache[program.text_name] = (len(text), None, lines, program.text_name)
    try:
        yield
    finally:
        linecache.cache.pop(program.text_name, None)
        if before is not None:
            linecache.cache[program.text_name] = before


def find_program(target: str, argv: tuple[str, ...], is_module: bool) -> Program:
    """Check that `target` can be run at all, before anything else is done.

    Raises:
        NoProgramError: there is no such script, or it is no Python source.
    """
    if is_module:
        if not all(part.isidentifier() for part in target.split(".")):
            raise NoProgramError(f"-m {target}: expected a module name such as package.module")
        program = Program(target, ("-m", *argv), str(Path.cwd()), True)
        top = target.partition(".")[0]
        if top != "triton":  # which is ours, and in place for the run alone
            with _search_path(program):
                _find_spec(top)  # the parts below it run code of the user's
        return program
    path = Path(target)
    # `os.path` takes what cannot be looked at, such as a name of 300 letters, for not there.
    if not os.path.exists(path):
        raise NoProgramError(f"{target}: no such file; {_instead(target, argv)}")
    if os.path.isdir(path):
        raise NoProgramError(
            f"{target}: is a directory; give a script in it, or a package with `-m package`"
        )
    if not os.path.isfile(path):
        raise NoProgramError(f"{target}: is not a regular file; write the script into one")
    try:
        with open_regular(path) as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise NoProgramError(f"{target}: cannot be read ({error.strerror})") from error
    if head.startswith(SQLITE_MAGIC):
        raise NoProgramError(f"{target}: is a recorded run; `tkdebug view {target}` opens it")
    # UTF-16 has null bytes too; Python reads neither.
    if b"\0" in head:
        raise NoProgramError(f"{target}: is a binary file, expected Python source")
    return Program(target, (target, *argv), str(path.resolve().parent), False)


def _instead(target: str, argv: tuple[str, ...]) -> str:
    """Return what to type instead of a `target` that is not there."""
    name = target.rpartition("/")[2]
    if argv and (name == "python" or name.startswith("python3")):
        return f"tkdebug is the Python here: leave out {target} and give {' '.join(argv)}"
    if name == "pytest":
        return "give -m pytest"
    if target == "-":
        return (
            "only `tkdebug run` and `tkdebug debug` read a script from stdin; write it into a file"
        )
    return "give the path of a Python script"


def run_program(program: Program) -> Ending:
    """Run a program; show an uncaught exception, and end the program, as Python does."""
    handlers = ExitHandlers()
    with kept_streams(), _as_main(program) as module, ending_signals():
        with handlers.noted():
            ending = _ended(lambda: _execute(program, module))
            waited = _ended(join_threads)
            if ending.signal is None:
                handlers.run()
        joined = _ended(join_processes)
    if ending.exit_status:
        return ending
    return next((late for late in (waited, joined) if late.exit_status), ending)


def run_debugged_program(program: Program, begin: Callable[[], None]) -> Ending:
    """Run the program, and again as often as the debugger asks for that.

    Args:
        program: the program to run.
        begin: starts to trace its lines; called before each run.
    """
    # Imports what a run without a debugger has no need of.
    from tkdebug.debugger.goals import RunAgain

    while True:
        begin()
        try:
            ending = run_program(program)
        finally:
            sys.settrace(None)
        if not isinstance(ending.error, RunAgain):
            return ending


def _execute(program: Program, module: ModuleType) -> None:
    if program.text is not None:
        code = compile(program.text, program.text_name, "exec", dont_inherit=True)
    elif program.is_module:
        code = _module_code(program, module)
    else:
        code = _script_code(program, module)
    exec(code, vars(module))


def _script_code(program: Program, module: ModuleType) -> CodeType:
    path = program.file
    loader = SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __loader__=loader, __cached__=None)
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)


def _module_code(program: Program, module: ModuleType) -> CodeType:
    spec = _find_spec(program.name)
    if spec.submodule_search_locations is not None:
        spec = _find_spec(f"{program.name}.__main__", package=program.name)
    # importlib's loaders of source have `get_code`; the abstract one that `spec` promises has not.
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(spec.name) if get_code is not None else None
    if not isinstance(code, CodeType) or spec.origin is None:
        raise NoProgramError(f"-m {program.name}: has no Python code to run")
    sys.argv[0] = spec.origin
    vars(module).update(
        __file__=spec.origin,
        __loader__=spec.loader,
        __cached__=spec.cached,
        __spec__=spec,
        __package__=spec.parent,
    )
    return code


def _find_spec(name: str, package: str | None = None) -> ModuleSpec:
    missing = None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A parent package that is not there; one whose own imports fail is the user's to see.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec, missing = None, error.name
    if spec is not None:
        return spec
    if package is not None:
        raise NoProgramError(
            f"-m {package}: is a package without a __main__.py; give one of its modules"
        )
    raise NoProgramError(
        f"-m {name}: no module named {missing or name}; "
        "check the name and that it can be imported from here"
    )


@contextlib.contextmanager
def _as_main(program: Program) -> Iterator[ModuleType]:
    module = ModuleType("__main__")
    vars(module)["__builtins__"] = builtins
    before = (sys.argv, sys.modules["__main__"])
    sys.argv = list(program.argv)
    sys.modules["__main__"] = module
    try:
        with _search_path(program):
            yield module
    finally:
        sys.argv, sys.modules["__main__"] = before


def command_in_a_process(*words: str) -> list[str]:
    """Return the command line that starts `tkdebug` with these words in a process of its own.

    With `python -m`, modules of the current folder would be taken for Python's and torch's.
    """
    ours = str(Path(tkdebug.__file__).parents[1])
    text = (
        f"import sys; sys.path[0] = sys.path[0] or {ours!r}; "
        "from tkdebug.cli import main; sys.exit(main())"
    )
    return [sys.executable, "-c", text, *words]


@contextlib.contextmanager
def _search_path(program: Program) -> Iterator[None]:
    before = list(sys.path)
    # The replaced entry is our own command's: the console script's folder, or the current one.
    # Under -P or PYTHONSAFEPATH (3.11) there is no such entry, for us or for the script.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0:1] = [program.path_entry]
    try:
        yield
    finally:
        sys.path[:] = before


def _ended(step: Callable[[], None]) -> Ending:
    try:
        try:
            return _ended_or_interrupted(step)
        except KeyboardInterrupt as error:
            # It came during a call of the script that failed because of it, as of the driver.
            show_exception(error)
            return Ending(130, error)
    except Terminated as error:
        # The same, while an exception was shown.
        return Ending(128 + error.signal, error, error.signal)


def _ended_or_interrupted(step: Callable[[], None]) -> Ending:
    try:
        step()
    except NoProgramError:
        raise
    except SystemExit as error:
        return Ending(_system_exit_status(error), error)
    except Terminated as error:
        return Ending(128 + error.signal, error, error.signal)
    except KeyboardInterrupt as error:
        show_exception(error)
        return Ending(130, error)
    except BaseException as error:
        show_exception(error)
        return Ending(1, error)
    return Ending(0)


def _system_exit_status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1
