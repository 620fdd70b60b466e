"""The page in a browser: it opens, shows a session's words as text, and answers its keys.

Skipped without playwright and a Chromium of the system (TKDEBUG_CHROMIUM names another).
"""

import os
import shutil

import pytest
from hostile_session import TEXT, record

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("TKDEBUG_CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page of `text`; what it complained of is in `complaints`."""
    path = record(tmp_path / "run.tkd", tmp_path / "k.py", TEXT)
    out = tmp_path / "out.html"
    with Session.open(path) as session:
        out.write_text("".join(render(session, "html")))
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append("dialog"))
    page.goto(out.as_uri())
    page.wait_for_selector("body[data-ready]")
    yield page
    page.close()


def test_hostile_words_are_shown_and_do_nothing(opened):
    for view in ("launches", "faults", "advice", "output", "home"):
        opened.click(f"[data-view={view}]")
    assert opened.complaints == []
    assert opened.locator("img, iframe, object").count() == 0
    assert TEXT in opened.locator("#facts").inner_text()
    opened.click("[data-view=faults]")
    assert TEXT in opened.locator("#tables").inner_text()


def test_the_page_opens_at_what_failed_with_the_edit_that_fixes_it(opened):
    assert opened.locator("#src .r[aria-selected=true] .no").inner_text().endswith("3")
    assert "the launch agrees" in opened.locator("#facts").inner_text()
    assert opened.locator("#next button[aria-current=true]").count() >= 1


def test_keys_go_from_line_to_line_and_from_stage_to_stage(opened):
    opened.keyboard.press("k")
    assert opened.locator("#src .r[aria-selected=true] .no").inner_text().endswith("2")
    opened.keyboard.press("n")
    assert opened.locator("#src .r[aria-selected=true] .no").inner_text().endswith("3")
    opened.keyboard.press("1")
    assert opened.locator("#stages [aria-selected=true]").inner_text().startswith("Tile IR")
    assert opened.locator("#ir .i.on").count() == 1


def test_search_finds_lines_and_goes_there(opened):
    opened.keyboard.press("/")
    opened.keyboard.type("range(9)")
    opened.keyboard.press("Enter")
    assert opened.locator("#src .r[aria-selected=true] .no").inner_text().endswith("2")
    assert opened.complaints == []


def test_a_run_without_launches_fills_the_window(browser, tmp_path):
    path, out = tmp_path / "run.tkd", tmp_path / "out.html"
    with Recorder(path, script="k.py", output=False), Session.open(path) as session:
        out.write_text("".join(render(session, "html")))
    page = browser.new_page(viewport={"width": 1024, "height": 700})
    page.goto(out.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.locator("#src").inner_text() == "No kernel has been launched yet."
    bounds = page.locator("#status").bounding_box()
    assert bounds["y"] + bounds["height"] == 700
    page.close()
