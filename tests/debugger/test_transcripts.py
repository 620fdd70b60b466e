"""Whole sessions at the console, compared with `transcripts/*.txt`.

A transcript begins with its command line; what is typed is read off its prompts.
Run with UPDATE_GOLDEN=1 to write them again.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from tkdebug.cli import main

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "transcripts"
PROMPT = "(tkdebug) "
OF_PDB = ("host", "leaving_a_kernel")


def test_the_page_shows_transcripts_as_they_are():
    page = (ROOT / "docs" / "debugging.md").read_text()
    known = [path.read_text() for path in FOLDER.glob("*.txt")]
    shown = re.findall(r"^```console\n(.*?)^```$", page, flags=re.M | re.S)
    assert len(shown) >= 5
    assert [text.splitlines()[0] for text in shown if text not in known] == []


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.txt")))
def test_transcript(name, capfd, monkeypatch, tmp_path):
    if name in OF_PDB and sys.version_info[:2] != (3, 11):
        pytest.skip("what pdb says at lines of the host is compared with Python 3.11's alone")
    path = FOLDER / f"{name}.txt"
    text = path.read_text()
    head, *rest = text.splitlines()
    assert head.startswith("$ tkdebug debug ")
    script, *flags = reversed(head.removeprefix("$ tkdebug debug ").split())
    typed = iter([line.removeprefix(PROMPT) for line in rest if line.startswith(PROMPT)])

    def type_line(prompt):
        line = next(typed)
        print(f"{prompt}{line}")
        return line

    monkeypatch.setattr("builtins.input", type_line)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    main(["debug", *reversed(flags), script])
    out = "\n".join(line.rstrip() for line in capfd.readouterr().out.splitlines())
    got = f"{head}\n{out}\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(got)
    assert got == text
