"""The page of faults: each kind has a section, and each example prints what is quoted below it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from warm_python import run_module

from tkdebug.instrument.renderers.sarif import DESCRIPTIONS
from tkdebug.records.events import FaultKind

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
_IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
_EXAMPLE = re.compile(r"^```python\n(@triton.jit\n.*?)^```\n\n^```text\n(.*?)^```$", re.M | re.S)
_SECTIONS = {
    kind: text
    for kind, text in re.findall(r"^### `([\w-]+)`\n(.*?)(?=^##+ |\Z)", PAGE, flags=re.M | re.S)
}
# By the name of its file: the kind, and the number of the example of a section that has several.
_EXAMPLES = {
    kind if number == 1 else f"{kind}-{number}": match.groups()
    for kind, text in _SECTIONS.items()
    for number, match in enumerate(_EXAMPLE.finditer(text), 1)
}


def test_each_kind_has_a_section_and_a_row_in_one_order() -> None:
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(#\1\) \|", PAGE, flags=re.M)
    assert rows == list(_SECTIONS)
    assert set(rows) == set(get_args(FaultKind)) == set(DESCRIPTIONS)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what `tkdebug run` prints of all examples, each a file of its name."""
    folder = tmp_path_factory.mktemp("examples")
    names = [f"{example.replace('-', '_')}.py" for example in _EXAMPLES]
    for name, (code, _) in zip(names, _EXAMPLES.values(), strict=True):
        (folder / name).write_text(_IMPORTS + code, encoding="utf-8")
    script = (
        "import contextlib, runpy\n"
        f"for name in {names}:\n"
        "    with contextlib.suppress(Exception):  # of a comparison, and of a compile\n"
        "        runpy.run_path(name)\n"
    )
    words = ["run", "--no-tui", "--mode", "interpret", "--check", "all", "-c", script]
    process = run_module("tkdebug", *words, cwd=folder)
    return re.sub(r"by launch \d+", "by launch 1", process.stderr)


@pytest.mark.parametrize("example", _EXAMPLES)
def test_example_prints_the_quoted_fault(example: str, printed: str) -> None:
    quoted = _EXAMPLES[example][1]
    assert f" {re.sub(r'-[0-9]+$', '', example)} " in quoted
    assert quoted in printed
