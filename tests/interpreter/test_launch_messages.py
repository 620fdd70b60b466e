"""Progress of launches that hooks get while these run."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tkdebug.interpreter import launch as launching
from tkdebug.records.events import LaunchProgress
from tkdebug.records.hook_chain import HOOKS, Hook


@pytest.fixture
def reported() -> Iterator[list[LaunchProgress]]:
    found: list[LaunchProgress] = []
    hook = Hook(progress=found.append)
    HOOKS.add(hook)
    yield found
    HOOKS.remove(hook)


@pytest.mark.parametrize(("every_ns", "wanted"), [(1 << 60, []), (0, [1, 2, 3])])
def test_progress_is_of_long_launches_to_their_end(
    reported: list[LaunchProgress],
    monkeypatch: pytest.MonkeyPatch,
    every_ns: int,
    wanted: list[int],
) -> None:
    monkeypatch.setattr(launching, "_PROGRESS_EVERY_NS", every_ns)
    report = launching.progress_reporter(SimpleNamespace(id=7), "kernel", 3)
    assert report is not None
    for done in (1, 2, 3):
        report(done)
    assert [(one.launch_id, one.programs_done, one.programs) for one in reported] == [
        (7, done, 3) for done in wanted
    ]


def test_end_of_a_launch_is_reported_however_soon_it_follows(
    reported: list[LaunchProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "_PROGRESS_EVERY_NS", 0)
    report = launching.progress_reporter(SimpleNamespace(id=7), "kernel", 3)
    assert report is not None
    report(1)
    monkeypatch.setattr(launching, "_PROGRESS_EVERY_NS", 1 << 60)
    report(2)
    report(3)
    assert [one.programs_done for one in reported] == [1, 3]
