"""`--errors json`: what ends a command is an object in place of a line."""

import importlib.util
import json
from pathlib import Path

import pytest

from tkdebug.errors import CompileError, Frame, UsageError, error_record
from tkdebug.findings.fault_kinds import fault_kinds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["report", "no.tkd"], {"kind": "session", "line": None}),
        (["run", "no.py"], {"kind": "no-program", "file": "no.py"}),
        (
            ["explain", "oob-lod"],
            {"kind": "usage", "next": "did you mean oob-load?", "file": None},
        ),
        (["compare", "--format", "yaml", "a", "b"], {"kind": "usage", "got": "'yaml'"}),
        (["passes", "--nonsense", "no.py"], {"kind": "usage"}),
        (["compare", "one.tkd"], {"kind": "usage"}),
    ],
)
@pytest.mark.parametrize("option", [["--errors", "json"], ["--errors=json"]])
def test_an_error_is_one_object(run_main, words, expected, option):
    status, out, err = run_main(words[0], *option, *words[1:])
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    record = json.loads(line)
    assert record["schema"] == 1
    assert set(record["error"]) == {"kind", "message", "file", "line", "got", "expected", "next"}
    assert record["error"].items() >= expected.items()


def test_an_option_after_the_script_is_the_scripts(run_main):
    status, _, err = run_main("run", "--no-tui", "no.py", "--errors", "json")
    assert status == 2
    assert err.splitlines()[-1].startswith("tkdebug: no.py: no such file")


def test_parts_of_an_error_follow_its_text():
    frames = (Frame("a.py", 9, "main"), Frame("k.py", 3, "kernel"))
    record = error_record(
        CompileError("got 3, expected a power of two; pass 4", frames, 5, "x = 3")
    )
    assert (record.kind, record.file, record.line) == ("compile", "k.py", 3)
    assert (record.got, record.expected, record.next) == ("3", "a power of two", "pass 4")
    plain = error_record(UsageError("nothing of that is here"))
    assert (plain.file, plain.line, plain.got, plain.next) == (None, None, None, None)


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("-o short.py: is there already", "short.py", None),
        ("--line a.py:3: no op is of that line", "a.py", 3),
        ("{spaced}: is no session", "{spaced}", None),
        ("{spaced}:7: oob-load in add", "{spaced}", 7),
        ("it read a/b and c.d of e: no", None, None),
        ("mode: got 1.5: no", None, None),
    ],
)
def test_place_of_an_error_is_read_also_after_an_option_and_with_spaces(tmp_path, text, file, line):
    spaced = tmp_path / "größe of it.py"
    spaced.write_text("")
    record = error_record(UsageError(text.format(spaced=spaced)))
    assert (record.file, record.line) == (file and file.format(spaced=spaced), line)


def test_explain_knows_each_kind_of_the_page():
    spec = importlib.util.spec_from_file_location("fault_kinds", ROOT / "docs" / "fault_kinds.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert page.FILE.read_text("utf-8") == page.text(), "run python docs/fault_kinds.py"
    assert len(fault_kinds()) > 30


def test_explain_prints_the_section_of_a_kind(run_main):
    status, out, _ = run_main("explain", "oob-load")
    assert status == 0
    assert out.startswith("oob-load: a load reads outside the tensor as passed\n")
    assert "**Fix**: mask the access" in out
    status, out, _ = run_main("explain", "--format", "json", "race")
    (kind,) = json.loads(out)["kinds"]
    assert kind["name"] == "race"
    assert kind["text"]


def test_explain_lists_all_kinds(run_main):
    status, out, _ = run_main("explain")
    assert status == 0
    assert len(out.splitlines()) == len(fault_kinds())
