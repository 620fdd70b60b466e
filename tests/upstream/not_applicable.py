"""What of upstream's tests does not apply to tkdebug, and why; and what is known to fail."""

from __future__ import annotations

import re

# (file, test name with its parameters, as patterns that match from the start; the reason)
NOT_APPLICABLE: tuple[tuple[str, str, str], ...] = (
    (
        "test_line_info.py",
        r"test_line_info_interpreter",
        "reads the syntax tree that upstream's interpreter rewrites a kernel to",
    ),
)

# The same, for tests that apply and fail: the reason is printed beside them.
KNOWN_FAILURES: tuple[tuple[str, str, str], ...] = ()


def reason(test_id: str) -> str | None:
    """Why the test does not apply; None when it does."""
    return _look_up(NOT_APPLICABLE, test_id)


def known_failure(test_id: str) -> str | None:
    """Why the test fails; None when there is no known reason."""
    return _look_up(KNOWN_FAILURES, test_id)


def _look_up(table: tuple[tuple[str, str, str], ...], test_id: str) -> str | None:
    path, _, name = test_id.partition("::")
    for file, pattern, why in table:
        if path.endswith(file) and re.match(pattern, name):
            return why
    return None
