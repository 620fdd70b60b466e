"""Scripts for `tkdebug run` that launch by hand: no compiler is needed to see how they are run."""

from __future__ import annotations

import subprocess
import sys

from warm_python import ENVIRONMENT, run_module

from tkdebug.checks import DEFAULT_CHECKS, not_looked_for

LAUNCH = """\
import sys, time
from tkdebug.errors import Frame
from tkdebug.records.events import Fault, LaunchProgress, LaunchRecord, next_launch_id
from tkdebug.records.hook_chain import HOOKS

def launch(kernel="scale", faulty=False, severity="error"):
    record = LaunchRecord(
        next_launch_id(), kernel, (4, 1, 1), "interpret", {"num_warps": 4}, tuple, kernel
    )
    hooks = HOOKS.enter(None, record)
    if faulty:
        frames = (Frame(__file__, 2, kernel),)
        HOOKS.fault(Fault("oob-load", kernel, frames, "too far", record.id, severity=severity))
    record.duration_ns = 1000
    HOOKS.exit(hooks, None, record)

"""
# What the last line of an interpreted run ends with.
ASKED_FOR = not_looked_for(DEFAULT_CHECKS)
NOT_LOOKED_FOR = f"; not looked for: {', '.join(ASKED_FOR)} (--check all)"


def tkdebug(*arguments, **options):
    """Run the command in a process of its own; `options` are `run_module`'s."""
    return run_module("tkdebug", *arguments, **options)


def python(*arguments, **options):
    """Run Python itself, to compare with."""
    options = {"capture_output": True, "text": True, "timeout": 300, "env": ENVIRONMENT, **options}
    return subprocess.run([sys.executable, *map(str, arguments)], **options)
