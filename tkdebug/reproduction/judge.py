"""Runs candidates of a script in this process, and says whether they show the symptom.

Invariant: a candidate is run as its text; nothing of a former one is left.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.rerun import Budget, OutOfTimeError, deadline
from tkdebug.errors import error_text
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.records.events import Fault, LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.reproduction.script import Script
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

if TYPE_CHECKING:
    from tkdebug.runtime.launch.requests import Grid

MISMATCH = "mismatch"
# A candidate that loops for ever ends after that.
_SECONDS_EACH = 10.0
_numbers = itertools.count(1)
# As torch.testing says it.
_DIFFER = re.compile(r"^(Tensor-likes|Scalars) are not (close|equal)")


@dataclass(frozen=True, slots=True)
class Symptom:
    """The symptom that a script has to show.

    Attributes:
        kind: the kind of the fault, or "mismatch".
        function: the function in which it is.
        statement: its source statement; "" if it is of no statement.
        column: the column of its op in the statement; 0 if it is not known.
        tensor: the argument; None for none.
        message: the message of a compile error; "" for other kinds.
    """

    kind: str
    function: str
    statement: str
    column: int = 0
    tensor: str | None = None
    message: str = ""


@dataclass(slots=True)
class Ran:
    """The end of a candidate's run.

    Attributes:
        symptoms: the symptoms of its faults.
        error: the exception that ended it; None if it ended well.
        names: its globals.
    """

    symptoms: list[Symptom] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    error: BaseException | None = None
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def mismatches(self) -> bool:
        """Whether its comparison failed, and nothing else did."""
        # Of other shapes or types, tensors would differ whatever the kernel does.
        failed = isinstance(self.error, AssertionError) and bool(_DIFFER.search(str(self.error)))
        return failed and all(one.kind == MISMATCH for one in self.symptoms)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor of its globals on the host."""
        return host_view(self.names[name].detach()).clone()


class Judge:
    """Judges candidates.

    Args:
        seconds: processor time for all of them.

    Attributes:
        tried: the number of candidates.
    """

    def __init__(self, seconds: float) -> None:
        self.budget = Budget(seconds)
        self.tried = 0
        self._one = self.budget

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self.budget.used() >= 1

    def run(self, script: Script) -> Ran:
        """Run a candidate."""
        self.tried += 1
        text = script.text(reads_file=False)
        name = f"<reproduction {next(_numbers)}>"
        ran = Ran()
        ran.names = {"__name__": "reproduction", "__file__": name, "saved": script.saved_bytes()}
        lines = text.splitlines(keepends=True)
        linecache.cache[name] = (len(text), None, lines, name)
        hook = Hook(fault=ran.faults.append)
        before, HOOKS.debugger = HOOKS.debugger, self
        self._one = Budget(_SECONDS_EACH)
        HOOKS.add(hook)
        quiet = io.StringIO()
        try:
            with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
                exec(compile(text, name, "exec"), ran.names)
                HELD_GAPS.end()  # what a script leaves unwritten is known at its end
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            ran.error = error.with_traceback(None)
        finally:
            HELD_GAPS.forget()
            HOOKS.remove(hook)
            HOOKS.debugger = before
            linecache.cache.pop(name, None)
        tree = ast.parse(text) if ran.faults else None
        ran.symptoms = [symptom_of(fault, tree) for fault in ran.faults if tree is not None]
        return ran

    def launch(
        self, kernel: object, grid: Grid, values: tuple[Any, ...], record: LaunchRecord | None
    ) -> bool:
        """Interpret a launch of a candidate, within its time; return True, as it has run."""
        assert isinstance(kernel, InterpretedKernel)
        names = kernel.src.fn.arg_names
        run_module(
            kernel.module,
            runtime_values(kernel.src.specs, values),
            grid,
            record,
            kernel.name,
            arguments=dict(zip(names, values, strict=True)),
            observers=deadline(self._one, kernel.module),
            compiled=kernel.compiled_facts(values),
        )
        return True


def symptom_of(fault: Fault, tree: ast.Module) -> Symptom:
    """Return the symptom of a script's fault.

    Args:
        fault: the fault of a launch of the script.
        tree: the syntax tree of its text.
    """
    frame = fault.frames[-1] if fault.frames else None
    statement = None if frame is None else statement_at(tree, frame.line)
    text = "" if statement is None else statement_text(statement)
    column = max(0, fault.column - 1 - statement.col_offset) if statement and fault.column else 0
    function = fault.kernel if frame is None else frame.function
    message = fault.message if fault.kind == "compile-error" else ""
    return Symptom(fault.kind, function, text, column, fault.tensor, message)


def statement_at(tree: ast.Module, line: int) -> ast.stmt | None:
    """Return the innermost statement at a line, or None."""
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            if found is None or node.lineno >= found.lineno:
                found = node
    return found


