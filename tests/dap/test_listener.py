"""Visitors of a port that an editor is to attach to: strangers, web pages, and the one client."""

import json
import socket
import subprocess
import threading
from contextlib import suppress

import pytest
from client import Client, Refused
from patience import LONGEST_WAIT_S
from warm_python import start_python

from tkdebug.debugger.dap import listener
from tkdebug.debugger.dap.listener import MOST_STRANGERS, Door


class Served:
    """Notes the clients that were let in, and serves each until it has left."""

    def __init__(self):
        self.requests = []

    def __call__(self, connection, request):
        self.requests.append(request)
        connection.respond(request, {})
        for each in connection.requests():
            connection.respond(each, {})


@pytest.fixture
def door():
    served = Served()
    made = Door(0, served)
    made.served = served
    opened = threading.Thread(target=made.open)
    opened.start()
    yield made
    made.close()
    opened.join(LONGEST_WAIT_S)
    assert not opened.is_alive()


@pytest.fixture
def connect(door):
    """Connects to the door."""
    made = []

    def connected():
        one = socket.create_connection(("127.0.0.1", door.port), timeout=LONGEST_WAIT_S)
        made.append(one)
        return one

    yield connected
    for one in made:
        with suppress(OSError):  # it has been hung up on
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@pytest.fixture
def client(connect):
    """Makes clients that speak the protocol."""

    def made():
        connection = connect()
        return Client(connection.makefile("rb"), connection.makefile("wb"))

    return made


def framed(command, number=1, **arguments):
    message = {"seq": number, "type": "request", "command": command, "arguments": arguments}
    text = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(text), text)


def everything(connection):
    """Return all that is received until the other end hangs up."""
    found = b""
    try:
        while data := connection.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass  # it did not read all that was sent
    return found


def answers(connection):
    parts = everything(connection).split(b"Content-Length: ")[1:]
    return [json.loads(part.partition(b"\r\n\r\n")[2]) for part in parts]


COMMANDS = [
    ("terminate", {}),
    ("disconnect", {"terminateDebuggee": True}),
    ("breakpointLocations", {"source": {"path": "/dev/zero"}, "line": 1}),
    ("setBreakpoints", {"source": {"path": "/etc/passwd"}, "breakpoints": [{"line": 1}]}),
    ("evaluate", {"expression": "1"}),
    ("initialize", {}),
    ("attach", {}),
    ("attach", {"token": "guess"}),
    ("attach", {"token": None}),
    ("attach", {"token": "\ud800"}),
    ("launch", {"program": __file__}),
]


@pytest.mark.parametrize(("command", "arguments"), COMMANDS)
def test_a_stranger_has_nothing_done_and_is_hung_up_on(door, connect, command, arguments):
    connection = connect()
    connection.sendall(framed("initialize") + framed(command, 2, **arguments))
    first, second = answers(connection)
    assert (first["command"], first["success"]) == ("initialize", True)
    assert (second["request_seq"], second["success"]) == (2, False)
    assert "the token is wrong or missing" in second["message"]
    assert door.served.requests == []


@pytest.mark.parametrize("command", ["terminate", "disconnect", "attach", "threads"])
def test_a_stranger_has_to_begin_with_initialize(door, connect, command):
    connection = connect()
    connection.sendall(framed(command, token=door.token))
    (only,) = answers(connection)
    assert "expected initialize first" in only["message"]
    assert door.served.requests == []


def posted(body, *headers):
    """A browser's request for a web page."""
    lines = ["POST / HTTP/1.1", "Host: 127.0.0.1", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


BODY = framed("initialize") + framed("launch", 2, program="x")


@pytest.mark.parametrize(
    "data",
    [
        posted(BODY),
        posted(BODY, "X-Padding: " + "x" * 4069),
        posted(BODY, "Content-Type: text/plain"),
        b"GET http://Content-Length: 2 HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + BODY,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Content-Length: 99999999\r\n\r\n",
        b"Content-Length: 2\r\n\r\n{}",
    ],
)
def test_what_is_not_the_protocol_gets_no_byte(door, connect, capsys, data):
    connection = connect()
    connection.sendall(data)
    assert everything(connection) == b""
    assert door.served.requests == []


def test_a_flood_of_strangers_is_said_in_few_lines(door, connect, capsys):
    for _ in range(3 * MOST_STRANGERS):
        connection = connect()
        connection.sendall(b"nonsense\r\n")
        everything(connection)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert said[-1].endswith("; no more is said of others")


def test_the_client_is_served_whoever_else_is_there(door, connect, client):
    idle = [connect() for _ in range(MOST_STRANGERS + 4)]
    for number, one in enumerate(idle):
        one.sendall(b"Content-Length: 100\r\n\r\n{"[: number % 24])
    editor = client()
    editor.request("initialize")
    editor.request("attach", token=door.token)
    assert everything(idle[0]) == b""  # the oldest had to go
    assert editor.request("threads") == {}


def test_a_stranger_has_a_deadline_however_much_it_sends(door, connect, monkeypatch):
    monkeypatch.setattr(listener, "LONGEST_HANDSHAKE_S", 0.3)
    idle, slow = connect(), connect()
    slow.sendall(b"Content-Length: 900000\r\n\r\n")
    slow.settimeout(0.02)
    while True:
        try:
            slow.sendall(b" ")
            if slow.recv(1) == b"":
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    assert everything(idle) == b""


def test_a_client_has_all_the_time_once_it_is_served(door, client, connect, monkeypatch):
    editor = client()
    editor.request("initialize")
    editor.request("attach", token=door.token)
    monkeypatch.setattr(listener, "LONGEST_HANDSHAKE_S", 0.2)
    assert everything(connect()) == b""  # after its deadline
    assert editor.request("threads") == {}


def test_one_client_is_served_at_a_time(door, client, monkeypatch):
    monkeypatch.setattr(listener, "LONGEST_TURN_S", 0.1)
    first, second = client(), client()
    first.request("initialize")
    first.request("attach", token=door.token)
    second.request("initialize")
    with pytest.raises(Refused, match="another editor is attached"):
        second.request("attach", token=door.token)
    assert first.request("threads") == {}


def test_the_next_client_may_come_once_the_one_before_has_hung_up_half(
    door, connect, client, monkeypatch
):
    monkeypatch.setattr(listener, "LONGEST_TURN_S", LONGEST_WAIT_S)
    gone = connect()
    gone.sendall(framed("initialize") + framed("attach", 2, token=door.token))
    gone.shutdown(socket.SHUT_WR)
    editor = client()
    editor.request("initialize")
    editor.request("attach", token=door.token)
    assert len(door.served.requests) == 2


FORKS = """\
import os, sys, tkdebug.debugger
print(tkdebug.debugger.listen().port, flush=True)
sys.stdin.readline()
if not os.fork():
    sys.stdin.readline()
os._exit(0)
"""


def test_a_forked_child_holds_neither_the_port_nor_the_client():
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with start_python("-c", FORKS, **streams) as process:
        address = ("127.0.0.1", int(process.stdout.readline()))
        with socket.create_connection(address, timeout=LONGEST_WAIT_S) as connection:
            connection.sendall(framed("initialize"))
            assert connection.recv(1)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.wait(LONGEST_WAIT_S) == 0
            everything(connection)  # up to its end
        socket.create_server(address).close()
        process.stdin.write(b"\n")
