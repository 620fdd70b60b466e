"""The baseline: a file of known faults, so that only new ones fail a run.

A fault is found again by facts that outlive a moved line: kind, kernel, tensor, file, the code of
its line and of the calls that lead there, and the number of lines with that code before it in its
function. Files below the baseline's folder are named relative to it, installed packages relative to
their folder, others by their last name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePath
from typing import get_type_hints

from tkdebug.errors import Frame, UsageError
from tkdebug.findings.source import parsed, text_of_file
from tkdebug.process.named_files import read_text
from tkdebug.records.events import Fault
from tkdebug.records.storage import stored

SCHEMA = 1
_MAX_BYTES = 64 << 20
# The key of the schema's number, by which a baseline differs from other JSON files.
_MARK = "tkdebug_baseline"
_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True, order=True)
class KnownFault:
    """The identity by which a fault is found again.

    Attributes:
        code: the code of its line, "" if that is not known.
        ordinal: the number of lines with that code before it in its function.
        tensor: "" for none.
        calls: code of the calls that lead there, outermost first.
        message: the message of a compile error, which differs by nothing else; "" for others.
    """

    file: str
    kernel: str
    kind: str
    code: str
    ordinal: int = 0
    tensor: str = ""
    calls: tuple[str, ...] = ()
    message: str = ""


@stored("baselines")
@dataclass(frozen=True, slots=True)
class UsedBaseline:
    """The baseline of a run, as it was when the run began.

    Attributes:
        file: its absolute path.
        looked_for: kinds of faults that were looked for.
        only: patterns of the kernels that were checked; () for all.
    """

    file: str
    faults: tuple[KnownFault, ...]
    looked_for: tuple[str, ...]
    only: tuple[str, ...]


def identity(
    fault: Fault, folder: Path, text_of: Callable[[str], str] = text_of_file
) -> KnownFault:
    """Return the identity by which `fault` is found again.

    Args:
        fault: the fault.
        folder: the baseline's.
        text_of: gives the text of a source file, "" if it cannot be read.
    """
    code, ordinal = ("", 0)
    if fault.frames:
        place = fault.frames[-1]
        source = parsed(text_of(place.file))
        code, ordinal = source.text_of(place.line), source.ordinal_of(place.line)
    return KnownFault(
        file=_portable(fault.file or "", folder),
        kernel=fault.kernel,
        kind=fault.kind,
        code=code,
        ordinal=ordinal,
        tensor=fault.tensor or "",
        calls=tuple(_code(frame, text_of) for frame in fault.frames[:-1]),
        message=fault.message if fault.kind == "compile-error" else "",
    )


def _code(frame: Frame, text_of: Callable[[str], str]) -> str:
    return parsed(text_of(frame.file)).text_of(frame.line)


def _portable(file: str, folder: Path) -> str:
    path = PurePath(file)
    for name in _PACKAGES:
        if name in path.parts:
            at = len(path.parts) - path.parts[::-1].index(name)
            return PurePath(*path.parts[at:]).as_posix()
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return path.name


def load(path: Path, option: str = "--update-baseline") -> frozenset[KnownFault]:
    """The faults of the baseline `path`.

    Args:
        path: the file.
        option: the option that writes one.

    Raises:
        UsageError: it cannot be read, is no baseline, or has another schema.
    """
    remedy = f"{option} writes one"
    try:
        text = read_text(path, _MAX_BYTES)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such baseline; {remedy}") from None
    except OSError as error:
        raise UsageError(f"{path}: baseline cannot be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not a baseline of faults; {remedy}") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{path}: is not a baseline of faults: no JSON{place}; {remedy}") from None
    if not isinstance(data, dict) or _MARK not in data:
        raise UsageError(f"{path}: is not a baseline of faults: it has no {_MARK!r}; {remedy}")
    if data[_MARK] != SCHEMA:
        raise UsageError(
            f"{path}: baseline of schema {data[_MARK]!r:.20}, this tkdebug reads {SCHEMA}; "
            f"delete it, and {option} writes one of schema {SCHEMA}"
        )
    try:
        return frozenset(_entries(data))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: damaged baseline: {error}; delete it, and {remedy}") from None


def _entries(data: Mapping[str, object]) -> Iterator[KnownFault]:
    faults = data.get("faults")
    if not isinstance(faults, list):
        raise ValueError("it has no list of faults")
    for number, entry in enumerate(faults, 1):
        try:
            yield _entry(entry)
        except ValueError as error:
            raise ValueError(f"fault {number}: {error}") from None


def _entry(entry: object) -> KnownFault:
    if not isinstance(entry, dict):
        raise ValueError(f"got {entry!r:.60}, expected an object")
    hints = get_type_hints(KnownFault)
    for name, value in entry.items():
        expected = hints.get(name)
        if expected is None:
            raise ValueError(f"no key {name!r:.40} is known")
        is_list = expected not in (str, int)
        fits = (
            isinstance(value, list) and all(isinstance(part, str) for part in value)
            if is_list
            else isinstance(value, expected) and not isinstance(value, bool)
        )
        if not fits:
            raise ValueError(f"{name}: got {value!r:.60}")
    missing = [f.name for f in fields(KnownFault)[:4] if f.name not in entry]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    return KnownFault(**{**entry, "calls": tuple(entry.get("calls", ()))})


def pieces(faults: Iterable[KnownFault]) -> Iterator[str]:
    """The text of a baseline, in pieces: sorted, a fault a line, so that diffs are short."""
    yield f'{{"{_MARK}": {SCHEMA}, "faults": ['
    separator = "\n"
    for fault in sorted(set(faults)):
        yield separator + json.dumps(as_json(fault), ensure_ascii=False)
        separator = ",\n"
    yield "\n]}\n"


def as_json(fault: KnownFault) -> dict[str, object]:
    """A known fault without its empty fields."""
    needed = {field.name for field in fields(KnownFault)[:4]}
    return {name: value for name, value in asdict(fault).items() if value or name in needed}


def fixed(
    baseline: UsedBaseline, seen: Collection[KnownFault], kernels: Collection[str]
) -> tuple[KnownFault, ...]:
    """The known faults that should have come up in a run, and did not.

    Args:
        baseline: the baseline of the run, which came to its end.
        seen: the faults that came up.
        kernels: the launched kernels.
    """
    return tuple(
        known
        for known in sorted(baseline.faults)
        if known not in seen
        and known.kernel in kernels
        and known.kind in baseline.looked_for
        and is_checked(known.kernel, baseline.only)
    )


def is_checked(kernel: str, only: Iterable[str]) -> bool:
    """Whether a kernel matches one of the patterns `only`; () matches all kernels."""
    patterns = tuple(only)
    return not patterns or any(fnmatchcase(kernel, pattern) for pattern in patterns)


@lru_cache(maxsize=4)
def loaded(path: Path, changed_ns: int) -> frozenset[KnownFault]:
    """Return `load(path)`, cached for as long as the file's time of change stays the same."""
    return load(path)
