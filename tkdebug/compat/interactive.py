"""`tkdebug.install()` and `%load_ext tkdebug`: tkdebug in a Python that it did not start.

Responsible for plain Python, IPython and notebooks, where faults are reported when they happen, and
counted when the process ends, or in IPython when the cell does. Not responsible for recording.
Invariant: if `tkdebug run` or the pytest plugin is in place already, that stays as it is.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tkdebug import compat
from tkdebug.checks import CHECK_CHOICES, CHECK_NAMES, NO_CHECKS
from tkdebug.compat.finder import TritonFinder, TritonLoader
from tkdebug.compat.replacements import InPlace
from tkdebug.errors import TkError, UsageError, instead_of
from tkdebug.fault_printing.printer import FaultPrinter
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import ModeName, parse_kinds, parse_watches
from tkdebug.plugins import WithPlugins
from tkdebug.process.tracebacks import prune_chain
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.torch_package import check_importable
from tkdebug.terminal.text import tell
from tkdebug.watches.in_force import WATCHES

if TYPE_CHECKING:
    from tkdebug.instrument.notebook import Run

MAGIC = "tkdebug"
_USUAL_TARGET = "sm_90a"


class _Events(Protocol):
    def register(self, event: str, function: Callable[..., None]) -> None: ...

    def unregister(self, event: str, function: Callable[..., None]) -> None: ...


class _Shell(Protocol):
    """IPython's shell, as far as it is used here."""

    events: _Events
    magics_manager: Any

    def register_magic_function(self, function: object, kind: str, name: str) -> None: ...

    def run_cell(self, text: str) -> object: ...

    def set_custom_exc(
        self, kinds: tuple[type[BaseException], ...], handler: Callable[..., None] | None
    ) -> None: ...

    def showtraceback(self, error: tuple[object, ...], tb_offset: int | None = None) -> None: ...


class Installation(InPlace):
    """An installation by `install`: a context manager, or call its `uninstall`.

    An installation that found tkdebug in place already has nothing to undo.
    """

    def put_in_place(
        self,
        mode: ModeName | None,
        checks: tuple[str, ...],
        quick: bool,
        knobs: Mapping[str, object],
        shell: _Shell | None,
    ) -> None:
        """Install tkdebug's `triton`, and print faults."""
        with ExitStack() as undo:
            undo.enter_context(KNOBS.scope(**knobs))
            installed = compat.install(mode or KNOBS.mode, quick=quick, checks=checks)
            undo.callback(installed.uninstall)
            teller = FaultPrinter()
            hook = Hook(fault=teller.on_fault)
            HOOKS.add(hook)
            undo.callback(HOOKS.remove, hook)
            if shell is None:
                atexit.register(teller.tell_counts)
                undo.callback(atexit.unregister, teller.tell_counts)
            else:
                undo.enter_context(_by_cell(shell, teller))
                shell.set_custom_exc((TkError,), _show_pruned)
                undo.callback(shell.set_custom_exc, (), None)
            self._undo = undo.pop_all()

    def uninstall(self) -> None:
        """Undo everything; a second call does nothing."""
        super().uninstall()
        if _InForce.installation is self:
            _InForce.installation = None


class _InForce:
    """The installation of this process, which the next one replaces."""

    installation: Installation | None = None


def install(
    mode: ModeName | None = None,
    checks: str | Sequence[str] = (),
    quick: bool = False,
    only: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    baseline: str | os.PathLike[str] | None = None,
) -> Installation:
    """Make `import triton` give tkdebug in this Python, and the CPU a CUDA device if there is none.

    Call it before triton is imported. A further call replaces the one before, with its
    own options.

    Args:
        mode: how kernels run: auto, interpret or native; by default TKDEBUG_MODE, else auto.
            Kernels with checks that need it are interpreted.
        checks: further checks of interpreted kernels, as by `tkdebug run --check`; "all" for
            everything, "none" for not even the default ones.
        quick: `do_bench` runs once, sweeps take their first x value.
        only: patterns of the names of the kernels that are checked.
        ignore: kinds of faults that are not reported.
        baseline: a file of known faults, which are not reported.

    Returns:
        The installation: a context manager, or call its `uninstall`.

    Raises:
        UsageError: there is no such mode, check or kind, the baseline cannot be read, or torch
            cannot be imported.
    """
    wanted = _check_names(checks)
    knobs = _knobs(only, ignore, baseline)
    check_importable()
    if _InForce.installation is not None:
        _InForce.installation.uninstall()
    installation = Installation()
    if any(isinstance(finder, TritonFinder) for finder in sys.meta_path):
        if mode not in (None, KNOBS.mode) or not set(wanted) <= set(KNOBS.checks) or knobs:
            tell("install(): tkdebug is in place already, and its options stay as they are")
        return installation
    _look_for_upstream()
    asks = any(name != NO_CHECKS for name in wanted)
    if asks and mode is None and KNOBS.mode == "auto":
        mode = "interpret"
    installation.put_in_place(mode, wanted, quick, knobs, _shell())
    _InForce.installation = installation
    return installation


