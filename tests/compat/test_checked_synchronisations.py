"""Faults of checked launches come up where a script waits for the GPU."""

import torch

from tkdebug.compat.around_torch.checked_synchronisations import (
    collect_at_synchronisations,
    conclude_checked_launches,
)
from tkdebug.runtime.checked.checked_launches import CHECKED


def test_synchronisations_report_checked_launches(monkeypatch):
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: done.append("waited"))
    monkeypatch.setattr(CHECKED, "collect", lambda: done.append("collected"))
    mine = torch.cuda.synchronize
    undo = collect_at_synchronisations()
    torch.cuda.synchronize()
    undo()
    assert done == ["waited", "collected"]
    assert torch.cuda.synchronize is mine


def test_end_reports_what_is_left(monkeypatch):
    done = []
    monkeypatch.setattr(CHECKED, "conclude", lambda: done.append("concluded"))
    conclude_checked_launches()
    assert done == ["concluded"]
