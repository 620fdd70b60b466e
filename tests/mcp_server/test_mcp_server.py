"""The server of `tkdebug mcp`, driven by its SDK's own client over stdio."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")
if os.name != "posix":
    pytest.skip("groups of processes are POSIX's", allow_module_level=True)

import anyio
import anyio.to_thread
from dialogues import DIALOGUES, GOLDEN, OVER_STDIO, server_in, spoken, write_scripts
from jsonschema import Draft202012Validator
from mcp import Client
from warm_python import run_module

from tkdebug.cli.command_line import parse
from tkdebug.cli.script.execution import command_in_a_process
from tkdebug.mcp_server.children import ChildError, Children, Finished
from tkdebug.mcp_server.server import desk_of, server_of
from tkdebug.mcp_server.tools import TOOLS
from tkdebug.runtime.device.driver import has_real_gpu

PATIENCE_S = 300
# Notes that it runs, and waits to be killed, as a child of its own does.
SLEEPER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
open("begun", "w").write(str(child.pid))
child.wait()
"""


@pytest.fixture
def folder(tmp_path):
    root = Path(os.path.realpath(tmp_path))
    write_scripts(root)
    (root / "sleeper.py").write_text(SLEEPER)
    return root


def running(token):
    """Return the processes whose command line has the token."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if token in line and "ps -eo" not in line]


async def ends(token):
    """Wait until no process has the token."""
    with anyio.fail_after(PATIENCE_S):
        while running(token):
            await anyio.sleep(0.05)


async def begins(folder):
    with anyio.fail_after(PATIENCE_S):
        while not (folder / "begun").exists():
            await anyio.sleep(0.05)


def warmed(children):
    """Have commands run in processes that are forked from one that has imported a lot."""

    async def run(words, progress, seconds, keeps_all=True):
        def command():
            return run_module("tkdebug", *words, cwd=children.root)

        done = await anyio.to_thread.run_sync(command)
        return Finished(tuple(words), done.returncode, done.stdout.encode(), done.stderr)

    return run


@pytest.mark.skipif(has_real_gpu(), reason="recorded where there is no GPU")
def test_dialogues_are_as_recorded(folder):
    async def main():
        async with desk_of(folder, command_in_a_process) as desk, Client(server_of(desk)) as client:
            desk.children.run = warmed(desk.children)
            for name in DIALOGUES:
                if name not in OVER_STDIO:
                    assert await spoken(client, name, folder) == recorded(name)

    anyio.run(main)


def recorded(name):
    """Return a dialogue as `python tests/mcp_server/dialogues.py` has recorded it."""
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


@pytest.mark.skipif(has_real_gpu(), reason="recorded where there is no GPU")
def test_dialogue_over_stdio_is_as_recorded_and_a_cancelled_call_ends_all_that_it_started(folder):
    async def main():
        async with Client(server_in(folder)) as client:
            for name in OVER_STDIO:
                assert await spoken(client, name, folder) == recorded(name)
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == [tool.name for tool in TOOLS]
            for tool in listed:
                Draft202012Validator.check_schema(tool.input_schema)
            told = []

            async def progress(seconds, total, message):
                told.append(message)
                if (folder / "begun").exists():
                    scope.cancel()

            token = f"token-{os.getpid()}-cancelled"
            arguments = {"script": "sleeper.py", "args": [token]}
            with anyio.CancelScope() as scope:
                await client.call_tool("run", arguments, progress_callback=progress)
            assert scope.cancelled_caught
            assert token in told[-1]
            await ends(token)
            assert (await client.call_tool("explain", {"kind": "race"})).is_error is False

    anyio.run(main)


def test_replays_are_commands_that_tkdebug_takes():
    import shlex

    for name in DIALOGUES:
        for turn in json.loads((GOLDEN / f"{name}.json").read_text("utf-8")):
            replay = turn["answer"].get("replay")
            if replay is not None:
                program, *words = shlex.split(replay)
                assert program == "tkdebug"
                parse(words)
            else:
                assert turn["answer"]["error"]["message"]


@pytest.mark.parametrize("how", ["the client vanishes", "the server is told to end"])
def test_an_end_in_the_middle_leaves_nothing_running(folder, how):
    token = f"token-{os.getpid()}-ended"
    parameters = server_in(folder)
    server = subprocess.Popen(
        [parameters.command, *parameters.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    call = {"name": "run", "arguments": {"script": "sleeper.py", "args": [token]}}
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()

    async def end():
        await begins(folder)
        if how == "the client vanishes":
            server.stdin.close()
        else:
            server.terminate()
        await anyio.to_thread.run_sync(server.wait)
        await ends(token)

    anyio.run(end)
    server.stdin.close()
    with server.stdout, server.stderr:
        assert b"Traceback" not in server.stderr.read()
    assert server.returncode == (0 if how == "the client vanishes" else 128 + signal.SIGTERM)


def test_the_server_says_what_it_lacks(run_main, folder, monkeypatch):
    status, _, err = run_main("mcp", folder / "none")
    assert status == 2
    assert "is no folder" in err
    monkeypatch.setattr("tkdebug.cli.commands.mcp.find_spec", lambda name: None)
    status, _, err = run_main("mcp", folder)
    assert (status, err) == (2, "tkdebug: mcp: needs the package mcp; pip install 'tkdebug[mcp]'\n")


TEXTS = (
    "", "rows.py", "run.tkd", "damaged.tkd", "../rows.py", "/etc/passwd", "~", "a\0b", "é" * 3000,
    "20", "rows.py:10", "rows.py:10:x", "out[3]", "b 3 ;; !import os", "oob-load", "race",
    "debug-1",
    "start", "step", "stop", "break", "evaluate", "page-1", "{}", "--help", "-c", "\ud800",
    "interpret", "x" * 9, "link", "value", "line", "tile",
)  # fmt: skip
# What a command may do that goes wrong: each is a program of a shell.
OTHERS_JSON = ("echo '{}'", "echo '{\"kernels\": 7}'")
ENDINGS = (
    *OTHERS_JSON, "echo nonsense", "exit 3", "kill -9 $$", "true",
    "echo '{\"event\": \"begin\"}'; read line; echo '{\"event\": 3}'; echo '[1]'",
    "printf '\\377\\376\\n'; echo 'Traceback (most recent call last):' >&2; exit 1",
    "echo '{\"schema\": 1, \"error\": {\"kind\": \"usage\", \"message\": \"no\"}}' >&2; exit 2",
    "echo '{\"error\": {\"nonsense\": 1}}' >&2; exit 2",
)  # fmt: skip


def fuzzed(chosen):
    """Return the name and the arguments of a call."""
    tool = chosen.choice(TOOLS)
    # The header that names the tool takes no surrogates.
    names = [text for text in TEXTS if text != "\ud800"]
    name = tool.name if chosen.random() < 0.97 else chosen.choice(names)
    arguments = {}
    for each in tool.parameters:
        if each.is_required or chosen.random() < 0.4:
            arguments[each.name] = fuzzed_value(chosen, each)
    if chosen.random() < 0.1:
        arguments[chosen.choice(TEXTS)] = 1
    if chosen.random() < 0.2:
        arguments["limit"] = chosen.choice([1024, 4096, 0, -1, 10**30])
    return name, arguments


def fuzzed_value(chosen, parameter):
    if chosen.random() < 0.7:
        match parameter.kind:
            case "integer":
                return chosen.choice([parameter.low, parameter.high])
            case "flag":
                return True
            case "words":
                return [chosen.choice(TEXTS) for _ in range(chosen.randrange(3))]
            case "file" | "session":
                return chosen.choice(["rows.py", "run.tkd", "steps.py"])
        return chosen.choice(list(parameter.choices) or TEXTS)
    plain = [None, True, -1, 1e300, [], {}, [[]], {"a": [1]}, 2**70]
    return chosen.choice([*plain, *TEXTS, [chosen.choice(TEXTS)]])


def test_a_thousand_fuzzed_requests_leave_no_traceback_and_no_orphan(folder, caplog):
    chosen = random.Random(42)
    token = f"token-{os.getpid()}-fuzzed"
    (folder / "run.tkd").write_bytes(b"SQLite format 3\0")
    (folder / "damaged.tkd").write_bytes(os.urandom(64))
    (folder / "link").symlink_to("/etc")

    endings = []

    def command(*words):
        endings.append(chosen.choice(ENDINGS))
        return ["/bin/sh", "-c", endings[-1], token]

    async def main():
        errors = 0
        async with desk_of(folder, command) as desk, Client(server_of(desk)) as client:
            for _ in range(1000):
                name, arguments = fuzzed(chosen)
                endings.clear()
                result = await client.call_tool(name, arguments)
                (content,) = result.content
                page = json.loads(content.text)
                assert "Traceback (most recent call last):\n" not in content.text
                assert len(content.text) <= 65536
                assert ("error" in page) == result.is_error
                errors += result.is_error
                if result.is_error:
                    assert page["error"]["message"], (name, arguments)
                    is_odd = any(each in OTHERS_JSON for each in endings)
                    assert is_odd or page["error"]["kind"] != "internal", (name, arguments, page)
        assert 0 < errors < 1000

    with caplog.at_level(logging.WARNING):
        anyio.run(main)
    assert [record for record in caplog.records if record.exc_info] == []
    assert running(token) == []


def test_nothing_is_written_outside_of_the_folder(folder):
    async def main():
        started = []

        def command(*words):
            started.append(words)
            return [sys.executable, "-c", "print('{}')"]

        async with desk_of(folder, command) as desk, Client(server_of(desk)) as client:
            (folder / ".tkdebug").symlink_to(folder.parent)
            for tool, arguments in (
                ("run", {"script": "rows.py"}),
                ("run", {"script": "rows.py", "session": "../a.tkd"}),
                ("run", {"script": "rows.py", "watch": ["/etc/passwd:1:x"]}),
                ("why", {"script": "rows.py", "what": "x", "at": "../rows.py:3"}),
                ("lines", {"target": "/etc/passwd"}),
                ("compare", {"before": "rows.py", "after": "/dev/stdin"}),
            ):
                result = await client.call_tool(tool, arguments)
                assert result.is_error, (tool, arguments)
        assert started == []

    anyio.run(main)


@pytest.mark.parametrize(
    ("target", "script"),
    [
        ("sub/run.tkd", "linked.py"),
        ("sub/run.tkd", "../rows.py"),
        ("sub/run.tkd", "http.server"),
        ("sub/run.tkd", "-c"),
        ("answer.json", "/elsewhere/kernel.py"),
        ("answer.json", "sub/linked.py"),
        ("rows.json", ""),
    ],
)
def test_nothing_from_outside_of_the_folder_is_reproduced(folder, tmp_path_factory, target, script):
    outside = tmp_path_factory.mktemp("outside") / "linked.py"
    outside.write_text("")
    (folder / "sub").mkdir()
    (folder / "sub" / "linked.py").symlink_to(outside)
    (folder / "sub" / "run.tkd").write_text("")
    (folder / "answer.json").write_text(json.dumps({"file": script}))
    (folder / "rows.json").write_text("[1")
    message = call_with_model(folder, {"script": script}, {"target": target})
    assert message.startswith("target: ")


def test_tensors_of_a_short_script_are_not_written_through_a_link(folder):
    (folder / ".tkdebug").mkdir()
    (folder / ".tkdebug" / "rows_short.safetensors").symlink_to("/elsewhere/weights")
    assert "a link to elsewhere" in call_with_model(folder, {}, {"target": "rows.py"})


def test_folder_of_the_tools_that_is_a_file_is_said(folder):
    (folder / ".tkdebug").write_text("")
    assert ".tkdebug: cannot be made" in call_with_model(folder, {}, {"target": "rows.py"})


def test_number_of_no_fault_is_refused_as_faults_counts(folder):
    (folder / "run.tkd").write_text("")
    message = call_with_model(folder, {"script": "rows.py"}, {"target": "run.tkd", "fault": 1})
    assert message == "fault: got 1, expected a number that `faults` has; the run has 1"


def call_with_model(folder, run, arguments):
    """Call `reproduce` where a session has a fault and that run; return what it is refused by."""
    model = json.dumps({"run": run, "faults": [{}]})

    async def main():
        started = []

        def command(*words):
            started.append(words[0])
            return [sys.executable, "-c", f"print({model!r})"]

        async with desk_of(folder, command) as desk, Client(server_of(desk)) as client:
            (content,) = (await client.call_tool("reproduce", arguments)).content
        assert set(started) <= {"report"}
        return json.loads(content.text)["error"]["message"]

    return anyio.run(main)


def test_call_that_waits_for_others_reports_progress_and_can_be_cancelled(folder):
    told = []

    async def main():
        async with anyio.create_task_group() as tasks:
            children = Children(folder, lambda *words: ["/bin/sh", "-c", words[0]], tasks)

            async def nothing(seconds, message):
                pass

            async def told_of(seconds, message):
                told.append(message)
                scope.cancel()

            for _ in range(4):
                tasks.start_soon(children.run, [": > begun$$; exec sleep 600"], nothing, 600)
            while len([*folder.glob("begun*")]) < 4:
                await anyio.sleep(0.02)
            with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:
                await children.run(["true"], told_of, 600)
            assert scope.cancelled_caught
            tasks.cancel_scope.cancel()
        # Nothing is held any more.
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(children.run, ["exec true"], nothing, 600)

    anyio.run(main)
    assert told == ["tkdebug true waits for other commands: 1 s"]


def test_command_that_a_signal_ends_is_said_so():
    ended = Finished(("reproduce", "a.py"), -11, b"", "")
    with pytest.raises(ChildError, match="ended with signal 11, and said nothing"):
        ended.answer()


# As the debugger's, but that each answer is its question.
ECHO = """
echo '{"event": "begin"}'
while read -r line; do
  printf '{"event": "answer", "ok": true, "resumes": false, "text": ["%s"]}\\n' "$line"
done
"""


def test_calls_at_once_take_turns_at_a_stopped_script(folder):
    found = {}

    async def ask(client, number):
        arguments = {"action": "evaluate", "text": f"x{number}"}
        (content,) = (await client.call_tool("debug", arguments)).content
        found[number] = json.loads(content.text)["items"]

    async def main():
        def command(*words):
            return ["/bin/sh", "-c", ECHO]

        async with desk_of(folder, command) as desk, Client(server_of(desk)) as client:
            await client.call_tool("debug", {"action": "start", "script": "rows.py"})
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(ask, client, number)

    anyio.run(main)
    assert found == {number: [{"text": f"print x{number}"}] for number in range(20)}
