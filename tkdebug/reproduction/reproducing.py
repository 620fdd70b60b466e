"""From a caught launch to a short script, and the answer of `tkdebug reproduce`."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tkdebug.causes.rerun import OutOfTimeError
from tkdebug.errors import TkError, shown_path
from tkdebug.process.named_files import write_whole
from tkdebug.records.events import Fault
from tkdebug.reproduction.building import refuse_large, without_reference
from tkdebug.reproduction.capture import Caught
from tkdebug.reproduction.judge import (
    MISMATCH,
    Judge,
    Oracle,
    Ran,
    Symptom,
    explained,
    has_statement,
    statement_at,
    statement_text,
    values_of,
)
from tkdebug.reproduction.script import DATA_SUFFIX, Script
from tkdebug.reproduction.shrink_code import inline_names, shrink_expressions, shrink_statements
from tkdebug.reproduction.shrink_data import shrink_data, simplify_contents

REPRODUCE_SCHEMA = 1
MOST_LINES = 40
_MOST_BYTES = 1 << 30


class NotReproducedError(TkError):
    """The launch alone does not show what the script showed."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a script."""

    grid: tuple[int, ...]
    elements: int
    statements: int
    lines: int

    @staticmethod
    def of(script: Script) -> Extent:
        """Return the size of a script."""
        lines = 1 + len(script.text().splitlines())  # with the head
        return Extent(script.launches[-1].grid, script.elements, script.statements, lines)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A short script.

    Attributes:
        fault: the fault of the script that it was made from.
        is_whole: whether everything was tried that makes it shorter.
        kept: what could not be shrunk, and why.
    """

    script: Script
    symptom: Symptom
    fault: Fault
    before: Extent
    after: Extent
    tried: int
    seconds: float
    is_whole: bool
    kept: tuple[str, ...]

    def write(self, path: Path) -> tuple[Path, ...]:
        """Write the script, and the file of its tensors if it has any; return what was written.

        Raises:
            TkError: they cannot be written.
        """
        head = f"# {self.symptom.kind} in {self.symptom.function}"
        head += f": {self.symptom.statement}" if self.symptom.statement else ""
        written = [path]
        try:
            if self.script.saved:
                data = path.with_suffix(DATA_SUFFIX)
                data.write_bytes(self.script.data())
                written.append(data)
            write_whole(path, [self.script.text(head)])
        except OSError as error:
            raise TkError(f"-o {path}: cannot be written ({error.strerror})") from error
        return tuple(written)


class Reproducer:
    """Makes a short script of a caught launch.

    Args:
        caught: the launch.
        script: with all of its data.
        seconds: processor time for it.
    """

    def __init__(self, caught: Caught, script: Script, seconds: float) -> None:
        self._caught = caught
        self._begun = script
        self._judge = Judge(seconds)
        self._started = time.thread_time()

    def reproduce(self) -> Reproduction:
        """Return the short script.

        Raises:
            NotReproducedError: the launch alone does not show the symptom.
            UnsupportedError: it has too much data.
        """
        refuse_large(self._begun, _MOST_BYTES)
        script, oracle = self._first(self._begun)
        before = Extent.of(script)
        best = _Best(oracle, script)
        is_whole = True
        try:
            best.shrink()
        except OutOfTimeError:
            is_whole = False
        except KeyboardInterrupt:
            is_whole = False
        script = best.script
        return Reproduction(
            script,
            oracle.symptom,
            self._caught.fault,
            before,
            Extent.of(script),
            self._judge.tried,
            time.thread_time() - self._started,
            is_whole,
            tuple(_kept(script, before, is_whole)),
        )

    def _first(self, script: Script) -> tuple[Script, Oracle]:
        """Return the first script that shows the symptom, and the oracle for it."""
        reasons: list[str] = []
        for candidate in self._beginnings(script):
            ran = self._judge.run(candidate)
            symptom = self._symptom(candidate, ran)
            if symptom is not None:
                oracle = Oracle(self._judge, symptom, ran)
                if candidate.check is not None and candidate.check.element is not None:
                    oracle.values = values_of(candidate, ran)
                elif candidate.check is not None:
                    candidate = _poisoned(candidate, oracle)
                return candidate, oracle
            reasons = list(explained(ran, [self._caught.fault.kind]))
        fault = self._caught.fault
        shown = "; ".join(reasons[:3])
        raise NotReproducedError(
            f"{shown_path(fault.file or '')}:{fault.line}: {fault.kind} in {fault.kernel}: its "
            f"launch alone does not show it: {shown}; what is before or after it in the script "
            "matters"
        )

    def _beginnings(self, script: Script) -> Iterator[Script]:
        yield script
        if script.check is not None and script.check.element is None:
            yield without_reference(script, self._caught)
            return
        # Memory that the script left unwritten.
        empty = script
        for memory in script.used_memories:
            empty = empty.with_memory(replace(memory, fill="empty"))
        for memory in script.used_memories:
            yield script.with_memory(replace(memory, fill="empty"))
        yield empty

    def _symptom(self, script: Script, ran: Ran) -> Symptom | None:
        fault = self._caught.fault
        if fault.kind == MISMATCH:
            return self._mismatch(script) if ran.mismatches else None
        wanted = _statement_of(fault)
        found = [one for one in ran.symptoms if one.kind == fault.kind]
        same = [one for one in found if one.statement == wanted and one.tensor == fault.tensor]
        return next(iter(same or [one for one in found if one.statement == wanted]), None)

    def _mismatch(self, script: Script) -> Symptom:
        compared = self._caught.compared
        assert compared is not None
        stored = compared.stored
        statement = ""
        if stored is not None:
            statement = _statement_in(stored.file, stored.line)
        function = stored.function if stored else script.launches[-1].function
        symptom = Symptom(MISMATCH, function, statement)
        return symptom if has_statement(script, symptom) else Symptom(MISMATCH, function, "")


def _poisoned(script: Script, oracle: Oracle) -> Script:
    """Return the script with its compared output poisoned, if it then still shows the symptom."""
    assert script.check is not None
    memory = script.memories[script.views[script.check.view].memory]
    if memory.dtype is torch.bool or memory.dtype.is_complex:
        return script
    is_float = memory.dtype.is_floating_point
    value = math.nan if is_float else torch.iinfo(memory.dtype).max - 1
    candidate = script.with_memory(replace(memory, fill="full", value=value))
    oracle.output, oracle.poison = memory.name, value
    with contextlib.suppress(OutOfTimeError):  # then the script is written as it is
        if oracle.shows(candidate):
            return candidate
    oracle.output = ""
    return script


class _Best:
    """The shortest script so far."""

    def __init__(self, oracle: Oracle, script: Script) -> None:
        self.script = script
        self._oracle = oracle
        oracle.found = self._found

    def _found(self, script: Script) -> None:
        self.script = script

    def shrink(self) -> None:
        """Shrink the script: its statements, then data and contents until its extent stays.

        Raises:
            OutOfTimeError: the time is over.
        """
        oracle = self._oracle
        self.script = shrink_data(self.script, oracle)
        oracle.hold(self.script)
        self.script = shrink_statements(self.script, oracle)
        if Extent.of(self.script).lines > MOST_LINES:
            self.script = inline_names(self.script, oracle)
        if Extent.of(self.script).lines > MOST_LINES:
            # What an expression is for is lost with it, so this is the last resort.
            self.script = shrink_expressions(self.script, oracle)
            self.script = shrink_statements(self.script, oracle)
        oracle.release(self.script)
        while True:
            before = self.script
            # After the statements: some change nothing where all elements are equal.
            self.script = simplify_contents(shrink_data(self.script, oracle), oracle)
            if Extent.of(self.script) == Extent.of(before):
                return


def _statement_of(fault: Fault) -> str:
    return _statement_in(fault.file or "", fault.line or 0)


def _statement_in(file: str, line: int) -> str:
    """Return the source statement at a line, on one line; "" if it cannot be had."""
    import ast

    from tkdebug.process.named_files import source_lines

    try:
        tree = ast.parse("".join(source_lines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ""
    statement = statement_at(tree, line)
    return "" if statement is None else statement_text(statement)


def _kept(script: Script, before: Extent, is_whole: bool) -> Iterator[str]:
    """Yield what could not be shrunk, and why."""
    after = Extent.of(script)
    if not is_whole:
        # Of what is left nothing can be said: perhaps it was not tried.
        yield (
            "the time was over before all was tried, so that it may be longer than it has to; "
            "--budget SECONDS gives more"
        )
        return
    if after.lines > MOST_LINES:
        yield f"{after.lines} lines: without any statement of these the symptom is gone"
    if math.prod(after.grid) > 1:
        yield f"a grid of {after.grid}: with fewer programs the symptom is gone"
    for memory in script.saved:
        yield (
            f"the {memory.size:,} elements of {memory.name.removesuffix('_memory')}: with zeros, "
            "ones, numbers in order or random ones the symptom is gone"
        )


def reproduction_json(made: Reproduction, files: Sequence[Path], command: str) -> str:
    """Return the answer as JSON."""
    fault = made.fault

    def extent(one: Extent) -> dict[str, object]:
        return {
            "grid": list(one.grid),
            "elements": one.elements,
            "statements": one.statements,
            "lines": one.lines,
        }

    answer = {
        "schema": REPRODUCE_SCHEMA,
        "file": str(files[0]),
        "data_file": str(files[1]) if len(files) > 1 else None,
        "lines": made.after.lines,
        "kind": made.symptom.kind,
        "kernel": fault.kernel,
        "function": made.symptom.function,
        "statement": made.symptom.statement,
        "of": {"file": fault.file, "line": fault.line, "message": fault.message},
        "from": extent(made.before),
        "to": extent(made.after),
        "kept": list(made.kept),
        "is_whole": made.is_whole,
        "tried": made.tried,
        "seconds": round(made.seconds, 3),
        "command": command,
    }
    return json.dumps(answer, indent=1, ensure_ascii=False) + "\n"


def reproduction_text(made: Reproduction, files: Sequence[Path], command: str) -> str:
    """Return the answer for people."""
    before, after = made.before, made.after
    where = f"{shown_path(made.fault.file or '')}:{made.fault.line}"
    lines = [
        f"{made.symptom.kind} in {made.fault.kernel}, from {where}",
        *([f"  {made.symptom.statement}"] if made.symptom.statement else []),
        f"{' and '.join(map(str, files))}: {after.lines} lines",
        f"  grid {before.grid} -> {after.grid}, elements {before.elements:,} -> "
        f"{after.elements:,}, statements {before.statements} -> {after.statements}",
        f"  {made.tried} scripts tried in {made.seconds:.1f} s of processor time",
        *(f"  kept: {text}" for text in made.kept),
        f"again: {command}",
    ]
    return "\n".join(lines) + "\n"
