"""From rows of a session file to snapshots, trusting nothing that lies in the file.

Every function raises `ValueError` on a value that is not what the schema says; the reader turns
that into its one clear line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

from tkdebug.errors import Frame
from tkdebug.events import ArgumentInfo, Fault, FaultKind
from tkdebug.instrument.encode import utf8
from tkdebug.instrument.records import (
    FaultGroup,
    KernelSummary,
    Launch,
    OutputChunk,
    Progress,
    RecordedFault,
    RecordedKernel,
    RecordedScope,
    RunInfo,
    ScopeSummary,
    Tuning,
)

Row = tuple[object, ...]
_DIGITS = re.compile(r"-?[0-9]{1,40}", re.ASCII)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def integer(value: object) -> int:
    """`value` as an int; one beyond SQLite's 64 bits lies there as text."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    if not isinstance(value, int):
        raise ValueError(f"got {value!r:.80}, expected a number")
    return value


def optional_integer(value: object) -> int | None:
    """`value` as an int or None."""
    return None if value is None else integer(value)


def text(value: object) -> str:
    """`value` as a str."""
    if not isinstance(value, str):
        raise ValueError(f"got {value!r:.80}, expected text")
    return value


def optional_text(value: object) -> str | None:
    """`value` as a str or None."""
    return None if value is None else text(value)


def json_list(value: object) -> list[object]:
    """The JSON list that `value` holds."""
    parsed = _json(value)
    if not isinstance(parsed, list):
        raise ValueError(f"got {value!r:.80}, expected a JSON list")
    return parsed


def json_mapping(value: object) -> dict[str, object]:
    """The JSON object that `value` holds."""
    parsed = _json(value)
    if not isinstance(parsed, dict):
        raise ValueError(f"got {value!r:.80}, expected a JSON object")
    return parsed


def string_mapping(value: object) -> dict[str, str]:
    """The JSON object of strings that `value` holds."""
    return {name: text(item) for name, item in json_mapping(value).items()}


def float_mapping(value: object) -> dict[str, float]:
    """The JSON object of numbers that `value` holds."""
    result: dict[str, float] = {}
    for name, item in json_mapping(value).items():
        if not isinstance(item, (int, float)):
            raise ValueError(f"got {item!r:.80}, expected a number")
        result[name] = float(item)
    return result


def integer_pairs(value: object) -> dict[int, int]:
    """The JSON list of pairs of numbers that `value` holds."""
    return dict(_pair(item) for item in json_list(value))


# Runs fault thousands of times at the same few places.
@lru_cache(maxsize=16_384)
def frames(value: object) -> tuple[Frame, ...]:
    """A call chain."""
    result = []
    for item in json_list(value):
        file, line, function = _list(item, 3)
        result.append(Frame(text(file), integer(line), text(function)))
    return tuple(result)


def line_frames(row: Row) -> tuple[int, tuple[Frame, ...]]:
    """A line of a stage's text, and the call chain of the op that is printed there."""
    line, value = row
    chain = frames(value)
    if not chain:
        raise ValueError("got an op without a place, expected a call chain")
    return integer(line), chain


def run(row: Row) -> RunInfo:
    """The row of `run`."""
    script, argv, mode, start_ns, end_ns, exit_status, host, versions = row
    return RunInfo(
        script=text(script),
        argv=tuple(text(word) for word in json_list(argv)),
        mode=text(mode),
        start_ns=integer(start_ns),
        end_ns=optional_integer(end_ns),
        exit_status=optional_integer(exit_status),
        host=text(host),
        versions=string_mapping(versions),
    )


def launch(row: Row) -> Launch:
    """A row of `launches`, without its revision."""
    (seq, process, rank, number, kernel, kernel_hash, mode, grid) = row[:8]
    (options, arguments, stream, start_ns, duration_ns, error, scopes) = row[8:]
    return Launch(
        seq=integer(seq),
        process=integer(process),
        rank=integer(rank),
        id=integer(number),
        kernel=text(kernel),
        kernel_hash=text(kernel_hash),
        mode=text(mode),
        grid=_triple(json_list(grid)),
        options=json_mapping(options),
        arguments=tuple(_argument(item) for item in json_list(arguments)),
        stream=integer(stream),
        start_ns=integer(start_ns),
        duration_ns=optional_integer(duration_ns),
        error=optional_text(error),
        scopes=scope_path(scopes),
    )


@lru_cache(maxsize=1024)
def scope_path(value: object) -> tuple[str, ...]:
    """Names of scopes, outermost first."""
    return () if value is None else tuple(text(name) for name in json_list(value))


def scope(row: Row) -> RecordedScope:
    """A row of `scopes`."""
    seq, process, rank, number, parent, thread, name, metrics, start_ns, end_ns = row
    return RecordedScope(
        seq=integer(seq),
        process=integer(process),
        rank=integer(rank),
        id=integer(number),
        parent=optional_integer(parent),
        thread=integer(thread),
        name=text(name),
        metrics=json_mapping(metrics),
        start_ns=integer(start_ns),
        end_ns=integer(end_ns),
    )


