"""Skills: what they call is there, and how they are installed."""

import re
import shlex

import pytest

from tkdebug.cli.command_line import parse
from tkdebug.skills import FILE, skills


@pytest.mark.parametrize("name", sorted(skills()))
def test_commands_of_a_skill_are_ones_that_tkdebug_takes(name):
    text = skills()[name]
    front = re.match(rf"---\nname: {name}\ndescription: (.+)\n---\n", text)
    assert front is not None
    assert len(front[1]) < 1024
    typed = [line.strip() for line in text.splitlines() if line.strip().startswith("tkdebug ")]
    inline = re.findall(r"`(tkdebug [^`]+)`", text)
    assert typed
    for command in (*typed, *inline):
        parse(shlex.split(command)[1:])


def test_skills_are_installed_and_not_written_over(run_main, tmp_path):
    to = tmp_path / "skills"
    status, out, _ = run_main("skills", "install", "--to", to)
    assert status == 0
    assert out.splitlines() == [str(to / name / FILE) for name in skills()]
    for name, text in skills().items():
        assert (to / name / FILE).read_text("utf-8") == text
    assert run_main("skills", "install", "--to", to)[0] == 0
    changed = to / next(iter(skills())) / FILE
    changed.write_text("mine")
    status, out, err = run_main("skills", "install", "--to", to)
    assert (status, out) == (2, "")
    assert err.startswith(f"tkdebug: {changed}: is there and differs; ")
    assert changed.read_text() == "mine"
    assert run_main("skills", "install", "--to", to, "--force")[0] == 0
    assert changed.read_text("utf-8") == skills()[changed.parent.name]


def test_skills_that_cannot_be_written_are_one_line(run_main, tmp_path):
    (tmp_path / "file").write_text("")
    status, out, err = run_main("skills", "install", "--to", tmp_path / "file" / "below")
    assert (status, out) == (2, "")
    assert "cannot be written" in err
    status, out, _ = run_main("skills", "list")
    assert out.split() == list(skills())
