"""Bounds of answers, arguments of tools, and names that must not lead out of the folder."""

import json
import os
import random

import pytest

from tkdebug.errors import ErrorRecord, UsageError
from tkdebug.mcp_server.answers import Answer, Pages, clipped, error_page
from tkdebug.mcp_server.parameters import Folder, Parameter, read_arguments, schema_of


def answer(items, **facts):
    return Answer("interpreted", "tkdebug report run.tkd", {"session": "run.tkd"}, facts, items)


def test_pages_of_an_answer_have_each_item_once_and_keep_the_bound():
    items = [{"number": n, "text": "x" * (n % 90)} for n in range(300)]
    pages, found = Pages(), []
    text = pages.page(answer(items), 1024)
    while True:
        assert len(text) <= 1024
        page = json.loads(text)
        assert (page["obtained"], page["replay"]) == ("interpreted", "tkdebug report run.tkd")
        found += page["items"]
        if not page["left"]:
            break
        text = pages.page(pages.rest(page["cursor"]), 1024)
    assert found == items
    assert "cursor" not in page


def test_a_page_can_be_read_again():
    pages = Pages()
    cursor = json.loads(pages.page(answer([{"n": n} for n in range(500)]), 1024))["cursor"]
    first, again = (json.loads(pages.page(pages.rest(cursor), 1024)) for _ in range(2))
    assert first["items"] == again["items"]


def test_old_cursors_are_refused_by_an_error():
    pages = Pages()
    first = json.loads(pages.page(answer([{"n": n} for n in range(500)]), 1024))["cursor"]
    for _ in range(70):
        pages.page(answer([{"n": n} for n in range(500)]), 1024)
    with pytest.raises(UsageError, match="expected one of an answer of this server"):
        pages.rest(first)
    with pytest.raises(UsageError):
        pages.rest("../etc")


def test_items_and_facts_that_are_too_long_are_clipped():
    long = {"text": "é" * 100_000, "list": list(range(100_000)), "deep": [[["y" * 9000]]] * 500}
    pages = Pages()
    text = pages.page(answer([long, {"n": 1}], head="z" * 100_000), 1024)
    assert len(text.encode()) <= 1024
    page = json.loads(text)
    assert page["clipped"] is True
    assert page["items"][0]["clipped"] is True
    rest = page["items"][1:] or json.loads(pages.page(pages.rest(page["cursor"]), 1024))["items"]
    assert rest == [{"n": 1}]
    assert len(error_page(ErrorRecord("usage", "w" * 50_000))) <= 1024


def test_clipping_keeps_any_bound():
    chosen = random.Random(7)
    for _ in range(300):
        item = {f"k{n}": chosen.choice([1, "t" * chosen.randrange(4000), [{"a": "b"}] * 99])
                for n in range(chosen.randrange(60))}  # fmt: skip
        bound = chosen.randrange(200, 4000)
        assert len(json.dumps(clipped(item, bound))) <= bound


@pytest.mark.parametrize(
    "name",
    ["", "..", "../a.py", "a/../../b", "/etc/passwd", "~/a.py", "C:\\a.py", "..\\a.py", "\\\\h\\s",
     "a\0b", "x" * 5000, "out/secret.py", "link.py", "loop"],
)  # fmt: skip
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "link.py").symlink_to("../outside/secret.py")
    (root / "loop").symlink_to("../outside/none")
    with pytest.raises(UsageError, match="expected a path"):
        Folder(root).inside(name)


def test_names_inside_are_words_that_are_no_options(tmp_path):
    folder = Folder(tmp_path)
    (tmp_path / "real.py").write_text("")
    (tmp_path / "inner.py").symlink_to("real.py")
    assert folder.inside("inner.py") == tmp_path / "real.py"
    assert folder.word(folder.inside("--mode.py")) == "./--mode.py"
    assert folder.word(folder.inside("a/b.py")) == os.path.join("a", "b.py")


PARAMETERS = (
    Parameter("script", "a script", "file", is_required=True),
    Parameter("count", "how many", "integer", low=1, high=5),
    Parameter("flag", "whether", "flag"),
    Parameter("words", "some", "words"),
    Parameter("mode", "how", choices=("fast", "slow")),
    Parameter("line", "where", pattern=r"\d+", example="12"),
    Parameter("session", "a run", "session"),
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "script: got nothing, expected a script"),
        ({"script": "no.py"}, "script: got 'no.py', expected a file that is there"),
        ({"script": 7}, "script: got 7, expected a path"),
        ({"script": "a.py", "count": 6}, "count: got 6, expected a number from 1 to 5"),
        ({"script": "a.py", "count": True}, "count: got True"),
        ({"script": "a.py", "flag": "yes"}, "flag: got 'yes', expected true or false"),
        ({"script": "a.py", "words": ["a", 1]}, "words: got 1, expected texts"),
        ({"script": "a.py", "words": ["a"] * 65}, "words: got .* expected a list of at most 64"),
        ({"script": "a.py", "mode": "fats"}, "got 'fats', expected one of fast, slow"),
        ({"script": "a.py", "line": "1\n2"}, "expected one line of at most 2000 characters"),
        ({"script": "a.py", "line": "x"}, "got 'x', expected a text such as 12"),
        ({"script": "a.py", "lien": "1"}, "got an argument 'lien', .* did you mean line?"),
        ({"script": "a.py", "limit": 10}, "limit: got 10, expected a number from 1024 to 65536"),
        ({"script": "\ud800.py"}, "script: got "),
        ({"script": "a.py", "session": "a.py"}, "got 'a.py', expected a name such as run.tkd"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, given, message):
    (tmp_path / "a.py").write_text("")
    with pytest.raises(UsageError, match=message):
        read_arguments(PARAMETERS, given, Folder(tmp_path))


def test_arguments_are_read_in_their_types(tmp_path):
    (tmp_path / "a.py").write_text("")
    given = {"script": "a.py", "count": 3, "flag": False, "words": ["--x", "y"], "line": None}
    read = read_arguments(PARAMETERS, given, Folder(tmp_path))
    assert read == {"script": tmp_path / "a.py", "count": 3, "flag": False, "words": ("--x", "y")}
    schema = schema_of(PARAMETERS)
    assert schema["required"] == ["script"]
    assert schema["properties"]["mode"]["enum"] == ["fast", "slow"]


def test_how_it_was_obtained_and_the_replay_are_cut_last():
    name = "größe" * 12
    facts = {f"fact {number}": name for number in range(20)}
    answer = Answer("compiled", f"tkdebug lines {name}.py", {"script": name}, facts, [{"a": 1}])
    page = json.loads(Pages().page(answer, 1024))
    assert (page["obtained"], page["replay"]) == ("compiled", answer.replay)
    assert page["clipped"] is True
    endless = Answer("compiled", "tkdebug " + "größe" * 1000, {"script": name}, facts)
    assert json.loads(Pages().page(endless, 1024))["obtained"] == "compiled"
    assert len(Pages().page(endless, 1024)) <= 1024
