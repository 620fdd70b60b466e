"""Names that knobs may have as values, and readers of values from texts.

A parser raises ValueError for a text that it does not take; the message says what is expected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from tkdebug.checks import CHECK_NAMES, NO_CHECKS, OWN_NAMES
from tkdebug.errors import instead_of
from tkdebug.plugins import names as plugin_names
from tkdebug.records.events import IGNORABLE_KINDS

# More elements than any tile has.
ALL_ELEMENTS = 1 << 62
CheckedLaunchesName = Literal["first", "all", "none"]
CHECKED_LAUNCHES: tuple[CheckedLaunchesName, ...] = ("first", "all", "none")
ModeName = Literal["auto", "interpret", "native"]
MODE_NAMES: tuple[ModeName, ...] = ("auto", "interpret", "native")
DOT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
# The compilers of kernels.
COMPILERS = ("tkdebug", "triton")
# Versions of Triton's language and the release that each of them is taken from.
TRITON_RELEASES = {"3.6": "3.6.0", "3.7": "3.7.1", "3.8": "3.8.0", "3.9": "3.9.0"}
NameT = TypeVar("NameT", bound=str)
_TRUE = ("1", "true", "on", "yes", "y")
_FALSE = ("", "0", "false", "off", "no", "n")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size_bytes(text: str) -> int:
    """`"512M"`, `"1GiB"`, `"2.5g"` or a plain number of bytes, as bytes; units are powers of 1024.

    Raises:
        ValueError: `text` is no positive size.
    """
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    size_bytes = 0 if match is None else int(float(match[1]) * _SIZE_UNITS[match[2]])
    if size_bytes <= 0:
        raise ValueError("a positive size such as 512M, 1.5G or a number of bytes")
    return size_bytes


def parse_bool(text: str) -> bool:
    """Return True for 1, true, on, yes or y, False for 0, false, off, no, n or an empty text."""
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("1 or 0 (also true/false, on/off, yes/no)")
    return word in _TRUE


def parse_dot_precision(text: str) -> str | None:
    """Return the precision that fp32 operands of a dot are cut to: `tf32`, or None.

    Raises:
        ValueError: there is no such precision.
    """
    word = text.strip().lower()
    if word and word not in DOT_PRECISIONS:
        raise ValueError("one of " + ", ".join(DOT_PRECISIONS))
    return word or None


def parse_mode(text: str) -> ModeName:
    """Return the mode in which kernels run."""
    return _chosen(text, MODE_NAMES)


def parse_compiler(text: str) -> str:
    """Return the name of the compiler of kernels."""
    if text.strip() not in COMPILERS:
        raise ValueError("one of " + ", ".join(COMPILERS))
    return text.strip()


def parse_triton_version(text: str) -> str:
    """`"3.9"`, from `"3.9"` or a release such as `"3.9.0"`: the language of `triton`.

    Raises:
        ValueError: a version that tkdebug does not know.
    """
    words = text.strip().split(".")
    version = ".".join(words[:2])
    if version not in TRITON_RELEASES or not all(word.isdecimal() for word in words):
        raise ValueError("one of " + ", ".join(TRITON_RELEASES))
    return version


def parse_checked_launches(text: str) -> CheckedLaunchesName:
    """Return the choice of native launches that are checked."""
    return _chosen(text, CHECKED_LAUNCHES)


def _chosen(text: str, names: tuple[NameT, ...]) -> NameT:
    """Return the one of `names` that equals the text in any case, or raise ValueError."""
    for name in names:
        if text.strip().lower() == name:
            return name
    raise ValueError("one of " + ", ".join(names))


def parse_print_elements(text: str) -> int:
    """A number of elements, or `all`.

    Raises:
        ValueError: the text is neither.
    """
    if text.strip().lower() == "all":
        return ALL_ELEMENTS
    if not text.strip().isdecimal():
        raise ValueError("a number of elements, or all")
    return int(text)


def parse_opt_level(text: str) -> int:
    """An optimisation level.

    Raises:
        ValueError: it is none.
    """
    if text.strip() not in {"0", "1", "2", "3"}:
        raise ValueError("0, 1, 2 or 3")
    return int(text)


def parse_watches(text: str) -> tuple[str, ...]:
    """Return the watches in a text, which has semicolons between them."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, which has commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_checks(text: str) -> tuple[str, ...]:
    """Return the names of checks in a text, tkdebug's or plugins'; `all` is all of tkdebug's."""
    names = parse_names(text)
    if names == ("all",):
        return CHECK_NAMES
    own = {*OWN_NAMES, NO_CHECKS}
    if not set(names) <= own:
        known = dict.fromkeys((*CHECK_NAMES, *plugin_names("tkdebug.checks"), NO_CHECKS))
        if not set(names) <= own | known.keys():
            raise ValueError("names out of " + ", ".join((*known, "all")) + ", with commas")
    return names


def parse_kinds(text: str) -> tuple[str, ...]:
    """Kinds of faults with commas between them.

    Raises:
        ValueError: one of them is no kind, or none that can be ignored.
    """
    names = parse_names(text)
    for name in names:
        if name not in IGNORABLE_KINDS:
            raise ValueError(
                f"kinds of faults; {name!r} is not one{instead_of(name, IGNORABLE_KINDS)}"
            )
    return names


def parse_seconds(text: str) -> float:
    """A length of time.

    Raises:
        ValueError: `text` is no positive number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("a positive number of seconds")
    return seconds


def parse_target(text: str) -> str | None:
    """The name of an architecture; None for an empty text."""
    return text.strip() or None


def parse_python(text: str) -> str | None:
    """The path of a Python, or its name on the PATH; None for an empty text."""
    return text.strip() or None


def parse_path(text: str) -> Path | None:
    """A path; None for an empty text."""
    return _without_tilde(text) if text else None


def parse_absolute(text: str) -> Path | None:
    """A path from the root; None for an empty text."""
    # A script may go elsewhere while it runs.
    return _without_tilde(text).absolute() if text else None


def _without_tilde(text: str) -> Path:
    # Unlike `Path.expanduser` it leaves a `~` whose home is unknown, as a shell does.
    return Path(os.path.expanduser(text))


def interpret_flag(text: str) -> ModeName:
    """Return the mode for upstream's `TRITON_INTERPRET`: interpret if it is on, else auto."""
    return "interpret" if parse_bool(text) else "auto"


def directory_flag(variable: str, folder: str) -> Callable[[str], Path | None]:
    """Return a parser of an upstream flag that comes with a directory."""

    # Upstream splits each of these in two: a flag, and a directory with a default.
    def parse(text: str) -> Path | None:
        if not parse_bool(text):
            return None
        chosen = os.environ.get(variable)
        return _without_tilde(chosen or f"~/.triton/{folder}")

    return parse


def parse_mlir_dump(text: str) -> tuple[str, ...]:
    """Return the passes to print for upstream's `MLIR_ENABLE_DUMP`: all, or () if it is off."""
    # Upstream takes 1 or a kernel's name here; either way every pass is printed.
    return () if text.strip().lower() in _FALSE else ("all",)
