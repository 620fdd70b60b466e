"""Python's own work at a script's end is done before tkdebug counts, and still seen by it."""

import atexit

from cli_scripts import NOT_LOOKED_FOR, python, tkdebug


def test_exit_handlers_launch_before_the_summary(write_script):
    script = write_script("import atexit; atexit.register(launch, faulty=True)\nprint('end')\n")
    done = tkdebug("run", "--no-tui", script)
    assert (done.returncode, done.stdout) == (3, "end\n")
    assert done.stderr.endswith(f"tkdebug: 1 launch of 1 kernel, 1 fault{NOT_LOOKED_FOR}\n")


def test_exit_handlers_run_once_last_first_and_an_error_stops_none(write_script):
    body = """
import atexit
def bad():
    raise ValueError("of a handler")
atexit.register(print, "first")
atexit.register(bad)
atexit.register(print, "third")
atexit.register(print, "gone")
@atexit.register
def last():
    print("last")
"""
    done = tkdebug("run", "--no-tui", write_script(body))
    plain = python(write_script(body, "plain.py"))
    assert done.stdout == plain.stdout == "last\ngone\nthird\nfirst\n"
    assert "Exception ignored in atexit callback" in done.stderr
    assert "ValueError: of a handler" in done.stderr
    assert "script_exit.py" not in done.stderr
    assert (done.returncode, plain.returncode) == (0, 0)


def test_exit_handlers_that_were_taken_back_do_not_run(write_script):
    body = "import atexit\natexit.register(print, 'no')\natexit.unregister(print)\n"
    assert tkdebug("run", "--no-tui", write_script(body)).stdout == ""


def test_atexit_is_itself_after_a_run(write_script, run_main):
    before = atexit.register
    assert run_main("run", "--no-tui", write_script("print(1)"))[0] == 0
    assert atexit.register is before


def test_processes_that_nobody_joined_are_waited_for(write_script, tmp_path):
    body = """
import multiprocessing
if __name__ == "__main__":
    def later():
        time.sleep(1)
        launch(faulty=True)
    multiprocessing.get_context("fork").Process(target=later).start()
    print("end", flush=True)
"""
    done = tkdebug("run", "--no-tui", write_script(body))
    assert (done.returncode, done.stdout) == (3, "end\n")
    assert done.stderr.endswith(f"tkdebug: 1 launch of 1 kernel, 1 fault{NOT_LOOKED_FOR}\n")


def test_ctrl_c_that_comes_behind_an_error_is_reported(write_script, run_main):
    """Ctrl-C was pressed while the script waited for the GPU, which then failed."""
    body = """
import signal, sys

def hook(kind, error, trace):
    sys.excepthook = sys.__excepthook__
    signal.raise_signal(signal.SIGINT)

sys.excepthook = hook
raise RuntimeError("the GPU failed")
"""
    status, _, err = run_main("run", "--no-tui", write_script(body))
    assert status == 130
    assert "KeyboardInterrupt" in err
    assert "no kernels were launched" in err
