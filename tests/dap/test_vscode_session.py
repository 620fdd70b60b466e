"""Replays the requests that VS Code sent in a session.

`vscode_session.jsonl` has its requests, one a line, recorded in code-server 4.139.1: a breakpoint,
two expressions, step, step back, a tile unfolded, continue, reverse, no breakpoint, the end.
"""

import json
import subprocess
from pathlib import Path

from client import Client, Refused
from patience import LONGEST_WAIT_S
from warm_python import start_python

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "editors" / "vscode" / "test" / "kernels.py"
GOES_ON = ("configurationDone", "next", "stepBack", "continue", "reverseContinue")


def recorded():
    text = (HERE / "vscode_session.jsonl").read_text()
    text = text.replace("KERNELS", str(KERNELS)).replace("FOLDER", str(KERNELS.parent))
    return [json.loads(line) for line in text.splitlines()]


def replay(client, requests):
    """The lines of the stops, the lists of variables, and what was refused."""
    lines, variables, refused = [], [], []
    for place, (command, arguments) in enumerate(requests):
        try:
            body = client.request(command, **arguments)
        except Refused as error:
            refused.append(str(error))
            continue
        if command in GOES_ON:
            ends = requests[place + 1][0] == "disconnect"
            client.event("terminated" if ends else "stopped")
        elif command == "stackTrace":
            lines.append(body["stackFrames"][0]["line"])
        elif command == "variables":
            variables.append({one["name"]: one["value"] for one in body["variables"]})
    return lines, variables, refused


def test_a_session_of_vs_code_is_answered_as_it_was():
    pipe = subprocess.PIPE
    with start_python("-m", "tkdebug", "dap", stdin=pipe, stdout=pipe) as process:
        try:
            client = Client(process.stdout, process.stdin)
            lines, variables, refused = replay(client, recorded())
            assert process.wait(LONGEST_WAIT_S) == 3
        finally:
            process.kill()  # else the end of the block waits for it
    assert lines == [18, 15, 18, 18, 18]
    stepped, back, _, later, parts, reversed_, _ = variables
    assert stepped["total"] == "fp32[4] [0 1 2 3]"
    assert back["total"] == "fp32[4] [0 0 0 0]"
    assert later["start"] == "4"
    assert list(parts.values()) == ["4", "5", "6", "7"]
    assert reversed_ == back
    assert refused == ["nothing + 1: NameError: name 'nothing' is not defined"]
    assert client.output("stdout") == "sums [66.0, 210.0]\n"
