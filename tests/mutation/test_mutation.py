"""The mutation script: which mutants there are, and that the tests of a module decide."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import function_lines, mutants, mutated

SCRIPT = Path(__file__).with_name("run.py")


def changes(source: str) -> set[str]:
    """Every mutant's whole text."""
    found = mutants("m", source)
    texts = {ast.unparse(mutated(source, mutant)) for mutant in found}
    assert ast.unparse(ast.parse(source)) not in texts, "a mutant that changes nothing"
    return texts


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = a <= b"}),
        ("x = a < b <= c", {"x = a <= b <= c", "x = a < b < c"}),
        ("x = a is not None", {"x = a is None"}),
        ("x = a - b", {"x = a + b"}),
        ("x -= y", {"x += y"}),
        ("x = a and b", {"x = a or b"}),
        ("x = not a", {"x = a"}),
        ("x = -a", {"x = a"}),
        ("x = 7", {"x = 8"}),
        ("x = True", {"x = False"}),
        ("x = a if c else b", {"x = b if c else a"}),
        ("x = [a for a in b if a]", {"x = [a for a in b]"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("note(a)", {"pass"}),
        ("if a:\n    x = b", {"if True:\n    x = b", "if False:\n    x = b"}),
        ("while a:\n    break", {"while a:\n    continue"}),
        ("x = a == 'lt'", {"x = a != 'lt'", "x = a == 'lt?'"}),
        ("x = a in (b, c)", {"x = a not in (b, c)", "x = a in (c,)", "x = a in (b,)"}),
        (
            "x = {'a': f, 'b': g}",
            {"x = {'b': g}", "x = {'a': f}", "x = {'a': g, 'b': f}"},
        ),
    ],
)
def test_slips(source: str, expected: set[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        "def f(a: Literal[1]) -> Literal[2]:\n    'Text.'",
        "x = f'{a + 1}'",
        "raise ValueError(a + 1)",
        "assert a < 1",
        "x = zip(a, b, strict=True)",
        "__all__ = ['a', 'b']",
        "x = isinstance(a, Left | int)",
        "x = a + 'text'",
    ],
)
def test_what_only_people_read_is_left_alone(source: str) -> None:
    assert not mutants("m", source)


def test_a_mutant_names_its_function_and_shows_the_difference() -> None:
    source = "class A:\n\n    @cached\n    def f(self):\n        return [a < 1 for a in self]\n"
    first = mutants("m", source)[0]
    assert (first.function, first.line, first.change) == ("A.f", 5, "a < 1 -> a <= 1")
    assert function_lines(source) == {3: "A.f"}


def run(*arguments: str | Path) -> str:
    """Return the script's output."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_recorded_tests_decide_about_a_sample(tmp_path: Path) -> None:
    recorded, results = tmp_path / "tests.json", tmp_path / "results.jsonl"
    tests, module = "tests/gpu_passes/test_coalesce.py", "tkdebug.compiler.analysis.global_memory"
    run("--recorded", recorded, "record", tests)
    out = run("--recorded", recorded, "run", "--package", "analysis", "--module", module,
              "--sample", "3", "--results", results)  # fmt: skip
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert [row["mutant"]["module"] for row in rows] == [module] * 3
    killed = [row for row in rows if row["outcome"] == "killed"]
    assert killed
    assert all(row["by"].startswith(f"{tests}::") for row in killed)
    assert f"| analysis | 3 | {len(killed)} |" in out
