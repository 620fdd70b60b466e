import pytest

from tkdebug.knobs import KNOB_TABLE, KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook


@pytest.fixture(autouse=True)
def clean_knobs(monkeypatch):
    """Knobs as a process without TKDEBUG_* and TRITON_* variables has them."""
    for knob in KNOB_TABLE:
        for variable in knob.sources:
            monkeypatch.delenv(variable, raising=False)
    KNOBS.refresh()
    yield
    KNOBS.refresh()


@pytest.fixture
def heard():
    """The faults, and the records of other types, that come up meanwhile."""
    faults, records = [], []
    hook = Hook(fault=faults.append, record=records.append)
    HOOKS.add(hook)
    yield faults, records
    HOOKS.remove(hook)
