"""Knobs as they are without variables; and the zoo: checked kernels find what is found here."""

import sys
from pathlib import Path

import pytest

from tkdebug.knobs import KNOB_TABLE, KNOBS

sys.path.insert(0, str(Path(__file__).parents[1] / "checked"))


@pytest.fixture(autouse=True)
def clean_knobs(monkeypatch):
    """Knobs as a process without TKDEBUG_* and TRITON_* variables has them."""
    for knob in KNOB_TABLE:
        for variable in knob.sources:
            monkeypatch.delenv(variable, raising=False)
    KNOBS.refresh()
    yield
    KNOBS.refresh()


@pytest.fixture(autouse=True)
def zoo_of_faults(request, clean_knobs):
    """Launches with faults have them as checked kernels, too; budgets make no difference there."""
    how = request.config.getoption("--zoo")
    import zoo

    name = request.node.name.partition("[")[0]
    is_same = "batches" in request.node.name or "single" in request.node.name
    if how == "none" or is_same or request.module.__name__ not in zoo.MODULES:
        yield
        return
    with zoo.zoo(zoo.RUNS[how]) as found:
        yield
    differs = name in zoo.DIFFERENT and found.compared > 0
    assert bool(found.differences) is differs, "\n".join(found.differences)
