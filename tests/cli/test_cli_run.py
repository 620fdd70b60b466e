import gc
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cli_scripts import NOT_LOOKED_FOR, tkdebug

from tkdebug.cli.runs.outcome import print_last_words
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.records import Output
from tkdebug.instrument.session import Session
from tkdebug.runtime.device import torch_package


def test_run_is_silent_on_stdout_and_counts_on_stderr(write_script, run_main):
    script = write_script("print('from the script'); launch(); launch()")
    status, out, err = run_main("run", "--no-tui", script)
    assert (status, out) == (0, "from the script\n")
    assert err.splitlines()[-1] == f"tkdebug: 2 launches of 1 kernel, no faults{NOT_LOOKED_FOR}"


def test_run_with_faults_ends_with_3_and_shows_them(write_script, run_main):
    script = write_script("launch(faulty=True); launch(faulty=True)")
    status, out, err = run_main("run", "--no-tui", script)
    assert (status, out) == (3, "")
    assert f"tkdebug: {script}:2: oob-load in scale: too far\n" in err
    assert "    from tkdebug.errors import Frame\n" in err
    assert f"2 launches of 1 kernel, 1 fault{NOT_LOOKED_FOR}\n" in err


def test_traceback_of_a_script_is_there_when_the_tui_has_gone(
    write_script, run_main, tmp_path, capsys
):
    script = write_script("launch(); print('much', file=sys.stderr)\nraise ValueError('mine')")
    path = tmp_path / "run.tkd"
    status, _, _ = run_main("run", "--no-tui", "-o", path, script)
    with Session.open(path) as session:
        print_last_words(session)
    assert status == 1
    assert capsys.readouterr().err.startswith("much\nTraceback (most recent call last):\n")
    with Recorder(path, output=False), Session.open(path) as session:
        print_last_words(session)
    assert capsys.readouterr().err == ""


def test_run_with_warnings_only_ends_with_0(write_script, run_main):
    script = write_script("launch(faulty=True, severity='warning')")
    status, _, err = run_main("run", "--no-tui", script)
    assert status == 0
    assert "oob-load (warning) in scale" in err


def test_run_that_launches_nothing_says_so(write_script, run_main):
    status, out, err = run_main("run", "--no-tui", write_script("print(1)"))
    assert (status, out) == (0, "1\n")
    assert "tkdebug: no kernels were launched, no faults\n" in err


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit(256 + 7)", 7),
        ("sys.exit('message of the script')", 1),
        ("raise ValueError('of the script')", 1),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_run_ends_with_the_script_s_own_status(write_script, run_main, tmp_path, ending, status):
    out = tmp_path / "out.json"
    script = write_script(f"launch(faulty={status != 0})\n{ending}\n")
    assert run_main("run", "--no-tui", "--report", out, script)[0] == status
    data = json.loads(out.read_text())
    assert data["exit_status"] == status
    assert len(data["launches"]) == 1


