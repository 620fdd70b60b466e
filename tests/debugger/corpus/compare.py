"""The debugger's variables of one program, line by line, against those of the reference."""

from __future__ import annotations

import difflib
import json
import pickle
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from launches import found, unpacked

from tkdebug.compiler.tensor import constexpr
from tkdebug.debugger.engine import Debugger
from tkdebug.debugger.goals import Continue, Resume, Step, StepKind
from tkdebug.debugger.programs import Selection
from tkdebug.debugger.stops import Stop
from tkdebug.debugger.values import Constant, Described, Pointers, Reading, Tile, Unavailable

# Rounding differs: upstream's interpreter computes with numpy, ours with torch.
_TOLERANCES = {"fp16": 5e-3, "bf16": 3e-2, "fp8e4nv": 0.13, "fp8e5": 0.26}


@dataclass
class Found:
    """Outcome of a launch.

    Attributes:
        equal: variables read at a line that are as in the reference.
        wrong: those that are not: line, name, both.
        unavailable: how many were not available, by reason.
        dead: of them, those that Python reads no more.
        live: of them, those that Python may still read.
        unmatched: lines that only one of the two has run, as text.
        other: values of kinds that the reference does not write down.
    """

    equal: int = 0
    wrong: list[str] = field(default_factory=list)
    unavailable: Counter[str] = field(default_factory=Counter)
    live: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong, and all that is live is available."""
        return not (self.wrong or self.live or self.unmatched)


class _Looker:
    """A front that steps through one program and keeps what it sees."""

    def __init__(self, program: tuple[int, int, int], grid: tuple[int, int, int], most: int):
        self.seen: list[tuple[str, str, int, dict[str, Reading]]] = []
        self._program, self._grid, self._most = program, grid, most
        self._is_chosen = False

    def log(self, text: str) -> None:
        """No log points are set."""
        raise AssertionError(text)

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Keep the variables of the line that comes next."""
        inspection = debugger.at_stop
        if not self._is_chosen:
            debugger.select(Selection.of([self._program], self._grid))
            self._is_chosen = True
        if not stop.frames or len(self.seen) >= self._most:
            return Continue()
        if inspection.programs and not stop.is_return:
            mark = inspection.marks[0]
            place = mark.location
            self.seen.append(
                (mark.activation.function, place.file, place.line, inspection.variables())
            )
        return Step(StepKind.INTO)


def observe(file: Path, program: tuple[int, int, int], most: int) -> list[Any]:
    """The lines of one program of a launch under the debugger."""
    import triton.language as language

    launch, _ = torch.load(file, weights_only=False)
    kernel = found(launch.module, launch.name)
    while not hasattr(kernel, "kernel_source"):
        kernel = kernel.fn
    given = {name: unpacked(value, language) for name, value in launch.arguments.items()}
    looker = _Looker(program, launch.grid, most)
    debugger = Debugger(looker)
    debugger.attach()
    try:
        debugger.stop_at_next_launch()
        kernel[launch.grid](**given)
    finally:
        debugger.detach()
    return looker.seen


def compare(file: Path, reference: Path, most: int = 300) -> Found:
    """Run a launch under the debugger and compare it with the reference."""
    want = pickle.loads(reference.read_bytes())
    if "refused" in want:
        raise ValueError(want["refused"])
    seen = observe(file, want["program"], most)
    return compare_lines(want["events"], seen, want["bases"])


def compare_lines(want: list[Any], seen: list[Any], bases: dict[str, tuple[int, int]]) -> Found:
    """Compare what the reference and the debugger saw, line by line."""
    out = Found()
    left = [(function, line) for function, _, line, _, _ in want]
    right = [(function, line) for function, _, line, _ in seen]
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            out.unmatched += [f"reference only: {key}" for key in left[a:b]]
            out.unmatched += [f"debugger only: {key}" for key in right[c:d]]
            continue
        for expected, got in zip(want[a:b], seen[c:d], strict=True):
            out.lines += 1
            _compare_locals(out, expected, got[3], bases)
    return out


