"""A hook that counts launches by kernel, and prints the counts when the process ends."""

from __future__ import annotations

import atexit
import sys
from collections import Counter

from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import Hook

_COUNTS: Counter[str] = Counter()


def _count(kernel: object, record: LaunchRecord) -> None:
    if not _COUNTS:
        atexit.register(_print_counts)
    _COUNTS[record.kernel] += 1


def _print_counts() -> None:
    for name, count in sorted(_COUNTS.items()):
        print(f"launch-count: {name}: {count}", file=sys.stderr)


HOOK = Hook(enter=_count)
