"""tkdebug in a Python that lacks what Windows lacks: imports, an interpreted example, the TUI."""

from __future__ import annotations

from pathlib import Path

from warm_python import ENVIRONMENT, run_module

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ADD = """
import torch, triton, triton.language as tl

@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + 1, i < n)

x = torch.arange(100.0, device="cuda")
out = torch.empty_like(x)
add[(2,)](x, out, 100, BLOCK=64)
print(bool((out == x + 1).all()))
"""


def python(*arguments: object):
    # In a process that has not imported tkdebug with what POSIX has.
    options = {"cwd": str(HERE), "env": ENVIRONMENT, "capture_output": True}
    return run_module("without_posix", *arguments, **options)


def test_every_module_of_interpreter_and_tui_imports() -> None:
    done = python("modules")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_script_is_interpreted_and_its_session_opened(tmp_path: Path) -> None:
    script, session = tmp_path / "add.py", tmp_path / "run.tkd"
    script.write_text(ADD)
    done = python("run", "--no-tui", "-o", session, script)
    assert (done.returncode, done.stdout) == (3, "True\n"), done.stderr
    assert "add.py:7: " in done.stderr
    screen = python("screen", session)
    assert screen.returncode == 0, screen.stderr
    assert "add.py" in screen.stdout
    assert "ended, faults" in screen.stdout
