"""Source places of the lines of MLIR and PTX text that another compiler printed.

Responsible for reading `loc(…)` of MLIR (files, names, call sites, fused ones, aliases) and `.loc`
of PTX with its `inlined_at`. A line without a place, or with one that cannot be read, has none.
Neither names functions: names after `def` are looked up in the source file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache

from tkdebug.errors import Frame
from tkdebug.process.named_files import source_lines

Frames = tuple[Frame, ...]
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.M)
_AT_END = re.compile(r"loc\((#loc\d*)\)\s*$")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"\((.*)\)$', re.S)
_MOST_NESTED = 64
_PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.M)
_PTX_LOC = re.compile(
    r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)


def mlir_frames(text: str) -> dict[int, Frames]:
    """The call chain of each line (from 1) of MLIR text that has a place, outermost first."""
    locations = _Locations(dict(_ALIAS.findall(text)))
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        at_end = _AT_END.search(line)
        if at_end is None or line.startswith("#loc"):
            continue
        chain = locations.chain(at_end[1])
        if chain:
            found[number] = chain
    return found


class _Locations:
    """The locations of one text, by alias."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._chains: dict[str, Frames] = {}

    def chain(self, alias: str) -> Frames:
        """The call chain of an alias; () if it is unknown or defined by itself."""
        if alias not in self._chains:
            self._chains[alias] = ()
            self._chains[alias] = self._of(self._aliases.get(alias, "unknown"), 0)
        return self._chains[alias]

    def _of(self, text: str, depth: int) -> Frames:
        """The call chain of a location's text."""
        text = text.strip()
        if text.startswith("#loc"):
            return self.chain(text)
        if depth > _MOST_NESTED:
            return ()
        if text.startswith("callsite("):
            callee, _, caller = text.removeprefix("callsite(").removesuffix(")").partition(" at ")
            inner, outer = self._of(callee, depth + 1), self._of(caller, depth + 1)
            return outer + inner if inner and outer else inner or outer
        if text.startswith("fused"):
            parts = text[text.index("[") + 1 : text.rindex("]")].split(",") if "[" in text else []
            chains = (self._of(part, depth + 1) for part in parts)
            return next((chain for chain in chains if chain), ())
        file = _FILE.fullmatch(text)
        if file is not None:
            return (frame_at(file[1], int(file[2])),)
        name = _NAME.fullmatch(text)
        return self._of(name[2], depth + 1) if name is not None else ()


def ptx_frames(text: str) -> dict[int, Frames]:
    """The call chain of each instruction's line (from 1) of PTX that is under a `.loc`."""
    files = {
        number: f"{first}/{second}" if second else first
        for number, first, second in _PTX_FILE.findall(text)
    }
    chains: dict[tuple[str, ...], Frames] = {}
    found: dict[int, Frames] = {}
    current: Frames = ()
    for number, line in enumerate(text.splitlines(), 1):
        loc = _PTX_LOC.match(line)
        if loc is not None:
            place, site = loc.group(1, 2, 3), loc.group(4, 5, 6)
            callers = _callers(site, chains, files) if site[0] is not None else ()
            current = (*callers, *_frame(place, files))
            chains[place] = current
        elif line.startswith("$L__func_end"):
            current = ()
        elif current and line.startswith("\t") and line.rstrip().endswith(";"):
            if not line.lstrip().startswith("."):
                found[number] = current
    return found


def _callers(
    site: tuple[str, ...], chains: Mapping[tuple[str, ...], Frames], files: Mapping[str, str]
) -> Frames:
    return chains.get(site) or _frame(site, files)


def _frame(place: tuple[str, ...], files: Mapping[str, str]) -> Frames:
    file, line = files.get(place[0]), int(place[1])
    return (frame_at(file, line),) if file and line else ()


def frame_at(file: str, line: int) -> Frame:
    """A place with the name of the function that contains it, "" if that is not known."""
    return Frame(file, line, _function_at(file, line))


@lru_cache(maxsize=4096)
def _function_at(file: str, line: int) -> str:
    inside = [span for span in _functions(file) if span[0] <= line <= span[1]]
    return max(inside)[2] if inside else ""


@lru_cache(maxsize=64)
def _functions(file: str) -> tuple[tuple[int, int, str], ...]:
    """First line with its decorators, last line and name of each function of a file."""
    try:
        tree = ast.parse("".join(source_lines(file)))
    except (SyntaxError, ValueError):
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found.append((first, node.end_lineno or node.lineno, node.name))
    return tuple(found)