def _compare_locals(
    out: Found, expected: Any, got: dict[str, Reading], bases: dict[str, tuple[int, int]]
) -> None:
    function, file, line, held, live = expected
    size = _size_of(held)
    place = f"{Path(file).name}:{line} ({function})"
    for name, value in held.items():
        reading = got.get(name, Unavailable("the frame has no such name"))
        if isinstance(reading, Unavailable):
            out.unavailable[reading.reason] += 1
            if name in live:
                out.live.append(f"{place} {name}: {reading.reason}")
            continue
        same = _is_same(value, reading, bases, size)
        if same is None:
            out.other[value[0]] += 1
        elif same:
            out.equal += 1
        else:
            out.wrong.append(f"{place} {name}: {_text(value)}, the debugger has {_text(reading)}")
    for name in got.keys() - held.keys():
        if not isinstance(got[name], Unavailable | Constant):
            out.wrong.append(f"{place} {name}: not bound, the debugger has {_text(got[name])}")


def _is_same(
    want: Any, got: Reading, bases: dict[str, tuple[int, int]], size: float
) -> bool | None:
    """Whether a local and a variable are the same; None where it cannot be said."""
    kind, *data = want
    match got:
        case Constant(value):
            return _is_same_constant(kind, data, value, size)
        case tuple():
            if kind != "tuple" or len(data[0]) != len(got):
                return False
            found = [_is_same(a, b, bases, size) for a, b in zip(data[0], got, strict=True)]
            return None if None in found else all(found)
        case Pointers():
            if kind != "pointer" or got.name not in bases:
                return None if kind == "pointer" else False
            base, bytes_each = bases[got.name]
            offsets = torch.as_tensor(data[0] - base)
            mine = got.offsets[0] * bytes_each
            return offsets.shape == mine.shape and torch.equal(offsets, mine)
        case Tile():
            return _is_same_tile(kind, data, got, size)
        case Described():
            return None if kind == got.kind else False
    return False


def _is_same_constant(kind: str, data: list[Any], value: Any, size: float) -> bool | None:
    while isinstance(value, constexpr):
        value = value.value
    if kind == "constant":
        return (type(data[0]) is type(value) and (data[0] == value or data[0] != data[0])) or (
            isinstance(value, int | float) and data[0] == value
        )
    if kind == "numbers" and isinstance(value, bool | int | float):
        return data[0].shape == () and _is_close(data[0], torch.tensor(value), data[1], size)
    if kind == "dtype":
        return data[0] == str(value)
    if kind == "tuple":
        return None
    return None if kind == "other" else False


def _is_same_tile(kind: str, data: list[Any], got: Tile, size: float) -> bool:
    mine = got.data[0]
    if kind == "constant" and isinstance(data[0], bool | int | float):
        return mine.dim() == 0 and _is_close(data[0], mine, str(mine.dtype), size)
    if kind != "numbers":
        return False
    return tuple(data[0].shape) == tuple(mine.shape) and _is_close(data[0], mine, data[1], size)


def _is_close(want: Any, got: torch.Tensor, type_: str, size: float) -> bool:
    want = torch.as_tensor(want)
    if want.dtype == torch.uint64 or not (want.is_floating_point() or got.is_floating_point()):
        return torch.equal(want.to(torch.int64), got.to(torch.int64))
    want, got = want.double(), got.double()
    tolerance = _TOLERANCES.get(type_, 1e-4)
    absolute = tolerance * max(_largest(want), 0.01 * size)
    return torch.allclose(want, got, rtol=tolerance, atol=absolute, equal_nan=True)


def _largest(values: torch.Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _size_of(held: dict[str, Any]) -> float:
    """The largest number among a frame's, of which small differences may have been made."""
    floats = [torch.as_tensor(value[1]) for value in held.values() if value[0] == "numbers"]
    return max((_largest(each.double()) for each in floats if each.is_floating_point()), default=0)


def _text(value: Any) -> str:
    return " ".join(str(value).split())[:160]


def main() -> None:
    """Compare the launches of a folder that have a reference; a JSON object each on stdout."""
    from tkdebug.compat import install

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    install("interpret")
    for reference in sorted(Path(sys.argv[1]).glob("*.pickle")):
        file = reference.with_suffix(".pt")
        found, refused = Found(), []
        try:
            found = compare(file, reference)
        except Exception as error:  # of a library that cannot be imported, or of tkdebug
            refused.append(f"{type(error).__name__}: {error}"[:300])
        row = dict(
            kernel=file.stem, test=torch.load(file, weights_only=False)[1], refused=refused,
            equal=found.equal, wrong=len(found.wrong), live=len(found.live), lines=found.lines,
            unavailable=sum(found.unavailable.values()), unmatched=len(found.unmatched),
            other=sum(found.other.values()), reasons=found.unavailable,
            lines_wrong=(found.wrong + found.live + found.unmatched)[:8],
        )  # fmt: skip
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
