"""The cause of the last comparison that failed, for the consoles' `cause`."""

from __future__ import annotations

import re
from dataclasses import replace

from tkdebug.causes.launches import RememberedLaunches
from tkdebug.causes.mismatch import Mismatches
from tkdebug.errors import UsageError
from tkdebug.fault_printing.text import describe
from tkdebug.records.hook_chain import HOOKS

CAUSE_HELP = "why the last comparison failed: the edit that fixes the launch, or facts"
_ELEMENT = re.compile(r"(\w+)\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]")


def cause_text(text: str) -> str:
    """Return the cause of the last comparison that failed, as `tkdebug run` reports it.

    Args:
        text: an element to look at, such as `out[35, 7]`; empty for the most wrong one.

    Raises:
        UsageError: no comparison failed, or the element is not among its wrong ones.
    """
    launches = HOOKS.follower
    if not isinstance(launches, RememberedLaunches) or launches.failed is None:
        raise UsageError("cause: no comparison of what a launch wrote has failed yet")
    comparison, fault = launches.failed
    if text:
        element = _ELEMENT.fullmatch(text)
        if element is None:
            raise UsageError(f"cause: expected an element, such as out[3, 17], got {text}")
        index = [int(part) for part in element[2].split(",")]
        chosen = replace(comparison.at(index), raises=True)
        chosen.__dict__["worst"] = comparison.at(index).worst
        fault = Mismatches(launches).fault(chosen) or fault
    return describe(fault)
