"""`tkdebug dap` runs a script for a client on its stdin and stdout."""

import os
import re
import signal
import socket
import subprocess
import threading

import pytest
from client import Client, Refused
from patience import LONGEST_WAIT_S
from warm_python import start_python

SCRIPT = """\
import os, sys, time
import torch, triton
import triton.language as tl

def stubborn():
    while True:
        try:
            os.write(2, b"begun")
            time.sleep(1000)
        except BaseException:
            pass

@triton.jit
def doubled(x, out):
    value = tl.load(x + tl.program_id(0))
    tl.store(out + tl.program_id(0), value * 2)

x = torch.arange(3.0)
out = torch.empty(3)
doubled[(3,)](x, out)
print("out", out.tolist())
print("é", file=sys.stderr)
sys.exit(5)
"""


@pytest.fixture
def adapter():
    pipe = subprocess.PIPE
    process = start_python("-m", "tkdebug", "dap", stdin=pipe, stdout=pipe)
    yield process, Client(process.stdout, process.stdin)
    process.kill()
    process.wait()


def test_a_script_runs_stops_and_ends(adapter, tmp_path):
    process, client = adapter
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with pytest.raises(Refused, match="expected initialize first"):
        client.request("threads")
    client.request("initialize")
    with pytest.raises(Refused, match="no such file"):
        client.request("launch", program=str(tmp_path / "none.py"))
    capabilities, answers = client.begin({script: [16]}, program=str(script), cwd=str(tmp_path))
    assert capabilities["supportsStepBack"]
    assert answers[script][0]["verified"]
    stop = client.event("stopped")
    frame = client.stack(stop["threadId"])[0]
    assert frame["source"]["path"] == str(script)
    assert client.request("evaluate", expression="value", frameId=frame["id"])["result"] == "0"
    client.request("continue", threadId=stop["threadId"])
    assert client.event("exited") == {"exitCode": 5}
    client.event("terminated")
    client.request("disconnect")
    assert client.output("stdout") == "out [0.0, 2.0, 4.0]\n"
    assert "é\n" in client.output("stderr")
    assert process.wait(LONGEST_WAIT_S) == 5


def test_a_script_that_is_ended_before_it_runs_is_said_to_have_ended(adapter):
    process, client = adapter
    client.request("initialize")
    client.request("terminate")
    client.event("terminated")
    client.request("disconnect")
    assert process.wait(LONGEST_WAIT_S) == 0


def stopped_in_the_kernel(client, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    client.begin({script: [16]}, program=str(script))
    client.event("stopped")


def begun(client, expression):
    """Have an expression evaluated that says on stderr that it has begun; the request's number."""
    number = client.send("evaluate", expression=expression)
    while "begun" not in client.output("stderr"):
        client.event("output")
    return number


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').write(2, b'begun') and [0 for _ in iter(int, 1) if 0]",
        "__import__('os').write(2, b'begun') and __import__('time').sleep(1000)",
    ],
)
def test_a_client_that_is_gone_ends_its_script_and_what_it_evaluates(adapter, tmp_path, expression):
    process, client = adapter
    stopped_in_the_kernel(client, tmp_path)
    begun(client, expression)
    process.stdin.close()
    assert process.wait(LONGEST_WAIT_S) == 0
    assert "out" not in client.output("stdout")


def test_an_expression_that_takes_no_interrupt_ends_with_the_process(adapter, tmp_path):
    process, client = adapter
    stopped_in_the_kernel(client, tmp_path)
    number = begun(client, "__import__('__main__').stubborn()")
    client.request("pause")
    with pytest.raises(Refused, match="interrupted"):
        client.answer(number)
    with pytest.raises(Refused, match="an expression that was interrupted runs still"):
        client.request("threads")
    client.request("disconnect")
    assert process.wait(LONGEST_WAIT_S) == 128 + signal.SIGTERM


def test_an_expression_that_lets_no_thread_run_ends_once_the_client_is_gone(adapter, tmp_path):
    process, client = adapter
    stopped_in_the_kernel(client, tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # More than fits: it is written, and waits, with Python's lock held.
    opened, text = f"__import__('os').open({str(fifo)!r}, 1)", "b'x' * (1 << 20)"
    client.send(
        "evaluate", expression=f"__import__('ctypes').PyDLL(None).write({opened}, {text}, 1 << 20)"
    )
    with fifo.open("rb") as reader:
        reader.read(1)
        process.stdin.close()
        assert process.wait(LONGEST_WAIT_S) == -signal.SIGKILL


def test_a_client_that_is_gone_ends_a_script_that_runs(adapter, tmp_path):
    process, client = adapter
    script = tmp_path / "script.py"
    script.write_text("import time\nprint('runs', flush=True)\ntime.sleep(1000)\n")
    client.begin(program=str(script))
    client.event("output")
    process.stdin.close()
    assert process.wait(LONGEST_WAIT_S) == 128 + signal.SIGTERM


@pytest.fixture
def at_port():
    """An adapter at a port of its own, the port, and the token."""
    process = start_python("-m", "tkdebug", "dap", "--port", "0", stderr=subprocess.PIPE)
    said = process.stderr.readline().decode()
    found = re.fullmatch(
        r"tkdebug: an editor may connect to 127\.0\.0\.1:(\d+) with token (\w{32})\n", said
    )
    assert found, said
    # What it says later is not read.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    yield process, int(found[1]), found[2]
    process.kill()
    process.wait()
    process.stderr.close()


def connected(port):
    connection = socket.create_connection(("127.0.0.1", port))
    return connection, Client(connection.makefile("rb"), connection.makefile("wb"))


def test_only_who_has_the_token_runs_a_script_at_the_port(at_port, tmp_path):
    process, port, token = at_port
    ran = tmp_path / "ran"
    theirs, mine = tmp_path / "theirs.py", tmp_path / "mine.py"
    theirs.write_text(f"open({str(ran)!r}, 'w')\n")
    mine.write_text("print('mine')\n")
    idle = socket.create_connection(("127.0.0.1", port))
    stranger, client = connected(port)
    client.request("initialize")
    with pytest.raises(Refused, match="the token is wrong or missing"):
        client.request("launch", program=str(theirs), token=token[::-1])
    own, client = connected(port)
    client.request("initialize")
    client.request("launch", program=str(mine), token=token)
    client.event("initialized")
    client.request("configurationDone")
    assert client.event("exited") == {"exitCode": 0}
    assert client.output("stdout") == "mine\n"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
    client.request("disconnect")
    assert process.wait(LONGEST_WAIT_S) == 0
    assert not ran.exists()
    for connection in (idle, stranger, own):
        connection.close()


def test_a_script_that_its_editor_leaves_runs_on_unwatched(adapter, tmp_path):
    process, client = adapter
    go_on = tmp_path / "go_on"
    os.mkfifo(go_on)
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "reading, writing = os.pipe()\n"
        "if not os.fork():\n"
        "    os.close(writing)\n"
        "    os.read(reading, 1)\n"  # holds all else that is open, as long as its parent lives
        "    os._exit(0)\n"
        "print('runs', flush=True)\n"
        f"sys.exit(open({str(go_on)!r}).read() == 'on')\n"
    )
    client.begin(program=str(script))
    client.event("output")
    client.request("disconnect", terminateDebuggee=False)
    process.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(7)  # longer than the watchdog waits
    go_on.write_text("on")
    assert process.wait(LONGEST_WAIT_S) == 1
