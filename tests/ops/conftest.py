import pytest

from tkdebug.knobs import KNOB_TABLE, KNOBS


@pytest.fixture(autouse=True)
def clean_knobs(monkeypatch):
    """Knobs as a process without TKDEBUG_* and TRITON_* variables has them."""
    for knob in KNOB_TABLE:
        for variable in knob.sources:
            monkeypatch.delenv(variable, raising=False)
    KNOBS.refresh()
    yield
    KNOBS.refresh()
