"""Native launches as hooks see them, without a GPU."""

import time

from tkdebug.records.events import LaunchRecord, next_launch_id
from tkdebug.records.hook_chain import HOOKS


def native_launch(kernel, span=None, error=None):
    """Launch nothing; `span` is what times by events where a hook asks for them."""
    record = LaunchRecord(
        next_launch_id(), kernel, (4, 1, 1), "native", {"num_warps": 4}, tuple, f"hash of {kernel}"
    )
    record.start_ns = time.time_ns()
    hooks = HOOKS.enter(None, record)
    if HOOKS.timed and span is not None:
        record.device_ns = span
    record.duration_ns = 9000
    record.error = error
    HOOKS.exit(hooks, None, record)
    return record