def statement_text(statement: ast.stmt) -> str:
    """Return a statement on one line; of one with a body, its head alone."""
    text = ast.unparse(statement)
    lines = text.splitlines()
    if isinstance(statement, ast.FunctionDef):
        return next(line for line in lines if line.startswith("def "))
    return lines[0] if hasattr(statement, "body") else text


class Oracle:
    """Says whether a candidate shows the symptom.

    Args:
        judge: runs it.
        symptom: the symptom.
        first: the run of the script that is shrunk.
    """

    def __init__(self, judge: Judge, symptom: Symptom, first: Ran) -> None:
        self.judge = judge
        self.symptom = symptom
        self._known = {(one.kind, one.tensor) for one in first.symptoms}
        # Called with each candidate that shows the symptom.
        self.found: Callable[[Script], None] = lambda script: None
        # The output of a mismatch, which holds `poison` where nothing is stored; "" for none.
        self.output = ""
        self.poison: float | int = 0
        # While statements are removed: facts of the fault, or elements of the wrong tensor.
        self.facts: Facts | None = None
        self.values: Tensor | None = None

    def shows(self, script: Script) -> bool:
        """Run a candidate; return whether it shows the symptom, and no fault of another kind.

        Raises:
            OutOfTimeError: the time for all candidates is over.
        """
        if self.judge.is_over:
            raise OutOfTimeError
        ran = self.judge.run(script)
        shown = self._is_shown(script, ran)
        if shown:
            self.found(script)
        return shown

    def _is_shown(self, script: Script, ran: Ran) -> bool:
        if self.symptom.kind == MISMATCH:
            return self._mismatches(script, ran)
        if not {(one.kind, one.tensor) for one in ran.symptoms} <= self._known:
            return False
        facts = facts_of(ran, self.symptom)
        if facts is None or not _ends_so(ran, self.symptom):
            return False
        return self.facts is None or facts == self.facts

    def _mismatches(self, script: Script, ran: Ran) -> bool:
        assert script.check is not None
        if not ran.mismatches or not has_statement(script, self.symptom):
            return False
        tensor = values_of(script, ran)
        if self.values is not None:
            return _same(tensor, self.values)
        return not (self.output and bool(_is(tensor, self.poison).any()))

    def hold(self, script: Script) -> None:
        """Require of candidates, from now on, the symptom with the facts of a script."""
        ran = self.judge.run(script)
        if self.symptom.kind == MISMATCH:
            self.values = values_of(script, ran)
        else:
            self.facts = facts_of(ran, self.symptom)

    def release(self, script: Script) -> None:
        """Let data change from now on, but for the value of a single compared element."""
        self.facts = None
        if script.check is None or script.check.element is None:
            self.values = None


# Index, legal offsets, program, lane, count.
Facts = tuple[object, ...]


def facts_of(ran: Ran, symptom: Symptom) -> Facts | None:
    """Return the facts of the fault that has a symptom, or None without one."""
    for fault, one in zip(ran.faults, ran.symptoms, strict=True):
        if one == symptom:
            return (fault.index, fault.legal, fault.program_id, fault.lane, fault.count)
    return None


def _is(tensor: Tensor, value: float | int) -> Tensor:
    """Return where a tensor has a value."""
    return tensor.isnan() if value != value else tensor == value


def values_of(script: Script, ran: Ran) -> Tensor:
    """Return the tensor, or the single element, that a run compared."""
    assert script.check is not None
    tensor = ran.tensor(script.check.view)
    return tensor if script.check.element is None else tensor[script.check.element]


def _ends_so(ran: Ran, symptom: Symptom) -> bool:
    """Whether a run ended with an error or without one, as the symptom's kind implies."""
    if ran.error is None:
        return symptom.kind != "compile-error"
    return symptom.kind in ("compile-error", "assert", "misaligned-descriptor")


def has_statement(script: Script, symptom: Symptom) -> bool:
    """Whether a script has the statement of the symptom."""
    return not symptom.statement or any(
        node.name == symptom.function
        and any(
            isinstance(inner, ast.stmt) and statement_text(inner) == symptom.statement
            for inner in ast.walk(node)
        )
        for node in script.used_functions
    )


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point():
        return bool(torch.isclose(a.double(), b.double(), 1e-3, 1e-6, equal_nan=True).all())
    return bool(torch.equal(a, b))


def explained(ran: Ran, kinds: Sequence[str]) -> Iterator[str]:
    """Yield the error and the symptoms of a run without the wanted symptom, in words."""
    if ran.error is not None:
        yield error_text(ran.error).splitlines()[0]
    for one in ran.symptoms:
        yield f"{one.kind} at `{one.statement}`"
    if ran.error is None and not ran.symptoms:
        yield f"no {' or '.join(kinds)}"
