"""Terminal escapes, bidi overrides and the like in what commands read reach no terminal."""

import json
import shutil
import sqlite3
import unicodedata
from pathlib import Path

import pytest
from cli_scripts import ENVIRONMENT, tkdebug
from native_support import needs_codegen, needs_nvdisasm

from tkdebug.cli.options import ANSWER_FORMATS, REPORT_FORMATS
from tkdebug.instrument.renderers.formats import PASSES

CUBIN = Path(__file__).parents[1] / "golden" / "cubins" / "upstream_3_6_sm80.cubin"
EVIL = "\x1b]0;t\x07\x1b[2J\x9b3A\u202e\u2066\u200b\u2028\r"
SCRIPT = """\
import sys
import torch
import triton
import triton.language as tl
import triton.profiler as proton


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs))


x = torch.ones(100, device="cuda")
out = torch.zeros(128, device="cuda")
with proton.scope("outer"):
    copy[(1,)](x, out, BLOCK=128)
"""
# What a session says in words of its own; JSON of names and places is poisoned inside.
PLAIN = {
    "run": ("script", "host"),
    "launches": ("kernel", "error"),
    "totals": ("kernel",),
    "kernels": ("name", "file", "source", "signature", "error"),
    "blobs": ("text",),
    "passes": ("name", "error"),
    "faults": ("kernel", "message", "hint", "tensor"),
    "scopes": ("name",),
    "sources": ("content",),
    "output": ("text",),
}
ENCODED = {
    "run": ("argv", "versions"),
    "faults": ("frames",),
    "launches": ("scopes", "arguments"),
    "artifacts": ("op_lines",),
}


def poisoned(value):
    match value:
        case str():
            return value + EVIL
        case list():
            return [poisoned(item) for item in value]
        case dict():
            return {name: poisoned(item) for name, item in value.items()}
        case _:
            return value


def poison(path):
    connection = sqlite3.connect(path)
    connection.create_function("poisoned", 1, lambda text: json.dumps(poisoned(json.loads(text))))
    for table, columns in PLAIN.items():
        for column in columns:
            # A blob that is JSON has to stay it.
            connection.execute(
                f"UPDATE {table} SET {column} = coalesce({column}, '') || ? "
                f"WHERE {column} IS NULL OR substr({column}, 1, 1) NOT IN ('[', '{{')",
                (EVIL,),
            )
    for table, columns in ENCODED.items():
        for column in columns:
            connection.execute(
                f"UPDATE {table} SET {column} = poisoned({column}) WHERE {column} IS NOT NULL"
            )
    connection.commit()
    connection.close()


