"""Formats for other programs' viewers: each is what its reader asks for."""

import csv
import io
import json

import pytest
from launching import launch

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.scopes import SCOPES


def exported(path, format_name):
    with Session.open(path) as session:
        return "".join(render(session, format_name))


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", output=False).start()
    launch(grid=(3, 2, 1), duration_ns=1_500)
    step = SCOPES.enter("step")
    launch("inner", duration_ns=20)
    layer = SCOPES.enter("layer")
    launch("inner", duration_ns=30)
    SCOPES.exit(layer)
    launch("=cmd()\n", duration_ns=5)
    SCOPES.exit(step)
    recorder.stop(0)
    return path


def test_csv_has_a_line_for_each_launch(recorded):
    rows = list(csv.DictReader(io.StringIO(exported(recorded, "csv"))))
    assert [row["kernel"] for row in rows][1:] == ["inner", "inner", "'=cmd() "]
    assert [row["duration_ns"] for row in rows] == ["1500", "20", "30", "5"]
    assert (rows[0]["grid_x"], rows[0]["grid_y"], rows[0]["grid_z"]) == ("3", "2", "1")
    assert rows[2]["scopes"] == "step > layer"


def test_speedscope_opens_and_closes_frames_in_order(recorded):
    data = json.loads(exported(recorded, "speedscope"))
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in data["shared"]["frames"]]
    (profile,) = data["profiles"]
    assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
    open_frames, last, spent = [], profile["startValue"], {}
    for event in profile["events"]:
        assert event["at"] >= last
        for frame in open_frames:
            spent[names[frame]] = spent.get(names[frame], 0) + event["at"] - last
        last = event["at"]
        if event["type"] == "O":
            open_frames.append(event["frame"])
        else:
            assert open_frames.pop() == event["frame"]
    assert not open_frames
    assert profile["endValue"] == last
    assert spent["inner"] == 50
    assert spent["layer"] >= 30


def test_hatchet_has_scopes_above_kernels(recorded):
    (root,) = json.loads(exported(recorded, "hatchet"))
    assert root["frame"] == {"name": "ROOT", "type": "root"}
    step = next(child for child in root["children"] if child["frame"]["name"] == "step")
    assert [child["frame"]["name"] for child in step["children"]] == ["inner", "layer", "=cmd()\n"]
    inner = step["children"][0]
    assert inner["metrics"] == {"time (ns)": 20, "count": 1}


def test_an_empty_run_is_a_document(tmp_path):
    path = tmp_path / "empty.tkd"
    Recorder(path, script="k.py", output=False).start().stop(0)
    assert json.loads(exported(path, "speedscope"))["profiles"] == []
    assert json.loads(exported(path, "hatchet"))[0]["children"] == []
    assert exported(path, "csv").count("\n") == 1
