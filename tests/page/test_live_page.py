"""The page that is served: who gets it, and what it says of a session that grows or goes."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import sqlite3
import struct
import threading

import pytest
from hostile_session import record
from launching import fault, launch
from test_page import Page

from tkdebug.cli import main
from tkdebug.errors import UsageError
from tkdebug.instrument import live_page
from tkdebug.instrument.live_page import LivePage, PageServer
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.hook_chain import HOOKS


@contextlib.contextmanager
def serving(path):
    with PageServer(LivePage(path), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with serving(record(folder / "run.tkd", folder / "k.py")) as server:
        yield server


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers


def asked(server, what):
    return json.loads(ask(server, f"/{server.token}/{what}")[1])


def raw(server, request):
    """Send bytes and return what comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


def test_the_page_is_served_with_a_policy_that_lets_it_ask_its_server_alone(served):
    status, text, headers = ask(served, f"/{served.token}/")
    page = Page(text)
    assert status == 200
    assert page.unpacked("model")["run"]["launches"] == 3
    assert "connect-src 'self'" in page.policy
    # A second policy, in the header, is the same and refuses frames.
    assert headers["Content-Security-Policy"] == f"{page.policy}; frame-ancestors 'none'"
    assert headers["Cache-Control"] == "no-store"
    assert not [a for _, attrs in page.tags for a in ("src", "href") if attrs.get(a, "#")[0] != "#"]
    # Without its slash, and with what the page itself reads.
    assert ask(served, f"/{served.token}?view=faults")[:2] == (200, text)


def test_head_has_the_headers_alone(served):
    status, text, headers = ask(served, f"/{served.token}/", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 10_000


@pytest.mark.parametrize("path", ["/", "/state", "/data", "//", "*", "/é/", "/" + "0" * 32 + "/"])
def test_without_its_token_nothing_is_said(served, path):
    answer = raw(served, f"GET {path} HTTP/1.1\r\nHost: localhost:{served.port}\r\n\r\n".encode())
    assert answer.startswith("HTTP/1.0 403")
    assert "add_kernel" not in answer


@pytest.mark.parametrize("host", ["evil.example:{port}", "localhost", "127.0.0.1:1", ""])
def test_another_host_is_refused_even_with_the_token(served, host):
    status, text, _ = ask(served, f"/{served.token}/", Host=host.format(port=served.port))
    assert (status, "add_kernel" in text) == (403, False)


def test_two_hosts_are_refused(served):
    host = f"Host: 127.0.0.1:{served.port}\r\n"
    answer = raw(served, f"GET /{served.token}/ HTTP/1.1\r\n{host}{host}\r\n".encode())
    assert answer.startswith("HTTP/1.0 403")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
def test_nothing_but_reading_is_answered(served, method):
    status, _, headers = ask(served, f"/{served.token}/", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "..%2f..%2fetc/passwd", "/etc/passwd", "run.tkd", "state/.."]
)
def test_no_file_can_be_named(served, path):
    assert ask(served, f"/{served.token}/{path}")[0] == 404


def test_long_requests_are_refused_when_they_are_long_enough(served):
    first = f"GET /{served.token}/ HTTP/1.1\r\nX: ".encode()
    answer = raw(served, first + b"x" * (live_page.MOST_REQUEST_BYTES - len(first)))
    assert answer.startswith("HTTP/1.0 431")
    assert raw(served, b"\x00\xff\r\n\r\n").startswith("HTTP/1.0 4")


def test_slow_clients_are_hung_up_on_and_keep_nobody_waiting(served, monkeypatch):
    monkeypatch.setattr(live_page, "LONGEST_REQUEST_S", 0.2)
    slow = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(3)]
    for client in slow:
        client.sendall(b"GET / HT")
    assert ask(served, f"/{served.token}/state")[0] == 200
    for client in slow:
        client.settimeout(20)
        assert client.recv(1) == b""
        client.close()


