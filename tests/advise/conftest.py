import pytest


@pytest.fixture(autouse=True)
def by_data_sheets(monkeypatch):
    """Predictions are the same on a machine whose GPU was measured."""
    monkeypatch.setattr("tkdebug.advice.judging.newest", lambda target, gpu=None: None)
