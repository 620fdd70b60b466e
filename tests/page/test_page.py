"""The page as text: what it says without a script, what it can never do, what is packed in it."""

import base64
import gzip
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hostile_session import CLOSING, MARKUP, TEXT, record

import tkdebug.instrument.renderers.page as page_module
from tkdebug.cli import main
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session

ASSETS = Path(page_module.__file__).with_name("page_assets")
GOLDEN = Path(__file__).parents[1] / "golden" / "page.txt"


class Page(HTMLParser):
    """Elements and words of a page, as a browser without scripts has them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.raw, self.words, self.policy = [], {}, [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]

    def handle_data(self, data):
        tag, attrs = self.tags[-1] if self.tags else ("", {})
        if self.cdata_elem:
            name = attrs.get("id", tag)
            self.raw[name] = self.raw.get(name, "") + data
        elif data.strip():
            self.words.append(" ".join(data.split()))

    def unpacked(self, name):
        return json.loads(gzip.decompress(base64.b64decode(self.raw[name])))


def html(path):
    with Session.open(path) as session:
        return "".join(render(session, "html"))


@pytest.fixture
def plain(tmp_path):
    return html(record(tmp_path / "run.tkd", tmp_path / "k.py"))


@pytest.fixture
def hostile(tmp_path):
    return html(record(tmp_path / "run.tkd", tmp_path / "k.py", TEXT))


def test_the_page_says_without_a_script_what_was_found(plain):
    words = "\n".join(Page(plain).words) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(words)
    assert words == GOLDEN.read_text()


def test_nothing_of_a_session_becomes_markup(plain, hostile):
    assert MARKUP not in hostile
    assert CLOSING not in hostile
    # The same elements with the same attributes; no word of the session is among them.
    tags = [(tag, sorted(attrs)) for tag, attrs in Page(hostile).tags]
    assert tags == [(tag, sorted(attrs)) for tag, attrs in Page(plain).tags]
    assert not [a for _, attrs in Page(hostile).tags for a in attrs if a.startswith("on")]
    # It is there as text.
    assert any(TEXT in words for words in Page(hostile).words)


def test_templates_are_not_made_of_a_sessions_words(hostile):
    assert "{{7*7}}" in "".join(Page(hostile).words)


def test_the_policy_lets_in_the_pages_own_script_and_style_alone(hostile):
    page = Page(hostile)
    for name, kind in (("script", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(page.raw[name].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy
    assert "require-trusted-types-for 'script'" in page.policy
    assert "unsafe" not in page.policy


def test_the_page_names_no_address(plain):
    addresses = set(re.findall(r"https?://[\w./-]+", plain))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace, which nothing loads
    page = Page(plain)
    assert not [attrs for tag, attrs in page.tags if tag == "link" or "src" in attrs]


def test_the_script_makes_no_markup_and_no_code_of_strings():
    script = (ASSETS / "page.js").read_text()
    forbidden = (
        "innerHTML|outerHTML|insertAdjacentHTML|document[.]write|eval[(]|new Function|srcdoc|"
        "createContextualFragment"
    )
    assert re.findall(forbidden, script) == []
    assert "</script" not in script


def test_packed_data_are_the_model_and_its_texts(hostile):
    page = Page(hostile)
    model, code = page.unpacked("model"), page.unpacked("code")
    (kernel,) = model["kernels"]
    (variant,) = kernel["variants"]
    assert "code" not in variant
    stages = {stage["name"]: stage["text"] for stage in code[variant["key"]]["stages"]}
    assert stages["tile-ir"] == [f"tt.func {TEXT}"]
    assert model["faults"][0]["cause"]["edits"][0]["after"] == [TEXT]


def test_the_same_session_gives_the_same_page(tmp_path):
    path = record(tmp_path / "run.tkd", tmp_path / "k.py")
    assert html(path) == html(path)


def test_report_of_two_runs_has_both_and_what_differs(tmp_path, capfd):
    before = record(tmp_path / "before.tkd", tmp_path / "k.py", launches=2)
    after = record(tmp_path / "after.tkd", tmp_path / "k.py", launches=5)
    out = tmp_path / "both.html"
    assert main(["report", str(before), str(after), "-o", str(out)]) == 0
    page = Page(out.read_text())
    assert page.unpacked("model")["run"]["launches"] == 5
    assert page.unpacked("before")["run"]["launches"] == 2
    compared = page.unpacked("compared")
    (kernel,) = compared["kernels"]
    assert kernel["launches"] == [2, 5]
    assert compared["kept_faults"] == 2
    # Interpreted times are those of the CPU: nothing is called slower by them.
    assert kernel["verdict"] == "unknown"


def test_a_run_without_launches_has_a_page(tmp_path):
    from tkdebug.instrument.recorder import Recorder

    with Recorder(tmp_path / "run.tkd", script="k.py", output=False):
        pass
    page = Page(html(tmp_path / "run.tkd"))
    assert "✓ no findings" in page.words
    assert "Nothing was found." in page.words
    assert "kernels" not in page.unpacked("model")