def test_run_keeps_the_session_that_is_named(write_script, run_main, tmp_path):
    session = tmp_path / "run.tkd"
    script = write_script("print('printed'); launch()")
    status, _, err = run_main("run", "--no-tui", "-o", session, script, "a", "--b")
    assert status == 0
    assert err.splitlines()[-1].endswith(f"; recorded in {session}")
    with Session.open(session) as opened:
        run = opened.run()
        assert (run.script, run.argv, run.exit_status) == (str(script), ("a", "--b"), 0)
        assert run.end_ns is not None
        assert [chunk.event.text for chunk in opened.records(Output)] == ["printed\n"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.tkd", "script.py"]


def test_run_without_a_name_leaves_nothing_behind(write_script, run_main, tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    run_main("run", "--no-tui", write_script("launch()"))
    assert list(temporary.iterdir()) == []


def test_run_gives_the_script_what_python_would(write_script, run_main, tmp_path, monkeypatch):
    (tmp_path / "neighbour.py").write_text("")
    monkeypatch.chdir(tmp_path)
    script = write_script(
        "import inspect, neighbour\n"
        "print(__name__, __file__, __spec__, __package__)\n"
        "print(sys.argv, sys.path[0])\n"
        "print(sys.modules['__main__'].launch is launch, launch.__module__)\n"
        "print(inspect.getsource(launch).splitlines()[0])\n"
    )
    before = (list(sys.argv), list(sys.path), sys.modules["__main__"])
    _, out, _ = run_main("run", "--no-tui", "script.py", "-m", "--report", "--", "x")
    assert out.splitlines() == [
        f"__main__ {script} None None",
        f"['script.py', '-m', '--report', '--', 'x'] {tmp_path}",
        "True __main__",
        'def launch(kernel="scale", faulty=False, severity="error"):',
    ]
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_run_of_a_module_is_as_python_m(run_main, tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import part\nprint(__name__, __package__, __spec__.name, sys.argv)\n"
    )
    (package / "part.py").write_text("import sys\nprint(__name__, sys.path[0])\n")
    monkeypatch.chdir(tmp_path)
    status, out, _ = run_main("run", "--no-tui", "-m", "some_package", "--tui", "-o", "x")
    argv = [str(package / "__main__.py"), "--tui", "-o", "x"]
    assert status == 0
    assert out.splitlines() == [
        f"some_package.part {tmp_path}",
        f"__main__ some_package some_package.__main__ {argv}",
    ]
    status, out, _ = run_main("run", "--no-tui", "-m", "some_package.part")
    assert (status, out) == (0, f"__main__ {tmp_path}\n")
    for name in [name for name in sys.modules if name.startswith("some_package")]:
        del sys.modules[name]


def test_run_waits_for_the_script_s_threads(write_script, run_main):
    script = write_script(
        "import threading\n"
        "gate = threading.Event()\n"
        "def late():\n    gate.wait()\n    launch()\n"
        "threading.Thread(target=late).start()\n"
        "threading.Timer(0.05, gate.set).start()\n"
    )
    assert "tkdebug: 1 launch of 1 kernel" in run_main("run", "--no-tui", script)[2]
    assert not any(thread.name == "tkdebug-session" for thread in threading.enumerate())


def test_run_ends_pools_that_the_script_leaves_open(write_script, run_main):
    script = write_script(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(2)\n"
        "pool.submit(launch).result()\n"
        "pool.submit(launch)\n"
    )
    assert "tkdebug: 2 launches of 1 kernel" in run_main("run", "--no-tui", script)[2]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: 3).result(30) == 3


def test_run_shows_progress_only_on_a_terminal(write_script, run_main):
    script = write_script(
        "HOOKS.progress(LaunchProgress(1, 'scale', 5, 10, 2_000_000_000)); launch()"
    )
    assert "programs" not in run_main("run", "--no-tui", script)[2]


def test_run_passes_mode_quick_and_patterns_on(write_script, run_main):
    script = write_script(
        "from tkdebug.knobs import KNOBS\nprint(KNOBS.mode, KNOBS.quick, KNOBS.interpret_kernels)\n"
    )
    _, out, _ = run_main(
        "run", "--no-tui", "--mode", "interpret", "--quick", "--interpret", "a*", "--interpret=b",
        script,
    )  # fmt: skip
    assert out == "interpret True ('a*', 'b')\n"


def test_run_report_is_text_for_a_txt(write_script, run_main, tmp_path):
    out = tmp_path / "out.txt"
    run_main("run", "--no-tui", "--report", out, write_script("launch()"))
    assert "scale" in out.read_text()
    assert "exit status 0" in out.read_text()


def test_run_records_children_that_the_script_spawns(write_script, run_main, tmp_path):
    session = tmp_path / "run.tkd"
    script = write_script(
        "def work():\n    launch('in_child')\n"
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join(); assert child.exitcode == 0\n"
        "    launch('in_parent')\n"
    )
    assert run_main("run", "--no-tui", "-o", session, script)[0] == 0
    with Session.open(session) as opened:
        launches = opened.launches().launches
    assert [one.kernel for one in launches] == ["in_child", "in_parent"]
    assert launches[0].process != launches[1].process == os.getpid()
    assert "TKDEBUG_SESSION" not in os.environ


def test_run_of_a_child_forked_by_hand_reports_once(write_script, tmp_path):
    from cli_scripts import tkdebug

    script = write_script(
        "import os\nlaunch()\nif os.fork() == 0:\n    launch()\n    sys.exit(4)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    result = tkdebug("run", "--no-tui", "-o", tmp_path / "run.tkd", script)
    assert (result.returncode, result.stdout) == (0, "4\n")
    assert result.stderr.count("launches of") == 1
    with Session.open(tmp_path / "run.tkd") as session:
        assert session.launch_count() == 2
        assert session.run().exit_status == 0


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", -15), ("SIGHUP", -1), ("SIGINT", 130)])
def test_run_ended_by_a_signal_still_reports(write_script, tmp_path, name, status):
    from cli_scripts import tkdebug

    script = write_script(f"import os, signal\nlaunch()\nos.kill(os.getpid(), signal.{name})\n")
    result = tkdebug("run", "--no-tui", "--report", tmp_path / "out.json", script)
    assert result.returncode == status
    assert json.loads((tmp_path / "out.json").read_text())["exit_status"] in (143, 129, 130)
    assert "tkdebug: 1 launch of 1 kernel" in result.stderr
    assert ("KeyboardInterrupt" in result.stderr) == (name == "SIGINT")
    assert (f"tkdebug: the script was ended by {name}\n" in result.stderr) == (name != "SIGINT")
    assert "tkdebug/" not in result.stderr


def test_run_killed_leaves_a_session_to_report(write_script, tmp_path):
    from cli_scripts import tkdebug

    session = tmp_path / "run.tkd"
    script = write_script(
        "import os, signal\nlaunch()\n"
        "HOOKS.enter(None, LaunchRecord(99, 'cut', (1, 1, 1), 'interpret', {}, tuple, ''))\n"
        "time.sleep(0.4)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert tkdebug("run", "--no-tui", "-o", session, script).returncode == -9
    result = tkdebug("report", session, "--format", "json")
    data = json.loads(result.stdout)
    assert data["exit_status"] is None
    assert [(one["kernel"], one["duration_ns"]) for one in data["launches"]] == [
        ("scale", 1000),
        ("cut", None),
    ]


def test_run_leaves_sigterm_to_a_script_that_handles_it(write_script, run_main):
    script = write_script(
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *a: print('handled'))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    )
    status, out, _ = run_main("run", "--no-tui", script)
    assert (status, out) == (0, "handled\n")


def test_run_of_a_terminated_worker_is_as_without_us(write_script, run_main):
    script = write_script(
        "import multiprocessing\n"
        "context = multiprocessing.get_context('fork')\n"
        "child = context.Process(target=time.sleep, args=(60,))\n"
        "child.start(); child.terminate(); child.join(); print(child.exitcode)\n"
    )
    assert run_main("run", "--no-tui", script)[1] == "-15\n"


def test_command_is_quick_to_start():
    code = (
        "import sys, time; t = time.process_time()\n"
        "from tkdebug.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(time.process_time() - t, [n for n in ('torch', 'textual', 'llvmlite', 'sqlite3')"
        " if n in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    seconds, modules = result.stderr.split(maxsplit=1)
    assert modules.strip() == "[]"
    assert float(seconds) < 0.5


def test_run_counts_faults_of_workers_that_are_killed(write_script):
    script = write_script(
        "import multiprocessing, os, signal\n"
        "def work():\n"
        "    launch(faulty=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"  # sooner than a pool's terminate
        "child = multiprocessing.get_context('fork').Process(target=work)\n"
        "child.start()\n"
        "child.join()\n"
    )
    done = tkdebug("run", "--no-tui", script)
    assert done.returncode == 3
    assert "tkdebug: 1 launch of 1 kernel, 1 fault" in done.stderr


def test_run_whose_recording_stops_does_not_pass_for_clean(write_script, tmp_path):
    resource = pytest.importorskip("resource")
    script = write_script("for _ in range(20_000):\n    launch()\n")

    def limit():  # as a full disk, for files of this process only
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    done = tkdebug("run", "--no-tui", "-o", tmp_path / "r.tkd", script, preexec_fn=limit)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "recording stopped before the script did" in done.stderr.splitlines()[-1]


def test_run_does_not_name_a_session_that_will_be_deleted(write_script, run_main, tmp_path):
    script = write_script("launch()\n")
    status, _, err = run_main("run", "--no-tui", "-o", tmp_path / "r.tkd", "--temporary", script)
    assert status == 0
    assert err.splitlines()[-1] == f"tkdebug: 1 launch of 1 kernel, no faults{NOT_LOOKED_FOR}"
    assert "r.tkd" not in err


def test_torch_is_imported_without_collections_and_left_out_of_later_ones(monkeypatch):
    seen = []
    monkeypatch.setattr(torch_package, "check_importable", lambda: seen.append(gc.isenabled()))
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("frozen"))
    torch_package.import_torch()  # which this process has imported
    assert (seen, gc.isenabled()) == ([True], True)
    monkeypatch.delitem(sys.modules, "torch")
    torch_package.import_torch()
    assert (seen, gc.isenabled()) == ([True, False, "frozen"], True)
