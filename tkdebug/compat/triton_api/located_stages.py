"""Stages as texts with source locations, in the form that readers of upstream's dumps know."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from tkdebug.errors import Frame

Frames = Sequence[Frame]
_FILE_LINE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC_LINE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_ENTRY_LINE = re.compile(r"^\s*// \.globl\s+(\S+)")
_LOCATION = re.compile(r"(!DILocation\(line: )(\d+)")
_SUBPROGRAM_LINE = re.compile(r"(!DISubprogram\(.*?line: )\d+")
_DEBUG_FILE = re.compile(r'!DIFile\(filename: "[^"]*", directory: "[^"]*"\)')


def located_ir(text: str, frames_of: Mapping[int, Frames]) -> str:
    """IR whose lines end in `loc(#locN)`, with the places of these at its end, as MLIR prints them.

    Args:
        text: the IR.
        frames_of: the call chain (outermost first) of the op on a text line (1-based).
    """
    places: dict[str, int] = {}

    def number(place: str) -> int:
        return places.setdefault(place, len(places) + 1)

    def chain(frames: Frames) -> int:
        at = 0
        for frame in frames:
            here = number(f'loc("{frame.file}":{frame.line}:1)')
            at = here if not at else number(f"loc(callsite(#loc{here} at #loc{at}))")
        return at

    lines = text.splitlines()
    for line, frames in frames_of.items():
        if frames and line <= len(lines):
            lines[line - 1] += f" loc(#loc{chain(frames)})"
    lines += [f"#loc{n} = {place}" for place, n in places.items()]
    return "\n".join(lines) + "\n"


def located_llvm_ir(text: str, file: str, first_line: int, lines: Mapping[int, int]) -> str:
    """LLVM IR whose locations are lines of the kernel's file, as upstream's are.

    Args:
        text: the IR, whose locations are ids of ops.
        file: of the kernel.
        first_line: of the kernel, which also stands for ops of no line in that file.
        lines: by id of the op.
    """

    def line_of(match: re.Match[str]) -> str:
        return f"{match[1]}{lines.get(int(match[2]), first_line)}"

    folder, name = os.path.split(file)
    text = _LOCATION.sub(line_of, text)
    text = _SUBPROGRAM_LINE.sub(rf"\g<1>{first_line}", text)
    return _DEBUG_FILE.sub(lambda _: f'!DIFile(filename: "{name}", directory: "{folder}")', text)


def located_ptx(ptx: str) -> str:
    """PTX with the comments that LLVM writes for upstream: a function's begin and end, files."""
    files = {number: os.path.basename(path) for number, path in _FILE_LINE.findall(ptx)}
    lines = ptx.splitlines()
    for at, line in enumerate(lines):
        entry, place = _ENTRY_LINE.match(line), _LOC_LINE.match(line)
        if entry is not None:
            lines[at] = f"{line} // -- Begin function {entry[1]}"
        elif line == "}":
            lines[at] = "} // -- End function"
        elif place is not None and place[1] in files:
            lines[at] = f"{line.rstrip()} // {files[place[1]]}:{place[2]}:{place[3]}"
    return "\n".join(lines) + "\n"
