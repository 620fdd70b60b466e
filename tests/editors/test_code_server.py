"""Outcomes of CI's session in code-server: wrong, or not to be run here."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "code_server" / "run.py"


@pytest.fixture(scope="module")
def session():
    spec = importlib.util.spec_from_file_location("code_server_session", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


def steps(session, **changes):
    line = int(session._line())
    before, after = ["Variables", "x = fp32[4] [0 1]", "n = 12"], ["x = fp32[4] [2 3]", "n = 12"]
    found = {
        "stopped": {"line": line, "variables": before},
        "stepped": {"line": line - 3, "variables": after},
        "stepped back": {"line": line, "variables": before},
    }
    for step, shown in found.items():
        shown["step"] = step
    for step, change in changes.items():
        found[step.replace("_", " ")] |= change
    return found


def test_a_session_as_it_should_be_passes(session):
    session._check(steps(session))


@pytest.mark.parametrize(
    ("step", "change", "said"),
    [
        ("stopped", {"line": 3}, "stopped: the line that is lit is 3"),
        ("stopped", {"variables": ["Variables"]}, "there is no variable x"),
        ("stepped", {"line": 0}, "is at line 0"),
        ("stepped", {"variables": ["x = fp32[4] [0 1]", "n = 12"]}, "a step changes no variable"),
        ("stepped_back", {"line": 15}, "stepped back: the line that is lit is 15"),
        ("stepped_back", {"variables": ["x = fp32[4] [2 3]", "n = 12"]}, "and before it"),
    ],
)
def test_what_the_editor_shows_wrong_is_reported(session, step, change, said):
    with pytest.raises(session.Wrong, match=said):
        session._check(steps(session, **{step: change}))


@pytest.mark.parametrize(
    ("words", "browser", "said"),
    [
        (["none.vsix"], "/bin/chromium", "skipped: there is no none.vsix"),
        ([str(FILE)], None, "skipped: no Chromium"),
        (["--fetch"], None, "skipped: no Chromium"),
        ([str(FILE), "--seconds", "0"], "/bin/chromium", "skipped: it took longer than 0 s"),
    ],
)
def test_what_cannot_be_run_is_skipped_with_a_word(
    session, words, browser, said, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    monkeypatch.setattr(session.shutil, "which", lambda name: browser)
    assert session.main() == 0
    assert said in capsys.readouterr().out
