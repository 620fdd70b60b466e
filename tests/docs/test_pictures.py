"""Pictures of README and the site: harmless in an image tag, small, and animated by CSS alone."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRAWN = sorted(DOCS.glob("*.svg"))
MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def animation():
    spec = importlib.util.spec_from_file_location("animation", DOCS / "animation.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "animation", module)
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("path", [*DRAWN, *DOCS.glob("*.png")], ids=lambda path: path.name)
def test_pictures_are_small(path):
    assert path.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_drawn_pictures_run_and_load_nothing(path):
    root = ElementTree.parse(path).getroot()
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not names & {"script", "foreignObject", "image", "use", "a"}
    text = path.read_text("utf-8")
    assert re.findall(r'url\((?!#)|@import|\bhref=|\bon\w+="', text) == []


def test_the_wrong_number_ends_at_its_cause_and_without_a_fault():
    root = ElementTree.parse(DOCS / "cause.svg").getroot()
    lines = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
    text = "\n".join(lines)
    order = [
        "mismatch",
        "15 + total = tl.sum(e, axis=1)",
        "(tkdebug) why out",
        "$ sed",
        "no faults",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "prefers-reduced-motion" in root.find(".//{*}style").text


def test_commands_are_typed_before_they_answer_and_the_terminal_scrolls(animation):
    steps = [
        animation.Step("make x", "\x1b[31mone\x1b[0m & <two>\nthree", 2),
        animation.Step("y", "four " * 5, 3),
    ]
    text = animation.animated("a <title>", steps, columns=20, rows=4)
    root = ElementTree.fromstring(text)
    shown = ["".join(one.itertext()) for one in root.iter() if one.tag.endswith("text")]
    assert shown[:6] == ["a <title>", "$ make x", "one", " & <two>", "three", "$ y"]
    # 1 s, 6 letters of 0.05 s, 0.5 s for Enter; 2 s of reading; a letter, Enter, 3 s of reading.
    whole_s = 1 + 0.3 + 0.5 + 2 + 0.05 + 0.5 + 3
    rules = root.find(".//{*}style").text
    for name, at_s in (("c0", 1), ("o0", 1.8), ("c1", 3.8), ("o1", 4.35)):
        assert f"@keyframes {name}{{0%{{opacity:0}}{100 * at_s / whole_s:.2f}%" in rules
    # Six rows of which four are seen: without animations the last ones.
    assert ".all{transform:translateY(-48.8px)" in rules
