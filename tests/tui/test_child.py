import contextlib
import os
import signal
import threading
import time

import pytest
from patience import LONGEST_WAIT_S

pytest.importorskip("termios", reason="ptys are POSIX")

from tkdebug.errors import UsageError
from tkdebug.tui.script.child import Child


def wait_for(condition, what: str):
    deadline_s = time.monotonic() + LONGEST_WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        threading.Event().wait(0.02)


class Pumped:
    """A child whose output is gathered in a thread."""

    def __init__(self, argv):
        self.child = Child(argv, rows=30, columns=100)
        self.text = ""
        self.pauses = 0
        self._thread = threading.Thread(target=self.child.pump, args=(self._take, self._pause))
        self._thread.start()

    def _take(self, text):
        self.text += text

    def _pause(self):
        self.pauses += 1

    def expect(self, text):
        wait_for(lambda: text in self.text, f"{text!r} in {self.text!r}")

    def join(self):
        self._thread.join(LONGEST_WAIT_S)
        assert not self._thread.is_alive()

    def close(self):
        self.child.stop_pump()
        self.join()
        if self.child.status is None:
            self.child.stop()
        self.child.close()


@pytest.fixture
def pumped(script):
    made = []

    def make(text):
        made.append(Pumped(script(text)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_child_prints_reads_and_ends(pumped):
    run = pumped("name = input('name? ')\nprint('hello', name)\nraise SystemExit(3)\n")
    run.expect("name? ")
    data = "Zoë\n".encode()
    assert run.child.write(data) == len(data)
    run.expect("hello Zoë")
    run.join()
    assert run.child.status == 3
    assert run.pauses >= 1


def test_child_has_a_terminal_of_its_own_of_the_given_size(pumped):
    run = pumped(
        "import os, sys\n"
        "assert sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()\n"
        "assert os.getsid(0) == os.getpid(); open('/dev/tty').close()\n"
        "print(os.get_terminal_size())\n"
    )
    run.expect("columns=100, lines=30")


def test_child_gets_ctrl_c_as_sigint(pumped):
    run = pumped(
        "import time\n"
        "try:\n    print('ready', flush=True); time.sleep(1000)\n"
        "except KeyboardInterrupt:\n    print('interrupted'); raise SystemExit(7)\n"
    )
    run.expect("ready")
    run.child.interrupt()
    run.expect("interrupted")
    run.join()
    assert run.child.status == 7


def test_child_gets_ctrl_d_as_end_of_file(pumped):
    run = pumped("import sys\nprint('ready', flush=True)\nprint(len(sys.stdin.read()), 'read')\n")
    run.expect("ready")
    run.child.end_input()
    run.expect("0 read")


def test_child_hides_what_is_typed_for_a_password(pumped):
    run = pumped("import getpass\ngetpass.getpass('word: ')\nprint('thanks')\n")
    run.expect("word: ")
    wait_for(lambda: not run.child.echoes(), "no echo")
    run.child.write(b"secret\n")
    run.expect("thanks")
    assert "secret" not in run.text


def test_child_killed_tells_the_signal(pumped):
    run = pumped("import time\nprint('ready', flush=True)\ntime.sleep(1000)\n")
    run.expect("ready")
    os.kill(run.child.pid, signal.SIGKILL)
    run.join()
    assert run.child.status == -signal.SIGKILL
    assert "ready" in run.text


def test_child_stop_lets_it_clean_up_first(pumped):
    run = pumped(
        "import atexit, time\natexit.register(lambda: print('cleaned up'))\n"
        "print('ready', flush=True)\ntime.sleep(1000)\n"
    )
    run.expect("ready")
    assert run.child.stop() == -signal.SIGINT
    run.join()
    assert "cleaned up" in run.text


def test_child_that_ignores_signals_is_stopped(pumped, monkeypatch):
    steps = ((signal.SIGINT, 0.1), (signal.SIGTERM, 0.1), (signal.SIGKILL, 5.0))
    monkeypatch.setattr("tkdebug.tui.script.child.STOP_STEPS", steps)
    run = pumped(
        "import signal, time\n"
        "for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
        "print('ready', flush=True)\ntime.sleep(1000)\n"
    )
    run.expect("ready")
    assert run.child.stop() == -signal.SIGKILL


def test_child_that_does_not_read_never_blocks_the_writer(pumped):
    run = pumped("import time\nprint('ready', flush=True)\ntime.sleep(1000)\n")
    run.expect("ready")
    line = b"x" * 200 + b"\n"
    written = [run.child.write(line) for _ in range(200)]
    assert written[0] == len(line)
    # Full or not, Ctrl-C still gets through.
    run.child.interrupt()
    run.join()
    assert run.child.status is not None


def test_child_with_grandchild_on_the_pty_still_ends(pumped):
    run = pumped(
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'],"
        " start_new_session=True)\n"
        "print('left', p.pid, flush=True)\n"
    )
    try:
        run.join()
        assert run.child.status == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(run.text.split()[1]), signal.SIGKILL)


def test_child_let_run_on_outlives_its_terminal(pumped, tmp_path):
    done = tmp_path / "done.txt"
    run = pumped(
        "import signal, sys, pathlib\n"
        "hangups = []\n"
        "signal.signal(signal.SIGHUP, lambda *a: hangups.append(1))\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
        "print('ready', flush=True)\n"
        "signal.sigwait({signal.SIGUSR1})\n"
        "for i in range(20_000): print('line', i)\n"  # far more than a pty holds
        "rest = sys.stdin.read()\n"
        "sys.stderr.write('last words\\n')\n"
        f"path = pathlib.Path({str(done)!r})\n"
        "path.with_suffix('.new').write_text(f'{len(hangups)} {rest!r}')\n"
        "path.with_suffix('.new').rename(path)\n"
    )
    run.expect("ready")
    run.child.stop_pump()
    run.join()
    log = tmp_path / "run.tkd.log"
    run.child.detach(log)
    os.kill(run.child.pid, signal.SIGUSR1)
    wait_for(done.exists, "the script's last act")
    assert done.read_text() == "0 ''"
    wait_for(lambda: "last words" in log.read_text(), "the log")
    assert "line 19999" in log.read_text()


def test_child_that_cannot_start_is_a_usage_error():
    with pytest.raises(UsageError, match="no-such-program: cannot be started"):
        Child(["/no-such-program"], rows=24, columns=80)


def test_child_that_has_ended_can_be_interrupted_without_harm(pumped):
    run = pumped("pass")
    run.join()
    run.child.interrupt()
    assert run.child.status == 0


def test_child_closed_takes_no_input(script):
    child = Child([*script("pass")], rows=24, columns=80)
    child.stop()
    child.close()
    child.close()
    assert child.write(b"x") == 0
    assert child.echoes()
