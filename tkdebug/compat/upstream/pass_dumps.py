"""The changes of upstream's passes, from the texts that it dumps before each of them.

Responsible for catching the dumps (`MLIR_ENABLE_DUMP=1`, on stderr), and for passes as sessions
have them. Texts have no ids: an op is taken for the same after a pass if the texts, as sequences of
names and source places, agree on it. Upstream does not say how long a pass takes.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tkdebug.linemap.mlir_locations import Frames, mlir_frames
from tkdebug.records.events import CompilerPass, OpFacts

VARIABLE = "MLIR_ENABLE_DUMP"
FRONT_END = "front-end"
_MOST_OPS = 5000
_DUMP = "// -----//"
_BEFORE = re.compile(r"// -----// IR Dump Before \S+ \(([^)]+)\) \('builtin\.module' operation\)")
_OP = re.compile(r'\s*(?:%[\w:#, %]+ = )?"?([a-z_]\w*\.[\w.]+)"?[ (<]')
_ALIAS = re.compile(r"^#(?!loc\d*\b)(\w+) = (.*)$", re.M)
_LOCATION = re.compile(r" ?loc\(#loc\d*\)\s*$")


@dataclass(frozen=True, slots=True)
class Dump:
    """The text of a module before a pass."""

    next_pass: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The text of a module after a pass, and the name of that stage."""

    pass_name: str
    stage: str
    text: str


@dataclass
class DumpedPasses:
    """Passes and their stages, as `KernelCompiled` has them."""

    passes: list[CompilerPass] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    op_lines: dict[str, Mapping[int, Frames]] = field(default_factory=dict)
    op_ids: dict[str, Mapping[int, int]] = field(default_factory=dict)


_catching = threading.Lock()


@contextmanager
def caught_dumps(wanted: bool) -> Iterator[list[Dump]]:
    """Catch the dumps of compiles inside of a `with` block; the list is full once it is left.

    Other text that is written to stderr meanwhile is written there afterwards.

    Args:
        wanted: whether there are any; stderr is left alone otherwise.
    """
    dumps: list[Dump] = []
    if not wanted:
        yield dumps
        return
    with _catching, tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield dumps
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            found, rest = parse_dumps(file.read().decode("utf-8", "replace"))
            dumps += found
            sys.stderr.write(rest)


def parse_dumps(text: str) -> tuple[list[Dump], str]:
    """Return the dumps of whole modules in a text, and the rest of the text."""
    dumps: list[Dump] = []
    rest: list[str] = []
    lines: list[str] = []
    name, is_dump = "", False
    for line in text.splitlines(keepends=True):
        if line.startswith(_DUMP):
            if name:
                dumps.append(Dump(name, "".join(lines).strip("\n")))
            head = _BEFORE.match(line)
            name, lines, is_dump = head[1] if head is not None else "", [], True
        elif is_dump:
            lines.append(line)
        else:
            rest.append(line)
    if name:
        dumps.append(Dump(name, "".join(lines).strip("\n")))
    return dumps, "".join(rest)


def snapshots_of(dumps: Sequence[Dump]) -> list[Snapshot]:
    """The text after each pass that another one follows, the front end first."""
    if not dumps:
        return []
    first = Snapshot(FRONT_END, "ttir", dumps[0].text)
    follow = itertools.pairwise(dumps)
    return [first, *(Snapshot(a.next_pass, f"after {a.next_pass}", b.text) for a, b in follow)]


def passes_of(snapshots: Sequence[Snapshot]) -> DumpedPasses:
    """Passes from texts, in order."""
    done = DumpedPasses()
    layouts: dict[str, str] = {}
    numbers = itertools.count(1)
    before = _Module("", "", (), {}, {})
    for snapshot in snapshots:
        plain = _with_stable_layouts(snapshot.text, layouts)
        changed = _without_places(plain) != _without_places(before.text)
        if changed:
            stage = _free(snapshot.stage, done.texts)
            after = _module(stage, plain, before, numbers)
            done.texts[stage] = plain
            done.op_lines[stage] = {n: after.frames[n] for n, _ in after.ops if n in after.frames}
            done.op_ids[stage] = dict(after.ops)
        else:
            after = before
        news = {i: op for i, op in after.facts.items() if before.facts.get(i) != op}
        ids = tuple(i for _, i in after.ops)
        done.passes.append(
            CompilerPass(
                snapshot.pass_name, before.stage, after.stage, 0, (), ids if changed else None, news
            )
        )
        before = after
    return done


@dataclass(frozen=True, slots=True)
class _Module:
    """One text: its ops as (line, id), their names, and the places of its lines."""

    stage: str
    text: str
    ops: tuple[tuple[int, int], ...]
    facts: Mapping[int, OpFacts]
    frames: Mapping[int, Frames]


def _module(stage: str, text: str, before: _Module, numbers: Iterator[int]) -> _Module:
    frames = mlir_frames(text)
    lines = text.splitlines()
    found = [(n, m[1]) for n, line in enumerate(lines, 1) if (m := _OP.match(line)) is not None]
    keys = [(name, frames.get(number, ())) for number, name in found]
    olds = [(before.facts[i].name, before.frames.get(line, ())) for line, i in before.ops]
    ids: list[int | None] = [None] * len(keys)
    if max(len(keys), len(olds)) <= _MOST_OPS:
        matcher = difflib.SequenceMatcher(None, olds, keys, autojunk=False)
        for old, new, size in matcher.get_matching_blocks():
            for offset in range(size):
                ids[new + offset] = before.ops[old + offset][1]
    numbered = [next(numbers) if i is None else i for i in ids]
    ops = tuple((number, i) for (number, _), i in zip(found, numbered, strict=True))
    facts = {
        i: _facts(name, lines[number - 1], frames.get(number, ()))
        for (number, name), i in zip(found, numbered, strict=True)
    }
    return _Module(stage, text, ops, facts, frames)


def _facts(name: str, line: str, frames: Frames) -> OpFacts:
    types = _LOCATION.sub("", line).rpartition(" : ")[2] if " : " in line else ""
    places = tuple(dict.fromkeys((frame.file, frame.line) for frame in frames))
    return OpFacts(name, {}, (types,) if types else (), None, 0, places)


def _with_stable_layouts(text: str, known: dict[str, str]) -> str:
    """The text with one name for each layout, which all texts of the kernel share.

    Args:
        text: the text of a module.
        known: name by definition, added to.
    """
    renamed: dict[str, str] = {}
    for name, definition in _ALIAS.findall(text):
        plain = re.sub(r"#(\w+)", lambda m: f"#{renamed.get(m[1], m[1])}", definition)
        if plain not in known:
            stem = name.rstrip("0123456789") or name
            count = sum(other.rstrip("0123456789") == stem for other in known.values())
            known[plain] = f"{stem}{count or ''}"
        renamed[name] = known[plain]
    return re.sub(r"#(\w+)\b", lambda m: f"#{renamed.get(m[1], m[1])}", text) if renamed else text


def _free(name: str, taken: Mapping[str, object]) -> str:
    """A stage name that is not taken: itself, or with a number."""
    names = (f"{name} ({count})" if count > 1 else name for count in itertools.count(1))
    return next(free for free in names if free not in taken)


def _without_places(text: str) -> str:
    return "\n".join(
        _LOCATION.sub("", line) for line in text.splitlines() if not line.startswith("#loc")
    )