def load_ipython_extension(shell: _Shell) -> None:
    """Install for `%load_ext tkdebug`."""
    install()
    shell.register_magic_function(partial(run_cell, shell), "cell", MAGIC)


def unload_ipython_extension(shell: _Shell) -> None:
    """Uninstall for `%unload_ext tkdebug`."""
    shell.magics_manager.magics["cell"].pop(MAGIC, None)
    if _InForce.installation is not None:
        _InForce.installation.uninstall()


def run_cell(shell: _Shell, line: str, cell: str) -> Run | None:
    """`%%tkdebug`: run a cell, recorded, and return the run, which the notebook shows below it.

    Args:
        shell: IPython's.
        line: options: `--advise`, `--target ARCH`, `--watch PLACE`, `-o FILE` (.html or .tkd).
        cell: its text.

    Returns:
        The run; None where the options are mistaken, which is said in one line.
    """
    from tkdebug.compat.recording import record
    from tkdebug.instrument.notebook import Run

    try:
        options = _cell_options(line)
    except UsageError as error:
        tell(str(error))
        return None
    folder = tempfile.TemporaryDirectory(prefix="tkdebug-")
    path = Path(folder.name) / "run.tkd"
    with KNOBS.scope(**options.knobs), record(path, output=False):
        WATCHES.reset()
        try:
            shell.run_cell(cell)
        finally:
            WATCHES.reset()
    run = Run(path, kept=folder)
    if options.output is not None:
        if options.output.suffix == ".html":
            run.write_page(options.output)
        else:
            shutil.copyfile(path, options.output)
    return run


@dataclass(frozen=True, slots=True)
class _CellOptions:
    """Options of `%%tkdebug`."""

    knobs: Mapping[str, object]
    output: Path | None


class _Parser(argparse.ArgumentParser):
    """A parser that raises rather than ends the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%{MAGIC}: {message}; {self.format_usage().strip()}")


def _cell_options(line: str) -> _CellOptions:
    """Read the options of a cell.

    Raises:
        UsageError: they are mistaken.
    """
    parser = _Parser(prog=f"%%{MAGIC}", add_help=False)
    parser.add_argument("--advise", action="store_true")
    parser.add_argument("--target", metavar="ARCH")
    parser.add_argument("--watch", action="append", default=[], metavar="PLACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    try:
        options = parser.parse_args(shlex.split(line))
        knobs: dict[str, object] = {}
        if options.advise or options.target:
            target = options.target or _USUAL_TARGET
            knobs.update(cross_compile=target, advise=options.advise)
        if options.watch:
            knobs["watches"] = parse_watches(";".join(options.watch))
    except ValueError as error:
        raise UsageError(f"%%{MAGIC}: expected {error}") from None
    return _CellOptions(knobs, options.output)


def _check_names(checks: str | Sequence[str]) -> tuple[str, ...]:
    names = (checks,) if isinstance(checks, str) else tuple(checks)
    known = WithPlugins(CHECK_CHOICES, "tkdebug.checks")
    for name in names:
        if name not in known:
            raise UsageError(f"checks: {name!r} is not one{instead_of(name, tuple(known))}")
    return CHECK_NAMES if "all" in names else names


def _knobs(
    only: str | Sequence[str],
    ignore: str | Sequence[str],
    baseline: str | os.PathLike[str] | None,
) -> dict[str, object]:
    """Return the knobs that were asked for."""
    knobs: dict[str, object] = {}
    if only:
        knobs["only_kernels"] = (only,) if isinstance(only, str) else tuple(only)
    if ignore:
        text = ignore if isinstance(ignore, str) else ",".join(ignore)
        try:
            knobs["ignored_kinds"] = parse_kinds(text)
        except ValueError as error:
            raise UsageError(f"ignore: got {text!r}, expected {error}") from None
    if baseline is not None:
        from tkdebug.findings.baseline import load

        path = Path(baseline).expanduser().absolute()
        _ = load(path)
        knobs["baseline"] = path
    return knobs


def _look_for_upstream() -> None:
    """Report names of another Triton that the script has imported already."""
    spec = getattr(sys.modules.get("triton"), "__spec__", None)
    if spec is not None and not isinstance(spec.loader, TritonLoader):
        tell(
            "install(): triton has been imported before; what was imported of it stays upstream's: "
            "call tkdebug.install() first, and import triton again"
        )


def _shell() -> Any:
    """Return the IPython shell that this process runs, or None."""
    ipython = sys.modules.get("IPython")
    get_shell = getattr(ipython, "get_ipython", None)
    return None if get_shell is None else get_shell()


def _by_cell(shell: _Shell, teller: FaultPrinter) -> ExitStack:
    """Report faults by cell, again if a cell is run again; return the stack that undoes this."""

    def begin(info: object) -> None:
        teller.reset()

    def end(result: object) -> None:
        teller.tell_counts()

    undo = ExitStack()
    for event, function in (("pre_run_cell", begin), ("post_run_cell", end)):
        shell.events.register(event, function)
        undo.callback(shell.events.unregister, event, function)
    return undo


def _show_pruned(
    shell: _Shell,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """Show an error of ours without our frames: the place in the kernel is in its text."""
    prune_chain(error)
    shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
