"""Launches, kernels and faults made by hand: the recorder needs no compiler."""

from __future__ import annotations

import time

from tkdebug.errors import Frame
from tkdebug.records.events import ArgumentInfo, Fault, KernelCompiled, LaunchRecord, next_launch_id
from tkdebug.records.hook_chain import HOOKS

# In the year 2426, whose nanoseconds do not go into the 64 bits of SQLite's numbers.
FAR_NS = 14_400_000_000_000_000_000

ARGUMENTS = (
    ArgumentInfo("x_ptr", "*fp32", "cpu", (4, 8), (8, 1)),
    ArgumentInfo("n", "i32", "32"),
)


def make_record(kernel="add_kernel", grid=(4, 1, 1), **changes):
    fields = {
        "id": next_launch_id(),
        "kernel": kernel,
        "grid": grid,
        "mode": "interpret",
        "options": {"num_warps": 4, "num_stages": 3},
        "make_arguments": lambda: ARGUMENTS,
        "kernel_hash": f"hash of {kernel}",
        "start_ns": time.time_ns(),
    }
    record = LaunchRecord(**{name: changes.pop(name, value) for name, value in fields.items()})
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def enter(kernel="add_kernel", **changes):
    record = make_record(kernel, **changes)
    return HOOKS.enter(None, record), record


def leave(entered, duration_ns=1000, error=None):
    hooks, record = entered
    record.duration_ns = duration_ns
    record.error = error
    HOOKS.exit(hooks, None, record)


def launch(kernel="add_kernel", duration_ns=1000, **changes):
    entered = enter(kernel, **changes)
    leave(entered, duration_ns)
    return entered[1]


def compiled(file, line=1, name="add_kernel", source="", **changes):
    fields = {
        "hash": f"hash of {name}",
        "name": name,
        "file": str(file),
        "line": line,
        "source": source,
        "signature": "x_ptr: *fp32, n: i32",
        "options": {"num_warps": 4},
        "artifacts": {"source": source, "tile-ir": "tt.func @add\n  tt.load"},
        "op_lines": {"tile-ir": {2: (Frame(str(file), line, name),)}},
        "compile_ns": 5_000_000,
    }
    return KernelCompiled(**{**fields, **changes})


def fault(file="/k.py", line=3, **changes):
    fields = {
        "kind": "oob-load",
        "kernel": "add_kernel",
        "frames": (Frame(str(file), 20, "add_kernel"), Frame(str(file), line, "load_row")),
        "message": "load reads offset 96 of `x_ptr`, which has 96 elements (legal: 0 to 95)",
        "launch_id": 1,
        "column": 9,
        "op_id": 17,
        "program_id": (2, 0, 0),
        "lane": (32,),
        "tensor": "x_ptr",
        "index": 96,
        "legal": (0, 96),
        "count": 160,
        "hint": "pass mask=offs < n",
    }
    return Fault(**{**fields, **changes})
