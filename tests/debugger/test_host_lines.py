"""The script's own lines under `tkdebug debug`: pdb, beside the kernels."""

import signal
from pathlib import Path

import pytest

TWICE = str(Path(__file__).parent / "scripts" / "twice.py")
SCRIPT = """\
import signal
import torch, triton, triton.language as tl

@triton.jit
def double(x_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    tl.store(x_ptr + tl.program_id(0), x * 2)

# none

def main(x, scale):
    double[(4,)](x)
    signal.raise_signal(signal.SIGINT)
    y = x * scale
    return y

print(main(torch.arange(4.0), 3).tolist())
"""


@pytest.fixture
def script(tmp_path):
    """A script with a kernel, a function, and Ctrl-C at the function's third line."""
    file = tmp_path / "pkg" / "lines.py"
    file.parent.mkdir()
    file.write_text(SCRIPT)
    return file


def test_tensors_are_summaries_and_pp_shows_their_elements(run, script):
    typed = "b main\nc\na\np x\np [x.sum(), 1]\nx\npp x\np nothing\nq\n"
    _, out, _ = run(script, typed=typed)
    assert "(tkdebug) x = float32[4] [0 1 2 3]\nscale = 3\n" in out
    assert "(tkdebug) float32[4] [0 1 2 3]\n(tkdebug) [6, 1]\n" in out
    assert "(tkdebug) float32[4] [0 1 2 3]\n(tkdebug) tensor([0., 1., 2., 3.])\n" in out
    assert "*** NameError: name 'nothing' is not defined" in out


def test_displayed_values_are_shown_at_each_stop_of_their_function(run, script):
    typed = "b main\nc\ndisplay x\nc\nundisplay x\nundisplay x\nn\nq\n"
    _, out, _ = run(script, typed=typed)
    assert out.count("x = float32[4] [0 1 2 3]\n") == 1
    assert "y = x * scale\nx = float32[4] [0 2 4 6]\n" in out
    assert "*** x is not displayed" in out
    assert out.count("x = float32[4] [0 2 4 6]\n") == 1


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("b 3", "no code is at this line; the nearest one with code is 2"),
        ("b 9", "no code is at this line; the nearest one with code is 11"),
        ("b 5", "no statement of a function begins at this line; the nearest one with code is 6"),
        ("b lines.py:99", "the last line is 17"),
    ],
)
def test_a_line_without_code_offers_the_nearest(run, script, command, problem):
    _, out, _ = run(script, typed=f"{command}\nq\n")
    assert problem in out


def test_help_lists_what_can_be_done_in_kernels(run, script):
    _, out, _ = run(script, typed="help\nhelp why\nhelp b\nhelp nothing\nq\n")
    assert "next, n [N] " in out
    assert "why OUT[I, J] | VARIABLE " in out
    assert "Here, at the script's lines, this is pdb" in out
    assert "\n(tkdebug) why OUT[I, J] | VARIABLE: what it was computed from" in out
    assert "b(reak): as in pdb" in out


def test_lines_of_the_script_are_broken_at_from_a_stop_in_a_kernel(run, script):
    typed = "b double\nc\nb 15, scale == 3\nb main\nb\nclear 3\nb 7\nclear 9\nc\nc\nb\nq\n"
    _, out, _ = run(script, typed=typed.replace("b double", "b double\nb 13"))
    assert "breakpoint 3 at" in out
    assert "lines.py:15, a line of the script\n" in out
    assert "breakpoint 4 at" in out
    assert "lines.py:15, a line of the script, if scale == 3: not met yet\n" in out
    assert "breakpoint 3 is gone\n" in out
    assert "*** there is no breakpoint 9" in out
    assert "breakpoint 5 at" in out


def test_a_breakpoint_of_the_script_made_in_a_kernel_is_met(run, script):
    script.write_text(SCRIPT.replace("    signal.raise", "    # signal.raise"))
    _, out, err = run(script, typed="b double\nc\nb 15\nc\np y\nq\n")
    assert "lines.py(15)main()\n-> return y\n(tkdebug) float32[4] [0 6 12 18]\n" in out
    assert "never met" not in err


def test_a_module_stops_at_its_lines_too(run, script, monkeypatch):
    monkeypatch.chdir(script.parents[1])
    (script.parent / "__init__.py").touch()
    _, out, _ = run("-m", "pkg.lines", typed="b 12\nb 6\nc\nc\ns\nq\n")
    assert "pkg/lines.py(1)<module>()\n-> import signal\n" in out
    assert "pkg/lines.py(12)main()\n-> double[(4,)](x)\n" in out
    assert "pkg/lines.py(6)double()" in out
    assert "pkg/lines.py(7)double()" in out


def test_ctrl_c_stops_at_the_script_s_next_line_and_drops_what_was_to_come(run, script):
    before = signal.getsignal(signal.SIGINT)
    status, out, _ = run(script, typed="c ;; p 11 ;; p 22\np scale\nq\n")
    assert "interrupted: it stops at the script's next line" in out
    assert "lines.py(14)main()\n-> y = x * scale\nnot run: p 11 ;; p 22\n(tkdebug) 3\n" in out
    assert status == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_a_kernel_drops_what_was_to_come(run, monkeypatch):
    from tkdebug.debugger.engine import Debugger

    ask = Debugger.ask

    def asked(self, *given):
        resume = ask(self, *given)
        self.pause()
        return resume

    monkeypatch.setattr(Debugger, "ask", asked)
    _, out, _ = run(TWICE, typed="b 14\nc\nc ;; p 11 ;; p 22\np 33\nq\n")
    assert "interrupted\n> " in out
    assert "not run: p 11 ;; p 22\n(tkdebug) 33 = 33\n" in out


def test_run_begins_the_script_again_and_keeps_breakpoints(run, script):
    script.write_text(SCRIPT.replace("    signal.raise", "    # signal.raise"))
    typed = "b 7, launch == 1\nb 15\nc\nrun\nb\nc\nc\np y[1]\nrun\nc\nq\n"
    status, out, _ = run(script, typed=typed)
    assert out.count("lines.py(1)<module>()\n-> import signal\n") == 3
    assert out.count("lines.py(7)double()\n") == 3
    assert "lines.py:7 if launch == 1: met 1 time\n" in out
    assert "lines.py(15)main()\n-> return y\n(tkdebug) 6\n" in out
    assert status == 0


def test_a_script_that_json_is_asked_for_is_not_begun_again(run, script):
    _, out, _ = run("--json", script, typed="run\nq\n")
    assert "run: only `tkdebug debug script.py` can begin its script again" in out
