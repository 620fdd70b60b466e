"""Planted bugs on an interpreting device: with any checks, their faults are the interpreter's."""

from __future__ import annotations

from dataclasses import replace

import checked_bugs
import pytest
from interpreting_device import InterpretingDevice
from simulated_checks import in_use

import tkdebug
from tkdebug import knobs
from tkdebug.checks import NATIVE_CHECKS
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked.checked_launches import CHECKED


@pytest.fixture
def faults():
    found = []
    hook = Hook(fault=found.append)
    HOOKS.add(hook)
    yield found
    HOOKS.remove(hook)


def taken(faults):
    found = sorted((replace(fault, launch_id=0) for fault in faults), key=str)
    faults.clear()
    return found


FURTHER = [
    (),
    ("race",),
    ("uninitialised-read",),
    ("narrowing", "padding"),
    tuple(name for name in NATIVE_CHECKS if name != "race"),
    NATIVE_CHECKS,
]


@pytest.mark.parametrize("further", FURTHER, ids=",".join)
@pytest.mark.parametrize("bug", checked_bugs.BUGS, ids=lambda bug: bug.__name__)
def test_faults_are_those_of_the_interpreter(faults, bug, further):
    checks = ("nan", "inf", *further)
    with tkdebug.mode("interpret"), knobs.scope(checks=checks):
        bug("cpu")
    expected = taken(faults)
    for kernel in vars(checked_bugs).values():
        if isinstance(kernel, tkdebug.JITFunction):
            kernel.kernels.clear()
    with in_use(InterpretingDevice(), check_launches="all", checks=further):
        with tkdebug.mode("native"):
            bug("cpu")
        CHECKED.conclude()
    assert taken(faults) == expected
    assert bool(expected) is checked_bugs.is_faulty(bug, further)
