"""The kinds of exceptions that a client may stop at."""

from __future__ import annotations

FAULTS = "faults"
EXCEPTION_FILTERS = [
    {
        "filter": FAULTS,
        "label": "Faults of kernels",
        "description": "Stop where an access leaves its tensor, an assertion fails, …",
        "default": True,
    }
]
