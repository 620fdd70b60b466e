"""The baseline: by what a fault is found again, and files that are none."""

import json
from pathlib import Path

import pytest

from tkdebug.errors import Frame, UsageError
from tkdebug.findings.baseline import KnownFault, UsedBaseline, fixed, identity, load, pieces
from tkdebug.records.events import Fault

FOLDER = Path("/work/project")
FILE = "/work/project/kernels/add.py"
SOURCE = """\
def k(x, y):
    a = load(x + 1)
    b = load(y)
    a = load(x + 1)

def other(x):
    a = load(x + 1)
"""


def found(source=SOURCE, lines=(2,), file=FILE, **changes):
    frames = tuple(Frame(file, line, "k") for line in lines)
    fault = Fault("oob-load", "k", frames, "too far", **{"tensor": "x", **changes})
    return identity(fault, FOLDER, lambda name: source)


def test_fault_is_known_by_code_and_names():
    assert found() == KnownFault("kernels/add.py", "k", "oob-load", "a=load(x+1)", 0, "x")


@pytest.mark.parametrize(
    "source",
    [
        f"# a comment\n\n{SOURCE}",
        f"def before(x):\n    a = load(x + 1)\n\n{SOURCE}",
        SOURCE.replace("x + 1", "x+1 ", 1).replace("\n    b", "  # noted\n    b"),
        SOURCE.replace("b = load(y)", "b = load(z)"),
    ],
    ids=["moved", "same code in another function", "formatted", "another line edited"],
)
def test_fault_is_the_same_after(source):
    line = source.splitlines().index("def k(x, y):") + 2
    assert found(source, (line,)) == found()


@pytest.mark.parametrize(
    "changes",
    [
        {"lines": (4,)},
        {"lines": (3,)},
        {"source": SOURCE.replace("x + 1", "x + 2", 1)},
        {"tensor": "y"},
        {"file": "/work/project/kernels/sub.py"},
        {"lines": (3, 2)},
    ],
    ids=["second of the same code", "other line", "edited", "tensor", "file", "call"],
)
def test_fault_is_another(changes):
    assert found(**changes) != found()


def test_compile_errors_differ_by_what_they_say():
    one, other = (identity(Fault("compile-error", "k", (), text), FOLDER) for text in "ab")
    assert one != other


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/opt/venv/lib/python3.12/site-packages/pkg/k.py", "pkg/k.py"),
        ("/work/project/.venv/lib/site-packages/pkg/k.py", "pkg/k.py"),
        ("/elsewhere/k.py", "k.py"),
        ("<string>", "<string>"),
    ],
)
def test_names_of_files_are_those_of_any_machine(file, name):
    assert found(file=file).file == name


def test_baseline_is_read_as_it_was_written(tmp_path):
    known = [found(), found(lines=(4,)), found(lines=(3, 2), tensor=None)]
    path = tmp_path / "faults.json"
    path.write_text("".join(pieces([*known, known[0]])))
    assert load(path) == frozenset(known)
    assert len(path.read_text().splitlines()) == 1 + len(known) + 1


ENTRY = {"file": "a.py", "kernel": "k", "kind": "race", "code": "x"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe", "is not a baseline"),
        (b"{", "no JSON at line 1"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "has no 'tkdebug_baseline'"),
        (b'{"schema": 1, "faults": []}', "has no 'tkdebug_baseline'"),
        (b'{"tkdebug_baseline": 2, "faults": []}', "baseline of schema 2, this tkdebug reads 1"),
        (b'{"tkdebug_baseline": 1}', "no list of faults"),
        (b'{"tkdebug_baseline": 1, "faults": [1]}', "fault 1: got 1, expected an object"),
    ],
)
def test_file_that_is_no_baseline_is_one_line(tmp_path, text, words):
    path = tmp_path / "faults.json"
    path.write_bytes(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"kind": 1}, {"ordinal": "0"}, {"ordinal": True}, {"calls": "x"}, {"calls": [1]}, {"x": 1}],
)
def test_entry_with_something_else_is_damage(tmp_path, change):
    path = tmp_path / "faults.json"
    path.write_text(json.dumps({"tkdebug_baseline": 1, "faults": [ENTRY, {**ENTRY, **change}]}))
    with pytest.raises(UsageError, match="damaged baseline: fault 2: "):
        load(path)


def test_baseline_that_is_not_there_or_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="no such baseline; --update-baseline writes one"):
        load(tmp_path / "faults.json")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)


def test_fixed_are_faults_that_would_have_come_up():
    faults = [KnownFault("a.py", kernel, kind, "x") for kernel in "kl" for kind in ("race", "nan")]
    used = UsedBaseline("/f.json", tuple(faults), ("race",), ())
    assert fixed(used, (), {"k"}) == (faults[0],)
    assert fixed(used, faults[:1], {"k", "l"}) == (faults[2],)
    assert fixed(UsedBaseline("/f.json", tuple(faults), ("race",), ("l*",)), (), {"k"}) == ()
