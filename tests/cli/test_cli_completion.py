"""Completion: what shells offer by the scripts that we print."""

import shutil
import subprocess
import sys

import pytest

from tkdebug.cli.commands.completion import SHELLS

shtab = pytest.importorskip("shtab")


def offered(run_main, folder, *words):
    """Return bash's completions of the last of `words`, in `folder`."""
    status, script, err = run_main("completion", "bash")
    assert (status, err) == (0, "")
    quoted = " ".join(f"'{word}'" for word in words)
    asked = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        '_shtab_tkdebug\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    answer = subprocess.run(
        ["bash", "--norc", "-c", asked], cwd=folder, capture_output=True, text=True, check=True
    )
    return answer.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pas"], ["passes"]),
        (["run", "--check", "u"], ["undefined-value", "uninitialised-read", "unwritten-output"]),
        (["run", "--temp"], []),
        (["run", "-o", "x.tkd", "tra"], ["train.py", "train.tkd"]),
        (["run", "train.py", "tra"], ["train.py", "train.tkd"]),
        (["lines", "train.t"], ["train.tkd"]),
        (["view", "train.t"], ["train.tkd"]),
    ],
)
def test_bash_completes(run_main, tmp_path, words, expected):
    for name in ("train.py", "train.tkd"):
        (tmp_path / name).touch()
    assert sorted(offered(run_main, tmp_path, "tkdebug", *words)) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes(run_main, tmp_path):
    _, script, _ = run_main("completion", "fish")
    (tmp_path / "tkdebug.fish").write_text(script, "utf-8")
    lines = ["pas", "run --check u", "lines tkdebug.f"]
    asked = "source tkdebug.fish; " + "; ".join(f"complete -C 'tkdebug {line}'" for line in lines)
    answer = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(line.split()[0] for line in answer.stdout.splitlines()) == [
        "passes",
        "tkdebug.fish",
        "undefined-value",
        "uninitialised-read",
        "unwritten-output",
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(run_main, shell):
    status, script, _ = run_main("completion", shell)
    assert status == 0
    assert "tkdebug" in script


def test_completion_without_its_package_says_so(run_main, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.setattr("tkdebug.cli.commands.completion.find_spec", lambda name: None)
    status, out, err = run_main("completion", "bash")
    assert (status, out) == (2, "")
    assert err == "tkdebug: completion: needs the package shtab; pip install shtab\n"
