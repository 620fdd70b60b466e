"""The extension of VS Code: what it offers is what the adapter takes, and its own tests pass."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tkdebug.cli.commands.dap import _Launch
from tkdebug.debugger.dap.adapter import Adapter
from tkdebug.debugger.dap.listener import _Attached
from tkdebug.debugger.dap.wire import Connection, Request

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "editors" / "vscode"
PACKAGE = json.loads((FOLDER / "package.json").read_text())
(DEBUGGER,) = PACKAGE["contributes"]["debuggers"]
# What the extension itself uses, or the door of a port (tests/dap/test_listener.py), and what means
# nothing to a process that runs already.
OF_EXTENSION = {"launch": {"python", "token"}, "attach": {"port", "token"}}
NOT_OFFERED = {"launch": set(), "attach": {"noDebug"}}
# What VS Code gives to every configuration.
OF_EVERY = {"name", "type", "request"}
OF_OTHER_TYPE = {
    "string": 3,
    "boolean": "yes",
    "array": "text",
    "object": "text",
}


class Read(Mapping):
    """Arguments of a request, and which of them were asked for."""

    def __init__(self, fields):
        self._fields, self.names = fields, set()

    def __getitem__(self, name):
        self.names.add(name)
        return self._fields[name]

    def __iter__(self):
        return iter(self._fields)

    def __len__(self):
        return len(self._fields)


def answer(command, fields):
    """Return the adapter's answer to a `launch` or `attach`, and the arguments it asked for."""
    out = io.BytesIO()
    attached = _Attached(threading.Event())
    adapter = Adapter(Connection(io.BytesIO(), out), _Launch() if command == "launch" else attached)
    adapter._answer(Request(1, "initialize", {}))
    arguments = Read(fields)
    adapter._answer(Request(2, command, arguments))
    adapter._debuggee.close()
    return json.loads(out.getvalue().rpartition(b"\r\n\r\n")[2]), arguments.names


def good(command):
    return {"program": __file__} if command == "launch" else {}


def properties(command):
    return DEBUGGER["configurationAttributes"][command]["properties"]


def bodies():
    snippets = [one["body"] for one in DEBUGGER["configurationSnippets"]]
    return [*DEBUGGER["initialConfigurations"], *snippets, *compound()["configurations"]]


def compound():
    """The launch.json of the snippet, as a user gets it."""
    (path,) = [one["path"] for one in PACKAGE["contributes"]["snippets"]]
    (snippet,) = json.loads((FOLDER / path).read_text()).values()
    text = "\n".join(snippet["body"]).replace("\\}", "}").replace("\\$", "$")
    return json.loads(re.sub(r"\$\{\d:((?:\$\{\w+\}|[^}])*)\}", r"\1", text))


@pytest.mark.parametrize("command", ["launch", "attach"])
def test_every_attribute_is_one_that_the_adapter_reads_and_the_reverse(command):
    said, names = answer(command, good(command))
    assert said["success"], said
    offered = set(properties(command)) - OF_EXTENSION[command]
    assert offered == names - NOT_OFFERED[command]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (command, name)
        for command in ("launch", "attach")
        for name in sorted(set(properties(command)) - OF_EXTENSION[command])
    ],
)
def test_an_attribute_of_another_type_is_refused_by_its_name(command, name):
    wrong = OF_OTHER_TYPE[properties(command)[name]["type"]]
    said, _ = answer(command, {**good(command), name: wrong})
    assert not said["success"]
    assert f"`{name}` is {wrong!r}, expected" in said["message"]


def test_configurations_that_are_offered_have_known_attributes():
    own = [body for body in bodies() if body["type"] == "tkdebug"]
    assert len(own) == 5
    for body in own:
        assert set(body) - OF_EVERY <= set(properties(body["request"])), body


def test_the_compound_runs_one_process_under_both_debuggers():
    launch = compound()
    kernels, host = launch["configurations"]
    assert set(launch["compounds"][0]["configurations"]) == {kernels["name"], host["name"]}
    listen = host["listen"]
    assert kernels["args"][:2] == ["--connect", f"{listen['host']}:{listen['port']}"]
    assert kernels["args"][-1] == "${file}"


def test_the_extension_has_the_version_and_the_license_of_the_project():
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert PACKAGE["version"] == version
    assert (FOLDER / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_adapter_passes_under_the_test_client_of_vs_code():
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    if not (FOLDER / "node_modules").is_dir():
        pytest.skip("the packages are not installed: npm ci --ignore-scripts in editors/vscode")
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [npm, "test"], cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