def scope_summary(row: Row) -> ScopeSummary:
    """A path of scopes, a kernel, and its numbers."""
    path, name, *numbers = row
    return ScopeSummary(scope_path(path), text(name), *map(integer, numbers))


def kernel(row: Row, stages: Mapping[str, tuple[str, ...]]) -> RecordedKernel:
    """A row of `kernels`; `stages` are the artifacts' names by kernel hash."""
    (seq, key, process, rank, name, file) = row[:6]
    (line, source, signature, options, compile_ns, cache_hit, error) = row[6:]
    return RecordedKernel(
        seq=integer(seq),
        hash=text(key),
        process=integer(process),
        rank=integer(rank),
        name=text(name),
        file=text(file),
        line=integer(line),
        source=text(source),
        signature=text(signature),
        options=json_mapping(options),
        compile_ns=integer(compile_ns),
        cache_hit=bool(cache_hit),
        stages=stages.get(text(key), ()),
        error=optional_text(error),
    )


def fault(row: Sequence[object]) -> RecordedFault:
    """A row of `faults`."""
    (seq, process, rank, launch_id, kind, severity, name, chain, message, column) = row[:10]
    (op_id, program_id, lane, tensor, element, legal, count, hint, time_ns) = row[10:]
    return RecordedFault(
        seq=integer(seq),
        process=integer(process),
        rank=integer(rank),
        time_ns=integer(time_ns),
        fault=Fault(
            # A kind of a later release is shown as it is called there.
            kind=cast("FaultKind", text(kind)),
            kernel=text(name),
            frames=frames(chain),
            message=text(message),
            launch_id=integer(launch_id),
            column=integer(column),
            severity="warning" if severity == "warning" else "error",
            op_id=optional_integer(op_id),
            program_id=None if program_id is None else _triple(_numbers(program_id)),
            lane=_numbers(lane),
            tensor=optional_text(tensor),
            index=optional_integer(element),
            legal=None if legal is None else _pair(_numbers(legal)),
            count=integer(count),
            hint=optional_text(hint),
        ),
    )


def fault_group(row: Row) -> FaultGroup:
    """A count of bad accesses, a count of launches, a `seq`, and the row of `faults` it has."""
    count, launches, _, *first = row
    return FaultGroup(fault(first), integer(count), integer(launches))


def kernel_summary(row: Row) -> KernelSummary:
    """A row of `totals`."""
    name, *numbers = row
    return KernelSummary(text(name), *map(integer, numbers))


def output_chunk(row: Row) -> OutputChunk:
    """A row of `output`."""
    seq, process, rank, time_ns, stream, written = row
    return OutputChunk(
        seq=integer(seq),
        process=integer(process),
        rank=integer(rank),
        time_ns=integer(time_ns),
        stream=text(stream),
        text=text(written),
    )


def progress(row: Row) -> Progress:
    """A row of `progress`."""
    process, rank, launch_id, name, *numbers = row
    return Progress(
        integer(process), integer(rank), integer(launch_id), text(name), *map(integer, numbers)
    )


def tuning(row: Row) -> Tuning:
    """A row of `tunings`."""
    seq, process, rank, name, key, config, timings_ms = row
    return Tuning(
        seq=integer(seq),
        process=integer(process),
        rank=integer(rank),
        kernel=text(name),
        key=text(key),
        config=text(config),
        timings_ms=float_mapping(timings_ms),
    )


def _json(value: object) -> object:
    try:
        parsed = json.loads(text(value))
        return _encodable(parsed) if _SURROGATE.search(text(value)) else parsed
    except RecursionError as error:
        raise ValueError("JSON nested too deep") from error


def _encodable(parsed: object) -> object:
    """What was parsed, its lone surrogates spelt out: no stream would take them."""
    if isinstance(parsed, str):
        return utf8(parsed)
    if isinstance(parsed, list):
        return [_encodable(item) for item in parsed]
    if isinstance(parsed, dict):
        return {utf8(name): _encodable(item) for name, item in parsed.items()}
    return parsed


@lru_cache(maxsize=16_384)
def _numbers(value: object) -> tuple[int, ...]:
    return _integers(json_list(value))


def _list(value: object, length: int) -> Sequence[object]:
    if not isinstance(value, (list, tuple)) or len(value) != length:
        raise ValueError(f"got {value!r:.80}, expected {length} values")
    return value


def _integers(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise ValueError(f"got {values!r:.80}, expected a list")
    return tuple(integer(value) for value in values)


def _pair(values: object) -> tuple[int, int]:
    first, second = _list(values, 2)
    return integer(first), integer(second)


def _triple(values: object) -> tuple[int, int, int]:
    x, y, z = _list(values, 3)
    return integer(x), integer(y), integer(z)


def _argument(item: object) -> ArgumentInfo:
    name, type_name, value, shape, strides = _list(item, 5)
    return ArgumentInfo(
        name=text(name),
        type=text(type_name),
        value=text(value),
        shape=None if shape is None else _integers(shape),
        strides=None if strides is None else _integers(strides),
    )
