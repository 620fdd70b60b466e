"""`# tkdebug: ignore[kind]`: what is read, what it covers, what is wrong with it."""

import pytest

from tkdebug.errors import Frame
from tkdebug.findings.source import (
    comments_around,
    comments_of,
    is_ignored,
    problem_lines,
    unused,
    unused_lines,
)
from tkdebug.records.events import ENDING_KINDS, IGNORABLE_KINDS, Fault

FILE = "/work/k.py"


def only(text):
    (comment,) = comments_of(FILE, text)
    return comment


def fault(*lines, kind="race", state="open"):
    return Fault(kind, "k", tuple(Frame(FILE, n, "f") for n in lines), "", state=state)


def ignored(text, *lines, kind="race"):
    return is_ignored(fault(*lines, kind=kind), lambda file: text)


@pytest.mark.parametrize(
    ("comment", "kinds"),
    [
        ("# tkdebug: ignore[race]", ("race",)),
        ("#tkdebug:ignore[race]", ("race",)),
        ("# tkdebug: ignore[ race , nan ]", ("race", "nan")),
        ("# noqa: E501  # tkdebug: ignore[nan] the lock orders it", ("nan",)),
        ("# type: ignore[attr-defined]  # tkdebug: ignore[nan]  # why", ("nan",)),
    ],
)
def test_comment_names_kinds(comment, kinds):
    found = only(f"x = 1  {comment}\n")
    assert (found.kinds, found.problem) == (kinds, "")


@pytest.mark.parametrize(
    "text",
    [
        's = "# tkdebug: ignore[rase]"',
        '"""\nx = 1  # tkdebug: ignore[rase]\n"""',
        "x = 1  # type: ignore[attr-defined]",
        "x = 1  # tkdebug reports this line [1]",
        "x = 1  # tkdebug: the fault is here",
        "x = 1  # tkdebugger: ignore this",
        "x = 1  # ignore[race]",
        "x = 1  # ty: ignore[race]",
    ],
)
def test_other_texts_are_no_comments_of_ours(text):
    assert comments_of(FILE, text + "\n") == ()


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# tkdebug: ignore", "name them"),
        ("# tkdebug: ignore[]", "lacks a kind"),
        ("# tkdebug: ignore[race,]", "lacks a kind"),
        ("# tkdebug: ignore[race", "no closing bracket"),
        ("# tkdebug: ignroe[race]", "expected a comment such as # tkdebug: ignore[race]"),
        ("# tkdebug ignore[race]", "expected a comment such as"),
        ("# tkdbug: ignore[race]", "expected a comment such as"),
        ("# tkdebug[race]", "expected a comment such as"),
        ("# tkdebug: ignore[rase]", "ignore[rase]: there is no such kind of fault; did you mean"),
        ("# tkdebug: ignore[all]", "there are oob-load"),
        ("# tkdebug: ignore[compile-error]", "cannot be ignored"),
    ],
)
def test_wrong_comment_ignores_nothing_and_is_one_line(comment, words):
    found = only(f"x = 1\ny = 2  {comment}\n")
    assert found.kinds == ()
    (line,) = problem_lines([found, found])
    assert line.startswith(f"{FILE}:2: ")
    assert words in line
    assert "\n" not in line


def test_kinds_beside_a_wrong_one_hold():
    found = only("x = 1  # tkdebug: ignore[race, nann]\n")
    assert found.kinds == ("race",)
    assert "did you mean nan?" in found.problem


def test_every_kind_but_those_that_end_a_launch_can_be_ignored():
    for kind in IGNORABLE_KINDS:
        assert only(f"x = 1  # tkdebug: ignore[{kind}]\n").kinds == (kind,)
    assert not ENDING_KINDS & set(IGNORABLE_KINDS)


@pytest.mark.parametrize("line", [1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_comment_holds_for_all_lines_of_its_statement(line, at):
    lines = ["x = f(", "    a,", ")", "y = 2"]
    lines[at - 1] += "  # tkdebug: ignore[race]"
    text = "\n".join(lines) + "\n"
    assert ignored(text, line)
    assert not ignored(text, 4)
    assert not ignored(text, line, kind="nan")


def test_comment_on_a_line_of_its_own_inside_of_a_statement_holds():
    assert ignored("x = f(\n    # tkdebug: ignore[race]\n    a)\n", 1)


def test_comment_outside_of_statements_is_wrong():
    text = "x = 1\n# tkdebug: ignore[race]\ny = 2\n"
    assert not any(ignored(text, line) for line in (1, 2, 3))
    assert "outside of any statement" in only(text).problem


def test_comment_of_a_header_does_not_hold_for_the_body():
    text = "for i in r:  # tkdebug: ignore[race]\n    x = 1\n"
    assert ignored(text, 1)
    assert not ignored(text, 2)


def test_comment_at_a_call_holds_for_what_the_callee_does():
    text = "def f():\n    x = 1\n\ndef k():\n    f()  # tkdebug: ignore[race]\n    f()\n"
    assert ignored(text, 5, 2)
    assert not ignored(text, 6, 2)


def test_what_is_no_python_has_no_comments():
    assert comments_of(FILE, "x = (1  # tkdebug: ignore[race]\n") == ()


def test_comments_around_are_those_of_the_functions():
    text = (
        "def f():\n    x = 1  # tkdebug: ignore[race]\n    y = 1\n\n"
        "def g():\n    x = 1  # tkdebug: ignore[nan]\n"
    )
    found = comments_around({(FILE, 3), ("/other.py", 6)}, lambda f: text if f == FILE else "")
    assert [comment.line for comment in found] == [2]


def test_unused_are_the_kinds_that_ignored_nothing():
    both = only("x = 1  # tkdebug: ignore[race, nan]\n")
    assert unused([both, both], [fault(1, state="ignored")])[0].kinds == ("nan",)
    assert unused([both], [fault(1, state="ignored"), fault(1, kind="nan", state="ignored")]) == []
    (line,) = unused_lines([both], [fault(1), fault(2, state="ignored")])
    assert line.startswith(f"{FILE}:1: unused ignore[race, nan]")