def test_connections_beyond_the_most_are_closed_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(live_page, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(live_page, "LONGEST_REQUEST_S", 20)
    with serving(tmp_path / "none.tkd") as server, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        for _ in range(2):
            stack.enter_context(socket.create_connection(address))
        last = stack.enter_context(socket.create_connection(address, timeout=10))
        assert last.recv(1) == b""


def test_clients_that_vanish_leave_no_word(served, capsys):
    for _ in range(3):
        client = socket.create_connection(("127.0.0.1", served.port))
        client.sendall(
            f"GET /{served.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode()
        )
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    # Once all have been given up, as many as ever are let in.
    room = served._room
    assert all(room.acquire(timeout=20) for _ in range(live_page.MOST_CONNECTIONS))
    for _ in range(live_page.MOST_CONNECTIONS):
        room.release()
    assert ask(served, f"/{served.token}/state")[0] == 200
    assert capsys.readouterr() == ("", "")


def test_the_page_follows_a_run_and_says_when_it_has_ended(tmp_path):
    path = tmp_path / "run.tkd"
    with contextlib.ExitStack() as stack:
        recorder = stack.enter_context(Recorder(path, script="k.py", output=False))
        run = stack.pop_all()
        server = stack.enter_context(serving(path))
        first = asked(server, "state")
        assert first["state"] == "running"
        assert "running: no findings so far" in ask(server, f"/{server.token}/")[1]
        one = launch()
        HOOKS.fault(fault(launch_id=one.id))
        recorder.flush()
        second = asked(server, "data")
        assert second["version"] != first["version"]
        text = Page(f"<script id=model>{second['model']}</script>").unpacked("model")
        assert text["verdict"]["text"] == "running: 1 fault so far"
        # What moves within the session is no news.
        with contextlib.closing(sqlite3.connect(path)) as mover:
            mover.execute("PRAGMA wal_checkpoint(PASSIVE)")
        assert asked(server, "state")["version"] == second["version"]
        run.close()
        third = asked(server, "state")
        assert third["state"] == "ended"
        assert asked(server, "state") == third


def test_what_became_of_a_session_is_a_sentence(tmp_path):
    path = record(tmp_path / "run.tkd", tmp_path / "k.py")
    with serving(path) as server:
        kept = path.read_bytes()
        path.unlink()
        for content, sentence in (
            (None, "no such session"),
            (kept[:5000], "truncated session"),
            (b"", "is empty"),
            (kept[:60] + b"\0\0\0\x63" + kept[64:], "open it with a newer tkdebug"),
        ):
            if content is not None:
                path.write_bytes(content)
            assert sentence in asked(server, "state")["problem"]
            status, text, _ = ask(server, f"/{server.token}/")
            assert (status, sentence in text) == (503, True)
        path.write_bytes(kept)
        assert ask(server, f"/{server.token}/")[0] == 200


def test_a_damaged_session_is_a_sentence(tmp_path):
    path = record(tmp_path / "run.tkd", tmp_path / "k.py")
    with contextlib.closing(sqlite3.connect(path)) as changes, changes:
        changes.execute("UPDATE launches SET grid = 'no'")
    with serving(path) as server:
        assert "damaged session" in asked(server, "data")["problem"]


def test_a_port_that_is_taken_or_is_none_is_one_line(served, capsys):
    for port in (served.port, 70_000):
        with pytest.raises(UsageError, match=f"port {port}: cannot be listened at"):
            PageServer(served.page, port)
    with pytest.raises(SystemExit):
        main(["view", "--port", "0", "run.tkd"])
    assert "--port: is of --web" in capsys.readouterr().err


def test_ctrl_c_ends_it_well(served, capsys, monkeypatch):
    def serve_forever(server):
        assert f"run.tkd is at {server.address} until" in capsys.readouterr().err
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", serve_forever)
    assert main(["view", "--web", str(served.page.path)]) == 0
    # The latest of the folder is served if none is named.
    monkeypatch.chdir(served.page.path.parent)
    assert main(["view", "--web"]) == 0
    assert main(["view", "--web", "none.tkd"]) == 2
    assert "no such session" in capsys.readouterr().err
    assert main(["view", "--web", "."]) == 2
    assert "is a folder" in capsys.readouterr().err
    monkeypatch.chdir("/")
    assert main(["view"]) == 2
    assert "there is no session (*.tkd) in the current folder" in capsys.readouterr().err


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = os.environ.get("TKDEBUG_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


def record_unended(path, launches):
    """Record a run of which nobody knows whether it goes on: the page looks each second."""
    record(path, path.with_name("k.py"), launches=launches)
    with contextlib.closing(sqlite3.connect(path)) as changes, changes:
        changes.execute("UPDATE run SET end_ns = NULL")


def test_the_page_in_a_browser_grows_and_keeps_the_readers_place(browser, tmp_path):
    path = tmp_path / "run.tkd"
    complaints = []
    record_unended(path, 3)
    with serving(path) as server:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(server.address)
        page.wait_for_selector("body[data-ready]")
        page.keyboard.press("k")
        place = page.url.partition("#")[2]
        page.focus("[data-view=launches]")
        record_unended(path, 9)
        page.locator("#sum", has_text="9 launches").wait_for()
        assert page.url.partition("#")[2] == place
        assert page.locator("#src .r[aria-selected=true] .no").inner_text().endswith("2")
        assert page.evaluate("document.activeElement.dataset.view") == "launches"
        path.unlink()
        page.locator("#trouble", has_text="no such session").wait_for()
        assert page.locator("#src .r").count() == 3
        assert complaints == []
        page.close()
