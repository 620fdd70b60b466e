"""The README and the site say what is there: links, files, commands, knobs.

`zensical build --strict`, which CI runs, fails on links to pages and headings that do not exist.
These tests check the rest: images, links from the README and out of docs/, the navigation, and the
names of files, commands and options.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from tkdebug.checks import CHECK_NAMES
from tkdebug.cli.command_line import parse
from tkdebug.cli.options import REPORT_FORMATS
from tkdebug.instrument.report import SUFFIXES
from tkdebug.knobs import KNOB_TABLE

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
# Paths in prose are those of the repository, or of the package that the text is about.
BASES = [ROOT, ROOT / "tkdebug", ROOT / "tkdebug" / "compiler"]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page)))
    return [target for target in targets if not re.match(r"[a-z]+://", target)]


@pages
def test_links_and_images_lead_to_files_and_headings(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert DOCS not in page.parents or DOCS in file.parents, f"{target} is no part of the site"
        assert not anchor or anchor in headings(file), target


def test_page_of_costs_has_the_results_of_the_benchmarks():
    made = runpy.run_path(str(DOCS / "costs_page.py"))["page"]()
    assert (DOCS / "costs.md").read_text("utf-8") == made, "run python docs/costs_page.py"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the script takes Python 3.11")
def test_page_of_torch_versions_is_what_the_matrix_writes():
    matrix = runpy.run_path(str(ROOT / ".ci" / "matrix"))
    results = matrix["read_page"]()
    wanted = [row.name for row in matrix["ROWS"] if row.by_default]
    assert [name for name in results if name in wanted] == wanted
    page = (DOCS / "torch_versions.md").read_text("utf-8")
    assert page == matrix["page_of"](results), "run .ci/matrix"


def test_navigation_has_every_page_once():
    named = re.findall(r'= "([\w/]+\.md)"', (ROOT / "zensical.toml").read_text("utf-8"))
    assert sorted(named) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@pages
def test_files_that_the_text_names_exist(page):
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", prose(page))
    ours = [path for path in named if path.split("/")[0] in first_folders()]
    missing = [path for path in ours if not any((base / path).exists() for base in BASES)]
    assert missing == []


def first_folders() -> set[str]:
    return {path.name for base in BASES for path in base.iterdir() if path.is_dir()}


def test_tree_of_the_architecture_is_the_one_of_the_package():
    (tree,) = re.findall(
        r"^tkdebug/\n(.*?)^```$", (DOCS / "architecture.md").read_text(), re.M | re.S
    )
    package = ROOT / "tkdebug"
    stated, folders = set(), {0: package}
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip())
        names = re.match(r"\s*((?:[\w.]+/?, )*[\w.]+/?)", line)[1].split(", ")
        folders[depth] = folders[depth - 2] / names[0]
        stated |= {folders[depth - 2] / name for name in names}
    assert [path for path in stated if not path.exists()] == []
    inits = [*package.glob("*/__init__.py"), *package.glob("compiler/*/__init__.py")]
    packages = {init.parent for init in inits}
    assert packages - stated == set()


def test_classes_of_the_glossary_stand_where_it_says():
    glossary = (DOCS / "architecture.md").read_text("utf-8").partition("## Glossary\n")[2]
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \| `([\w./]+)` \|$", glossary, flags=re.M)
    assert len(rows) >= 30
    classes = [
        (name, ROOT / "tkdebug" / file)
        for _, meaning, file in rows
        for name in re.findall(r"`([A-Z]\w+)`", meaning)
    ]
    missing = [name for name, file in classes if f"\nclass {name}" not in file.read_text("utf-8")]
    assert missing == []


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), flags=re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [part.strip() for line in lines for part in line.split("&&")]


def words_of(command: str) -> list[str]:
    """Return the words without variables before them and redirections after them."""
    words = shlex.split(command, comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return [word for word in words if not word.startswith(">")]


@pages
def test_commands_are_ones_that_tkdebug_takes(page):
    for command in commands(page):
        words = words_of(command)
        if words[:1] == ["tkdebug"]:
            parse(words[1:])
        elif words[:1] == ["python"] and words[1].endswith(".py"):
            assert (ROOT / words[1]).exists(), command


def test_table_of_knobs_is_that_of_the_code():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .*? \| (.*?) \|$", prose(DOCS / "knobs.md"), re.M)
    stated = {name: (re.findall(r"`(\w+)`", variables), doc) for name, variables, doc in rows}
    assert stated == {knob.name: (list(knob.sources), knob.doc) for knob in KNOB_TABLE}


def test_checks_and_report_formats_are_described():
    faults, reports = (prose(DOCS / name) for name in ("faults.md", "reports.md"))
    assert [name for name in CHECK_NAMES if f"`{name}`" not in faults] == []
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in reports] == []
    text = (DOCS / "reports.md").read_text("utf-8").lower()
    assert [name for name in REPORT_FORMATS if name not in text] == []
