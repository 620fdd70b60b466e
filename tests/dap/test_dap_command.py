"""`tkdebug dap` runs a script for a client on its stdin and stdout."""

import subprocess
import sys

import pytest
from client import Client, Refused

SCRIPT = """\
import sys
import torch, triton
import triton.language as tl

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
    process = subprocess.Popen(
        [sys.executable, "-m", "tkdebug", "dap"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
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
    capabilities, answers = client.begin({script: [8]}, program=str(script), cwd=str(tmp_path))
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
    assert process.wait(20) == 5


def test_a_script_that_is_ended_before_it_runs_is_said_to_have_ended(adapter):
    process, client = adapter
    client.request("initialize")
    client.request("terminate")
    client.event("terminated")
    client.request("disconnect")
    assert process.wait(20) == 0
