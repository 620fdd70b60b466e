import sys
import types

import pytest
from launching import enter, launch, leave

from tkdebug.cli import main
from tkdebug.hook_chain import HOOKS
from tkdebug.instrument.nvtx_ranges import nvtx_ranges
from tkdebug.scopes import SCOPES


@pytest.fixture
def calls(monkeypatch):
    made = []
    fake = types.ModuleType("nvtx")
    fake.start_range = lambda message, *, domain: made.append(("start", message)) or len(made)
    fake.end_range = lambda range_id: made.append(("end", made[range_id - 1][1]))
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    return made


def test_launches_and_scopes_are_ranges(calls):
    with nvtx_ranges():
        scope = SCOPES.enter("step")
        launch("one")
        SCOPES.exit(scope)
    assert calls == [("start", "step"), ("start", "one"), ("end", "one"), ("end", "step")]
    launch("two")
    assert len(calls) == 4
    assert HOOKS.launch is None


def test_ranges_may_end_in_another_order(calls):
    with nvtx_ranges():
        one, two = enter("one"), enter("two")
        leave(one)
        leave(two)
    assert calls == [("start", "one"), ("start", "two"), ("end", "one"), ("end", "two")]


def test_without_the_package_there_is_one_line(monkeypatch, tmp_path, capfd):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    script = tmp_path / "s.py"
    script.write_text("print('ran')")
    assert main(["run", "--no-tui", "--nvtx", str(script)]) == 2
    captured = capfd.readouterr()
    assert "pip install nvtx" in captured.err
    assert "ran" not in captured.out
