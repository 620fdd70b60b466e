import socket
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest
from patience import LONGEST_WAIT_S

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "debugger")]
from client import Client  # noqa: E402

from tkdebug.compat import install  # noqa: E402
from tkdebug.debugger import listen  # noqa: E402


@pytest.fixture(scope="session")
def listening():
    return listen()


@pytest.fixture
def debugged(listening):
    """Launches kernels while a client, in a thread of its own, does what a test says."""
    installed = install("interpret")
    listening.attached.clear()
    connection = socket.create_connection(("127.0.0.1", listening.port))
    client = Client(connection.makefile("rb"), connection.makefile("wb"))
    client.hang_up = lambda: connection.shutdown(socket.SHUT_RDWR)

    def debug(script, launch, *, breakpoints=None, **attach):
        client.request("initialize", adapterID="tkdebug")
        client.request("attach", token=listening.token, **attach)
        client.event("initialized")
        for path, lines in (breakpoints or {}).items():
            wanted = [line if isinstance(line, dict) else {"line": line} for line in lines]
            client.request("setBreakpoints", source={"path": str(path)}, breakpoints=wanted)
        client.request("configurationDone")
        assert listening.wait(LONGEST_WAIT_S)
        found = Future()

        def run():
            try:
                found.set_result(script(client))
            except BaseException as error:
                found.set_exception(error)
            finally:
                with suppress(OSError):  # it has hung up
                    client.send("disconnect")

        thread = threading.Thread(target=run)
        thread.start()
        try:
            launch()
        finally:
            thread.join(LONGEST_WAIT_S)
        return found.result(timeout=0)

    yield debug
    connection.close()
    installed.uninstall()
