"""`why`, `why-nan` and `why-not-written`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.mismatch import cause_text
from tkdebug.debugger.value_text import element_text, number_text, summary, truths_text
from tkdebug.debugger.why.answers import Why, why, why_nan
from tkdebug.debugger.why.slice_lines import Line
from tkdebug.debugger.why.unwritten import why_not_written
from tkdebug.errors import UsageError
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.process.named_files import source_line

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console

# The most values by iteration: in a line, and in JSON.
_MOST_ROUNDS = 8
# The relative error from which on a number is said to be off.
_OFF = 0.01
_MOST_DATA = 1024


def explain(console: Console, rest: str) -> None:
    """Run the command `why`."""
    _say(console, why(console.debugger.at_stop, _given(rest), console.frame))


def explain_nan(console: Console, rest: str) -> None:
    """Run the command `why-nan`."""
    found = why_nan(console.debugger.at_stop, _given(rest), console.frame)
    _say(console, found)
    if found.computed and not _has_birth(found):
        console.say("no NaN was born in the lines above: it was loaded, or the value is none")


def _has_birth(found: Why) -> bool:
    return any(line.births for line in found.computed) or any(map(_has_birth, found.earlier))


def explain_missing(console: Console, rest: str) -> None:
    """Run the command `why-not-written`."""
    _say(console, why_not_written(console.debugger.at_stop, _given(rest), console.frame))


def explain_cause(console: Console, rest: str) -> None:
    """Run the command `cause`."""
    console.say(cause_text(rest.strip()))


def _given(rest: str) -> str:
    if not rest:
        raise UsageError("expected an element, such as out[3, 17], or a variable")
    return rest


def _data(found: Why) -> dict[str, Any]:
    return {
        "what": found.what,
        "program": found.program,
        "computed": [_line_data(line) for line in found.computed],
        "addressed": [_line_data(line) for line in found.addressed],
        "inputs": list(found.inputs),
        "sources": list(found.sources),
        "earlier": [_data(each) for each in found.earlier],
    }


def _say(console: Console, found: Why) -> None:
    console.say(found.what, **_data(found))
    _say_one(console, found)
    for each in found.earlier:
        _say_earlier(console, each)


def _say_earlier(console: Console, found: Why) -> None:
    console.say(console.styled(found.what, "bold"))
    _say_one(console, found)
    for each in found.earlier:
        _say_earlier(console, each)


def _say_one(console: Console, found: Why) -> None:
    if found.computed:
        console.say("computed at, the last line first:")
        _say_lines(console, found.computed)
    if found.addressed:
        console.say("where it was loaded from and stored to, and masks, are from:")
        _say_lines(console, found.addressed)
    for source in found.sources:
        console.say(source)
    if found.inputs:
        console.say(f"with {', '.join(found.inputs)}")


def _say_lines(console: Console, lines: Iterable[Line]) -> None:
    for line in lines:
        place = line.place
        text = source_line(place.file, place.line).strip()
        console.say(console.styled(f"{place.line:5d}  {text}", "bold"))
        for birth in line.births[:2]:
            console.say(f"         NaN is born here: {birth}")
        for name, (buffer, offsets, values) in line.loads.items():
            shown = _loaded(name, buffer, torch.cat(offsets))
            rounds = f" in {len(values)} rounds" if len(values) > 1 else ""
            console.say(f"         loads {shown}{_held([torch.cat(values)])}{rounds}")
            if name in line.stored:
                console.say(f"         stored by {line.stored[name]}")
        for name, values in line.values.items():
            if name not in line.loads:
                rounds = _rounds(values, line.rounds[name], line.exact.get(name, ()))
                console.say(f"         {name}{_held(values)}{rounds}")


def _held(values: list[Tensor]) -> str:
    """` = 3`, or a summary; for several iterations the last one, and how many there were."""
    rounds = f" in the last of {len(values)} rounds" if len(values) > 1 else ""
    last = values[0]
    if not last.numel():
        return ": masked off"
    if last.numel() == 1:
        return f" = {element_text(last)}{rounds}"
    if last.dtype == torch.bool:
        return f": {last.numel()} elements, {truths_text(last)}{rounds}"
    found = summary(last)
    parts = [f"{key} {number_text(found[key])}" for key in ("min", "max") if key in found]
    bad = (("nan", "NaN"), ("inf", "Inf"))
    parts += [f"{found[key]} {name}" for key, name in bad if found.get(key)]
    return f": {last.numel()} elements, {', '.join(parts)}{rounds}"


def _rounds(
    values: Sequence[Tensor], rounds: Sequence[tuple[int, ...]], exact: Sequence[Tensor]
) -> str:
    """Return the values by iteration, and the iteration from which on they are suspicious.

    Suspicious values are not finite, far from their values in fp64, or always the same. Iterations
    are named if some of a loop's are missing, as in a branch.

    Args:
        values: for each time, the last one first.
        rounds: the iterations of the loops at these times.
        exact: their values in fp64; () if these are not known.
    """
    if len(values) < 2 or not all(each.numel() for each in values):
        return ""
    told = values[::-1]
    shown = f" ({_some([_round(rounds, t) for t in range(len(told))])})" if _skips(rounds) else ""
    if all(each.numel() == 1 for each in told):
        shown += f": {_some([element_text(each) for each in told])}"
    is_good = [bool(each.isfinite().all()) for each in map(_wide, told)]
    if is_good[0] and not all(is_good):
        return f"{shown}; not finite from round {_round(rounds, is_good.index(False))} on"
    off, least = 0, max((abs(float(each)) for each in exact), default=0.0) * _OFF
    while off < len(exact) and _is_off(values[off], exact[off], least):
        off += 1
    if off:
        last = f"{float(exact[0]):.8g}"
        first = _round(rounds, len(told) - off)
        return f"{shown}; more than 1 % off fp64 from round {first} on, where it ends as {last}"
    same = len(told) - 1
    while same and torch.equal(told[same - 1], told[-1]):
        same -= 1
    if 0 < same < len(told) - 1:
        return f"{shown}; the same from round {_round(rounds, same)} on"
    return shown


def _some(texts: Sequence[str]) -> str:
    """Join texts, without those in the middle of many."""
    left = _MOST_ROUNDS // 2
    shown = texts if len(texts) <= _MOST_ROUNDS else (*texts[:left], "…", *texts[-left:])
    return ", ".join(shown)


def _skips(rounds: Sequence[tuple[int, ...]]) -> bool:
    """Whether iterations of the innermost loop are missing in a list with the last one first."""
    before: tuple[int, ...] | None = None
    for now in rounds[::-1]:
        if not now:
            return False
        same_loop = before is not None and before[:-1] == now[:-1]
        if now[-1] != (before[-1] + 1 if before is not None and same_loop else 0):
            return True
        before = now
    return False


def _is_off(value: Tensor, exact: Tensor, least: float) -> bool:
    """Whether a number is far from another one, which counts as no smaller than `least`."""
    wide = float(_wide(value))
    return abs(wide - float(exact)) > _OFF * max(abs(float(exact)), least)


def _wide(data: Tensor) -> Tensor:
    return data.float() if data.is_floating_point() and data.element_size() < 2 else data


def _round(rounds: Sequence[tuple[int, ...]], time: int) -> str:
    """Name the iteration at a time, counted from the first: `3`, or `1.3` in outer iteration 1."""
    return ".".join(map(str, rounds[::-1][time])) or str(time)


def _loaded(name: str, buffer: Buffer, offsets: Tensor) -> str:
    """Return the loaded elements of a tensor as a slice, with their number if it has others."""
    shape, strides = buffer.tensor.shape, buffer.tensor.stride()
    if not offsets.numel():
        return f"nothing of {name}"
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    places: dict[int, Tensor] = {}
    rest = offsets
    for axis in order:
        if strides[axis] <= 0:
            return f"{_distinct(offsets)} elements of {name}"
        places[axis] = rest // strides[axis]
        rest = rest % strides[axis]
    parts, count = [], 1
    for axis in range(len(shape)):
        low, high = int(places[axis].min()), int(places[axis].max())
        parts.append(str(low) if low == high else f"{low}:{high + 1}")
        count *= high - low + 1
    unique = _distinct(offsets)
    shown = f"{name}[{', '.join(parts)}]"
    return shown if count == unique else f"{unique} elements within {shown}"


def _distinct(offsets: Tensor) -> int:
    return len(set(offsets.reshape(-1).tolist()))


def _line_data(line: Line) -> dict[str, Any]:
    return {
        "file": line.place.file,
        "line": line.place.line,
        "function": line.place.function,
        "births": line.births,
        "stored": line.stored,
        "loads": {
            name: _loaded(name, buffer, torch.cat(offsets))
            for name, (buffer, offsets, _) in line.loads.items()
        },
        "values": {
            name: values[0].reshape(-1)[:8].tolist() for name, values in line.values.items()
        },
        "rounds": {
            name: [each.reshape(-1)[0].item() for each in values[::-1][:_MOST_DATA]]
            for name, values in line.values.items()
            if len(values) > 1 and all(each.numel() == 1 for each in values)
        },
        "in_fp64": {
            name: [float(each) for each in exact[::-1][:_MOST_DATA]]
            for name, exact in line.exact.items()
        },
    }