def acting(text):
    return {
        f"{ord(character):#x}"
        for character in text
        if unicodedata.category(character) in {"Cc", "Cs", "Cf", "Zl", "Zp"}
        and character not in "\n\t"
    }


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """A recorded run with a fault, and the same with every text of it poisoned."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "copy.py").write_text(SCRIPT)
    good, bad = folder / "good.tkd", folder / "bad.tkd"
    done = tkdebug("run", "--no-tui", "--target", "sm_90a", "-o", good, folder / "copy.py")
    assert done.returncode == 3, done.stderr
    shutil.copy(good, bad)
    poison(bad)
    return good, bad


COMMANDS = [
    *(("report", "--format", name) for name in REPORT_FORMATS),
    *(("compare", "--format", name) for name in ANSWER_FORMATS),
    *(("passes", "--diff", "--format", name) for name in [one.name for one in PASSES]),
    ("lines",),
    ("lines", "--format", "json"),
    ("lines", "--sass", "0"),
]


@needs_codegen
@needs_nvdisasm
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_session_acts_on_no_terminal(sessions, run_main, tmp_path, command):
    good, bad = sessions
    name, *options = command
    files = (good, bad) if name == "compare" else (bad,)
    status, out, err = run_main(name, *files, *options)
    assert status in (0, 3), err
    assert acting(out + err) == set()
    # What was looked at is there: written out as an escape of Python's or of JSON's.
    assert "202e" in out
    if name != "compare":  # which has no -o
        run_main(name, *files, *options, "-o", tmp_path / "answer")
        assert (tmp_path / "answer").read_text() == out


@needs_codegen
def test_questions_that_a_session_cannot_answer_act_on_no_terminal(sessions, run_main):
    for command in (
        ("passes", "--kernel", f"none{EVIL}"),
        ("passes", "--pass", f"none{EVIL}"),
        ("passes", "--line", f"{EVIL}:3"),
        ("lines", "--kernel", f"none{EVIL}"),
        ("lines", "--line", f"{EVIL}:3"),
    ):
        status, out, err = run_main(command[0], sessions[1], *command[1:])
        assert (status, out) == (2, "")
        assert acting(err) == set()
        assert r"\u202e" in err


@pytest.mark.parametrize(
    "command",
    [("run",), ("view",), ("report",), ("crash",), ("lines",), ("passes",), (), ("run", "--mode")],
)
def test_what_was_typed_acts_on_no_terminal(run_main, tmp_path, command):
    typed = f"{tmp_path}/no\n{EVIL}"
    for words in ((*command, typed), (*command, f"{typed}.tkd")):
        status, out, err = run_main(*words)
        assert (status, out) == (2, "")
        assert acting(err) == set()
        assert r"\u202e" in err


@needs_nvdisasm
def test_cubin_acts_on_no_terminal(run_main, tmp_path):
    data = CUBIN.read_bytes()
    data = data.replace(b".py\0", b"\x1b[m\0")
    assert data != CUBIN.read_bytes()
    path = tmp_path / "evil.cubin"
    path.write_bytes(data)
    status, out, err = run_main("lines", path)
    assert status == 0, err
    assert acting(out + err) == set()
    assert r"\x1b[" in out


def test_doctor_shows_a_variable_without_acting_on_it():
    done = tkdebug("doctor", env={**ENVIRONMENT, "TKDEBUG_CACHE_DIR": f"/tmp/{EVIL}"})
    assert acting(done.stdout + done.stderr) == set()
    assert r"\u202e" in done.stdout


@needs_codegen
def test_stdout_that_is_not_utf_8_gets_what_it_can_encode(sessions):
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    done = tkdebug("passes", sessions[0], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert r"\xb5s" in done.stdout


def test_summary_of_a_run_in_a_hostile_folder(write_script, tmp_path):
    folder = tmp_path / f"f{EVIL}"
    folder.mkdir()
    script = write_script(f"launch({EVIL!r}, faulty=True)\n", name=f"{folder.name}/s.py")
    done = tkdebug("run", "--no-tui", "-o", folder / "run.tkd", script)
    assert done.returncode == 3, done.stderr
    assert acting(done.stderr) == set()
    assert r"\u202e" in done.stderr


ASSERTING = """\
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def by_call(x):
    tl.device_assert(tl.load(x) > 3, "low\\ntkdebug: no faults")


@triton.jit
def by_statement(x):
    assert tl.load(x) > 3, "low\\ntkdebug: no faults"


@triton.jit
def when_compiled(x):
    tl.static_assert(False, "low\\ntkdebug: no faults")


@triton.jit
def raised(x):
    raise ValueError("low\\ntkdebug: no faults")


globals()[sys.argv[1]][(1,)](torch.zeros(1))
"""


@pytest.mark.parametrize("kernel", ["by_call", "by_statement", "when_compiled", "raised"])
def test_newline_in_an_assertion_begins_no_line(kernel, tmp_path):
    script, session = tmp_path / "script.py", tmp_path / "run.tkd"
    script.write_text(ASSERTING)
    done = tkdebug("run", "--no-tui", "-o", session, script, kernel)
    report = tkdebug("report", session)
    for text in (done.stderr, report.stdout):
        assert r"low\ntkdebug: no faults" in text
        assert "\ntkdebug: no faults" not in text
