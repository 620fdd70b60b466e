import re

from cli_scripts import python, tkdebug


def test_traceback_is_the_one_python_shows(write_script):
    script = write_script(
        "def inner():\n    raise ValueError('wrong')\n"
        "def outer():\n"
        "    try:\n        inner()\n"
        "    except ValueError as error:\n        raise KeyError('second') from error\n"
        "print('before')\n"
        "outer()\n"
    )
    ours, python_s = tkdebug("run", "--no-tui", script), python(script)
    assert (ours.returncode, ours.stdout) == (1, "before\n")
    assert python_s.stderr in ours.stderr


def test_traceback_of_our_error_ends_at_the_user_s_line_with_its_message(write_script, run_main):
    script = write_script("import tkdebug.knobs\ntkdebug.knobs.KNOBS.mode = 'sideways'\n")
    status, _, err = run_main("run", "--no-tui", script)
    files = re.findall(r'File "(.*?)"', err)
    assert status == 1
    assert files == [str(script)]
    assert "tkdebug.errors.UsageError: knob mode: got 'sideways'" in err


def test_traceback_of_a_compile_error_says_it_once(run_main, tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "import torch, triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def k(x):\n    tl.stor(x, 1)\n\n\n"
        'k[(1,)](torch.zeros(1, device="cuda"))\n'
    )
    status, _, err = run_main("run", "--no-tui", script)
    assert status == 1
    assert re.findall(r'File "(.*?)"', err) == [str(script)]
    assert err.count("has no `stor`; did you mean `store`") == 1
    assert "direct cause" not in err


def test_traceback_of_a_bug_of_ours_keeps_our_frames(write_script, run_main):
    script = write_script(
        "from tkdebug.cli.runs.progress import progress_text\nprogress_text(None)\n"
    )
    _, _, err = run_main("run", "--no-tui", script)
    files = re.findall(r'File "(.*?)"', err)
    assert files[0] == str(script)
    assert files[1].endswith("progress.py")


def test_traceback_goes_through_the_script_s_excepthook(write_script, run_main):
    script = write_script(
        "sys.excepthook = lambda kind, error, trace: print('hooked', error, trace.tb_lineno)\n"
        "raise ValueError('x')\n"
    )
    try:
        status, out, _ = run_main("run", "--no-tui", script)
    finally:
        import sys

        sys.excepthook = sys.__excepthook__
    line = len(script.read_text().splitlines())
    assert (status, out) == (1, f"hooked x {line}\n")


def test_traceback_of_a_closed_stdout_shows_no_frame_of_ours(write_script, run_main):
    script = write_script("sys.stdout.write(5)\n")
    _, _, err = run_main("run", "--no-tui", script)
    assert re.findall(r'File "(.*?)"', err) == [str(script)]
    assert "TypeError" in err


def test_traceback_of_our_error_cuts_library_frames_below_ours(write_script, run_main):
    script = write_script(
        "from tkdebug.knobs import scope\nwith scope(mode='sideways'):\n    pass\n"
    )
    _, _, err = run_main("run", "--no-tui", script)
    assert re.findall(r'File "(.*?)"', err) == [str(script)]
