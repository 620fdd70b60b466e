"""Completion: what bash offers by the script that we print."""

import shutil
import subprocess
import sys

import pytest

shtab = pytest.importorskip("shtab")


def offered(run_main, folder, *words):
    """What bash completes the last of `words` to, in `folder`."""
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
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
