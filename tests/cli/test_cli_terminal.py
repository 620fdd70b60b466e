"""Output on a terminal: no line of a table wraps, and colours where they help."""

import pytest

NAME = "kernel_whose_name_is_so_long_that_its_row_would_not_fit_into_eighty_columns"
SCRIPT = f"""\
import torch, triton
import triton.language as tl

@triton.jit
def {NAME}(x_pointer, y_pointer, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(x_pointer + o, tl.load(y_pointer + o))  # {"a long remark " * 5}

x = torch.zeros(64, device="cuda")
{NAME}[(1,)](x, x, BLOCK=64)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    pytest.importorskip("cuda.bindings.nvjitlink")
    from tkdebug.cli import main

    folder = tmp_path_factory.mktemp("terminal")
    script, session = folder / "script.py", folder / "run.tkd"
    script.write_text(SCRIPT)
    words = ["--no-tui", "--mode", "interpret", "--target", "sm_80", "-o", session, script]
    assert main(["run", *map(str, words)]) == 0
    return session


def be_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("report",), ("launches  ", NAME[:30])),
        (("lines",), ("(x_pointer: ", "SASS  regs", "tl.store(", "target    SASS", "100.0 %\n")),
        (("passes",), (NAME[:30], "layouts  moved", "  canonicalize ")),
        (("compare", "itself"), ("change", NAME[:12])),
    ],
)
def test_no_line_of_a_table_wraps(recorded, run_main, monkeypatch, words, parts):
    be_terminal(monkeypatch)
    words = [recorded if word == "itself" else word for word in words]
    status, out, _ = run_main(*words, recorded)
    assert status == 0
    for part in parts:
        (line, *_) = [line for line in out.splitlines(keepends=True) if part in line]
        assert len(line) <= 81


def test_signature_is_whole_where_it_is_piped(recorded, run_main):
    out = run_main("lines", recorded)[1]
    assert "(x_pointer: *fp32, y_pointer: *fp32, BLOCK: constexpr = 64) num_warps=4" in out
    assert "a long remark a long remark a long remark" in out


def test_doctor_and_report_are_coloured_on_a_terminal(
    write_script, run_main, tmp_path, monkeypatch
):
    session = tmp_path / "run.tkd"
    run_main("run", "--no-tui", "-o", session, write_script("launch(faulty=True)"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[32mok\x1b[0m" in run_main("doctor")[1]
    assert "\x1b[1;31moob-load\x1b[0m in scale" in run_main("report", session)[1]
    assert "\x1b" not in run_main("report", session, "--format", "junit")[1]
