"""The values of options, parsed: a wrong one is refused as argparse refuses it."""

from __future__ import annotations

import argparse
import math

from tkdebug.knobs.values import (
    parse_kinds,
    parse_print_elements,
    parse_seconds,
    parse_triton_version,
)


def triton_version(text: str) -> str:
    """A version of Triton, such as 3.6."""
    try:
        return parse_triton_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {error}") from None


def percent(text: str) -> float:
    """A number of percent, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of percent, such as 5")
    return value


def kinds(text: str) -> tuple[str, ...]:
    """Kinds of faults, separated by commas."""
    try:
        return parse_kinds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {error}") from None


def seconds(text: str) -> float:
    """A time in seconds."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {error}") from None


def elements(text: str) -> int:
    """A number of elements, or `all`."""
    try:
        return parse_print_elements(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {error}") from None
